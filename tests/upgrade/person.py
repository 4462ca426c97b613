"""Somebody at the command line, with two equal nodes that refuse connections and a third that was never probed."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema

from fleet.core.model import Accelerator, ComponentFact, Facts, Node, OsFacts
from fleet.inventory import open_inventory
from tests.cli.command import Fleet
from tests.remote.sshd import make_key, public

SCHEMAS = Path(__file__).parents[2] / "docs/schema"
FILES = (
    "biren-driver_1.6.0_linux-x86_64.run", "biren-driver_1.11.0_linux-x86_64.run",
    "birensupa-sdk_1.6_ubuntu-22.04_linux-x86_64.run", "birensupa-sdk_1.11_ubuntu-22.04_linux-x86_64.run",
)  # fmt: skip
FACTS = Facts(
    "br1", OsFacts("ubuntu", "22.04", "5.15.0-119-generic", "x86_64"), "biren",
    {"driver": ComponentFact("1.6.0", "1.6.0"), "toolkit": ComponentFact("1.6")},
    tuple(Accelerator("biren", "Biren106M", f"0000:0{i}:00.0", "1ee0:0106", i, f"uuid-{i}") for i in range(2)),
    {"package_kind": "deb", "kernel_headers": True}, at="2031-05-01T08:00:00Z", boot_id="b-1",
)  # fmt: skip


class Person:
    """A fleet of two equal nodes that refuse connections, and a third that was never probed."""

    def __init__(self, folder: Path) -> None:
        self.fleet = Fleet(folder)
        self.folder = folder
        key = make_key(folder, "key")
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port: int = taken.getsockname()[1]
        self.env = {"FLEET_SSH_KEY": str(key)}
        inventory = open_inventory(self.fleet.url)
        inventory.add([Node(name, "127.0.0.1", port, "root", lifecycle="ready") for name in ("br1", "br2", "br3")])
        inventory.record([FACTS, replace(FACTS, node="br2")])
        for name in ("br1", "br2", "br3"):
            inventory.trust(name, public(key), "tester", "2031-05-01T08:00:00Z")
        inventory.close()

    def __call__(self, *args: str, code: int = 0, **more: str) -> str:
        done = self.fleet(*args, env={**self.env, **more})
        assert done.code == code, f"{args}: {done.code}\n{done.out}\n{done.err}"
        self.err = done.err
        return done.out

    def document(self, kind: str, *args: str, code: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self(*args, "-o", "json", code=code))
        jsonschema.validate(found, json.loads((SCHEMAS / f"{kind}.json").read_text()))
        return found

    def packages(self) -> None:
        for name in FILES:
            (self.folder / name).write_text(f"package {name}")
            self("artifact", "add", name)
