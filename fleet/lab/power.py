"""Power of lab nodes: an adapter of `fleet.power.Power` that needs no hands."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from fleet.core.errors import FleetError, NotFound
from fleet.core.model import Node
from fleet.lab.process import recorded
from fleet.power import Action


@dataclass(frozen=True)
class LabPower:
    """Switches the nodes of the lab in `folder`. A cycle is not a reboot: the node counts it, pending power-off work
    is done, and its processes end without a word."""

    folder: Path
    limit_s: float = 120.0

    def available(self, node: Node) -> bool:
        """Is this node one of the lab's?"""
        return (self.folder / "nodes" / node.name / "node.json").is_file()

    def do(self, node: Node, action: Action, off_seconds: int = 0) -> str:
        """The `Power` protocol."""
        if action == "status":
            return self.status(node.name)
        if action == "cycle":
            self.cycle(node.name, off_seconds)
        elif action == "on":
            self.on(node.name)
        else:
            self.off(node.name)
        return self.status(node.name)

    def on(self, name: str) -> None:
        """Give power; returns when the node has begun to boot."""
        self._wish(name, on=True)
        self._await(name, {"booting", "up", "failed"})

    def off(self, name: str) -> None:
        """Take the power: everything in the node ends at once."""
        self._wish(name, on=False)
        self._await(name, {"off"})

    def cycle(self, name: str, off_seconds: float = 0) -> None:
        """Off and on again; a node that is off comes on. The lab waits at most 3 of the `off_seconds`, the node is
        told all of them."""
        before = self._boots(name)
        self._wish(name, on=True, off_seconds=off_seconds, more=1)
        end = time.monotonic() + self.limit_s
        while self._boots(name) == before:
            if time.monotonic() > end:
                raise FleetError(f"lab node {name} did not come back from a power cycle", slug="power-failed")
            time.sleep(0.05)

    def status(self, name: str) -> str:
        """`on` or `off`."""
        return "off" if self._phase(name) in {"off", "down", ""} else "on"

    def _node(self, name: str) -> Path:
        folder = self.folder / "nodes" / name
        if not (folder / "node.json").is_file():
            raise NotFound(f"the lab has no node {name!r}", hint="fleet lab status", slug="unknown-node")
        return folder

    def _phase(self, name: str) -> str:
        folder = self._node(name)
        supervisor = recorded(folder / "processes.json").get("supervisor")
        if supervisor is None or not supervisor.alive:
            return ""
        try:
            return str(json.loads((folder / "status.json").read_text())["phase"])
        except (OSError, ValueError):
            return ""

    def _boots(self, name: str) -> int:
        try:
            return int(json.loads((self._node(name) / "state/state.json").read_text())["boots"])
        except (OSError, ValueError):
            return -1

    def _wish(self, name: str, on: bool, off_seconds: float = 0, more: int = 0) -> None:
        folder = self._node(name)
        file = folder / "wish.json"
        old = json.loads(file.read_text()) if file.is_file() else {}
        fresh = folder / "wish.new"
        fresh.write_text(json.dumps({"on": on, "cycles": int(old.get("cycles", 0)) + more, "off_seconds": off_seconds}))
        fresh.replace(file)
        supervisor = recorded(folder / "processes.json").get("supervisor")
        if supervisor is None or not supervisor.signal(signal.SIGUSR1):
            raise FleetError(f"nothing runs lab node {name}", hint="fleet lab up starts it again", slug="lab-node-down")

    def _await(self, name: str, phases: set[str]) -> None:
        end = time.monotonic() + self.limit_s
        while self._phase(name) not in phases:
            if time.monotonic() > end:
                raise FleetError(
                    f"lab node {name} is {self._phase(name) or 'down'}, not {' or '.join(sorted(phases))}",
                    slug="power-failed",
                )
            time.sleep(0.05)
