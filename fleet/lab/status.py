"""What a lab node is now, read from the files in its folder."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

from fleet.lab.node.labnode import Files
from fleet.lab.process import recorded


@dataclass(frozen=True)
class NodeStatus:
    """What a lab node is now. `phase`: up, booting, off, hung, failed, or down (nothing runs it)."""

    name: str
    vendor: str
    model: str
    os: str
    kernel: str
    address: str
    port: int
    user: str
    phase: str
    boots: int
    power_cycles: int
    boot_id: str
    faults: tuple[str, ...]


def status(folder: Path) -> NodeStatus:
    """The node in that folder, whose `node.json` is there."""
    node = json.loads((folder / "node.json").read_text(encoding="utf-8"))
    state = Files(folder / "state", folder / "log").read()
    return NodeStatus(
        **{k: node[k] for k in ("name", "vendor", "model", "os", "kernel", "address", "port", "user")},
        phase=phase(folder),
        boots=int(state.get("boots", 0)),
        power_cycles=int(state.get("power_cycles", 0)),
        boot_id=str(state.get("boot_id", "")),
        faults=tuple(state.get("faults", [])),
    )


def phase(folder: Path) -> str:
    """The phase of the node in that folder: see `NodeStatus`."""
    supervisor = recorded(folder / "processes.json").get("supervisor")
    if supervisor is None or not supervisor.alive:
        return "down"
    with contextlib.suppress(OSError, ValueError):
        said = str(json.loads((folder / "status.json").read_text(encoding="utf-8"))["phase"])
        ready = (folder / "state/ready").exists()
        return "up" if said in {"up", "booting"} and ready else "booting" if said == "up" else said
    return "booting"
