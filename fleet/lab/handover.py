"""The files with which fleet uses a lab: settings with a state folder of the lab's own, and the nodes to import."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from fleet.lab.spec import LabNode


def write(folder: Path, nodes: Sequence[LabNode], arch: str, vendor_path: Sequence[str]) -> None:
    """Write `fleet.toml`, `nodes.yaml` and `ssh/known_hosts` into the lab's folder.

    Inventory, evidence and artifacts of a lab are its own: what happens here must never teach the real fleet.
    """
    power = [sys.executable, "-m", "fleet.cli.main", "lab", "power", "--dir", str(folder)]
    settings: dict[str, object] = {
        "state_dir": str(folder / "fleet"),
        "db": f"sqlite:///{folder / 'fleet' / 'inventory.db'}",
        "ssh_key": str(folder / "ssh/id_ed25519"),
        "ssh_user": "root",
        # The lab made these keys a moment ago on this machine; a later change is an incident here as anywhere.
        "host_keys": "tofu",
        "power_command": f'{shlex.join(power)} "$NODE" "$ACTION" --off-seconds "${{OFF_SECONDS:-0}}"',
        "vendor_path": list(vendor_path),
    }
    (folder / "fleet").mkdir(exist_ok=True)
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    (folder / "fleet.toml").write_text("# Written by fleet lab up.\n" + "\n".join(lines) + "\n")
    rows = [
        {
            "name": node.name,
            "address": node.address,
            "port": node.port,
            "user": node.node_class.user,
            "arch": arch,
            **node.place,
            "labels": {"lab": "true", **node.labels},
        }
        for node in nodes
    ]
    (folder / "nodes.yaml").write_text(yaml.safe_dump({"nodes": rows}, sort_keys=False))
    known = [f"[{node.address}]:{node.port} {public_key(folder, node.name)}" for node in nodes]
    (folder / "ssh/known_hosts").write_text("\n".join(known) + "\n")


def public_key(folder: Path, name: str) -> str:
    """A node's host key as `ssh-ed25519 AAAA…`."""
    return " ".join((folder / "nodes" / name / "host_key.pub").read_text().split()[:2])
