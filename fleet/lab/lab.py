"""A lab: its folder, its nodes, and what one can do to them.

Folder: `lab.json` (spec and seed), `opt/` (what every node sees as /opt/fleet-lab), `packages/` (emulated vendor
packages), `ssh/` (client key, known_hosts), `nodes/<name>/` (disk, state, processes), `fleet/` (inventory, evidence and
artifacts of the lab alone), `fleet.toml` and `nodes.yaml` for the command line.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fleet.core.errors import FleetError, Locked, NotFound
from fleet.core.model import digest
from fleet.lab import guest, handover, packages
from fleet.lab.base import NODE, Say, cache_dir
from fleet.lab.build import Build
from fleet.lab.namespace import ENV, require
from fleet.lab.node.labnode import Files
from fleet.lab.process import Process, recorded
from fleet.lab.spec import LabNode, Spec, load
from fleet.lab.status import NodeStatus, phase, status


def lab_dir() -> Path:
    """Where the lab is: FLEET_LAB_DIR, else /var/lib/fleet-lab."""
    return Path(os.environ.get("FLEET_LAB_DIR", "/var/lib/fleet-lab"))


class Lab:
    """The lab in one folder. `say` is told what happens, one line each."""

    def __init__(self, folder: Path, say: Say, cache: Path | None = None, vendor_path: Sequence[str] = ()) -> None:
        self.folder = folder.absolute()
        self.cache = cache or cache_dir()
        self.say = say
        self.vendor_path = tuple(str(Path(root).absolute()) for root in vendor_path)

    # --- up -----------------------------------------------------------------------------------------------------------

    def up(self, spec_file: Path, seed: int) -> list[NodeStatus]:
        """Build what is missing, start what is not running, write the files for fleet. Safe to repeat.

        Refused where a lab cannot run. FleetError when another spec or seed is up in this folder.
        """
        require()
        spec = load(spec_file, seed)
        with self._locked():
            self._same_lab(spec)
            self._clean_dead()
            missing = [node for node in spec.nodes if not (self._node(node.name) / "node.json").is_file()]
            if missing:
                Build(self.folder, self.cache, self.say, self.vendor_path).nodes(spec, missing)
            self._start(spec)
            self._describe(spec)
        return self.status()

    def _same_lab(self, spec: Spec) -> None:
        file = self.folder / "lab.json"
        content = {
            "spec": digest(Path(spec.where).read_bytes()),
            "seed": spec.seed,
            "vendor_path": list(self.vendor_path),
        }
        if file.is_file():
            old = json.loads(file.read_text())
            if {key: old.get(key) for key in content} != content:
                raise FleetError(
                    "another lab is up here: its spec, seed or vendors differ",
                    where=str(self.folder),
                    hint="fleet lab down, or another folder with --dir",
                    slug="lab-differs",
                )
            return
        file.write_text(json.dumps({**content, "where": spec.where}))

    def _start(self, spec: Spec) -> None:
        """Start the supervisors that do not run and wait until their nodes are ready."""
        waiting = []
        for node in spec.nodes:
            folder = self._node(node.name)
            supervisor = recorded(folder / "processes.json").get("supervisor")
            if supervisor is not None and supervisor.alive:
                continue
            _free(node)
            for name in ("processes.json", "status.json", "state/ready"):
                (folder / name).unlink(missing_ok=True)
            with (folder / "supervisor.log").open("ab") as log:
                subprocess.run(
                    [sys.executable, "-m", "fleet.lab.supervisor", str(folder)],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True, cwd="/",
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(NODE.parent.parent.parent),
                         os.environ.get("PYTHONPATH", "")]))},
                )  # fmt: skip
            waiting.append(node.name)
        if waiting:
            self.say(f"booting {len(waiting)} nodes")
        self.wait_ready(waiting)

    def wait_ready(self, names: Sequence[str], limit_s: float = 300.0) -> None:
        """Until these nodes have booted (those whose power is off are left out); a guest may take longer.

        FleetError lab-node-down when one does not in that time, or as soon as nothing boots it any more.
        """
        begun = time.monotonic()
        for name in names:
            folder = self._node(name)
            end = begun + (guest.BOOT_LIMIT_S if self._is_guest(name) else limit_s)
            while not (folder / "state/ready").exists():
                if not json.loads((folder / "wish.json").read_text())["on"]:
                    break
                supervisor = recorded(folder / "processes.json").get("supervisor")
                gone = (supervisor is not None and not supervisor.alive) or phase(folder) == "failed"
                if gone or time.monotonic() > end:
                    log = (folder / "supervisor.log").read_text(errors="replace").strip().splitlines()[-3:]
                    raise FleetError(
                        f"lab node {name} did not boot: nothing tries to any more"
                        if gone
                        else f"lab node {name} did not boot within {end - begun:.0f} s",
                        where=str(folder / "supervisor.log"),
                        cause=" | ".join(log),
                        slug="lab-node-down",
                    )
                time.sleep(0.05)

    def _describe(self, spec: Spec) -> None:
        handover.write(self.folder, spec.nodes, platform.machine(), self.vendor_path)

    # --- down ---------------------------------------------------------------------------------------------------------

    def down(self, keep: bool = False) -> int:
        """Stop every process of the lab by its record and remove the nodes (not their disks with `keep`).

        Returns the number of nodes stopped. Works whatever was killed before; the cache of layers stays.
        """
        if not self.folder.is_dir():
            return 0
        with self._locked():
            nodes = self._folders()
            for folder in nodes:  # all are told before one is waited for
                supervisor = recorded(folder / "processes.json").get("supervisor")
                if supervisor is not None:
                    supervisor.signal(signal.SIGTERM)
            for folder in nodes:
                self._stop(folder)
            if keep:
                return len(nodes)
            for name in ("nodes", "opt", "packages", "ssh", "fleet"):
                shutil.rmtree(self.folder / name, ignore_errors=True)
            for name in ("lab.json", "packages.json", "fleet.toml", "nodes.yaml"):
                (self.folder / name).unlink(missing_ok=True)
            return len(nodes)

    def _stop(self, folder: Path) -> None:
        processes = recorded(folder / "processes.json")
        supervisor = processes.get("supervisor")
        if supervisor is not None:
            supervisor.stop(gentle=True, limit_s=4)
        for role in ("supervisor", "keeper", "init"):
            left = processes.get(role)
            if left is not None and not left.stop(gentle=False):
                raise FleetError(f"process {left.pid} of lab node {folder.name} does not end", slug="lab-stuck")
        (folder / "processes.json").unlink(missing_ok=True)

    def _clean_dead(self) -> None:
        """Kill what is left of nodes whose supervisor is gone, and drop half-made folders."""
        for folder in self._folders():
            supervisor = recorded(folder / "processes.json").get("supervisor")
            if supervisor is None or not supervisor.alive:
                self._stop(folder)
            if not (folder / "node.json").is_file():
                shutil.rmtree(folder, ignore_errors=True)

    # --- looking and poking -------------------------------------------------------------------------------------------

    def status(self) -> list[NodeStatus]:
        """Every node as it is now; [] when no lab is up."""
        return [status(folder) for folder in self._folders() if (folder / "node.json").is_file()]

    def phase(self, name: str) -> str:
        """What one node is now: see `NodeStatus`."""
        return phase(self._node(name))

    def state(self, name: str) -> Files:
        """The node's state and log files, readable and changeable from here."""
        folder = self._known(name)
        return Files(folder / "state", folder / "log")

    def faults(self, vendor: str) -> dict[str, str]:
        """Every fault a node of that vendor can have: name -> what it does."""
        out = {name: row["says"] for name, row in _own_faults().items()}
        out.update({name: row["says"] for name, row in packages.faults(vendor, self.vendor_path).items()})
        return out

    def own_faults(self) -> list[str]:
        """The faults that the lab itself brings, for every node."""
        return list(_own_faults())

    def fault(self, name: str, fault: str, on: bool = True) -> None:
        """Switch a fault of a node on or off. `fault` may carry a value: `xid=79`."""
        folder = self._known(name)
        vendor = json.loads((folder / "node.json").read_text())["vendor"]
        plain, _, value = fault.partition("=")
        known = self.faults(vendor)
        if plain not in known:
            raise NotFound(
                f"no fault {plain!r} for {vendor} nodes", hint=f"fleet lab fault --list {name}", slug="unknown-fault"
            )
        if self._is_guest(name) and plain in guest.NOT_FOR_GUESTS:
            raise NotFound(f"no fault {plain!r} for guests", where=name, slug="unknown-fault")
        files = self.state(name)
        already = any(str(entry).partition("=")[0] == plain for entry in files.read().get("faults", []))

        def change(state: dict[str, Any]) -> None:
            rest = [entry for entry in state.get("faults", []) if str(entry).partition("=")[0] != plain]
            state["faults"] = [*rest, fault] if on else rest

        files.update(change)
        verb = "on" if on else "off"
        if plain in _own_faults():
            if on == already and plain not in {"busy"}:
                return
            argv = ["python3", "/opt/fleet-lab/faults.py", plain, verb]
        else:
            program = packages.faults(vendor, self.vendor_path)[plain]["run"]
            argv = ["python3", f"/opt/fleet-lab/{vendor}/{program}", plain, verb, value] if program else []
        files.effect("fault", fault=fault, on=on)
        if argv and self.phase(name) != "off":
            done = self.run(name, argv)
            if done.returncode:
                raise FleetError(
                    f"fault {fault} of {name} cannot be switched {verb}",
                    cause=done.stdout.decode(errors="replace").strip()[-400:],
                    slug="lab-fault",
                )

    def run(self, name: str, argv: Sequence[str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run a program in the node as root, by its namespaces and not by ssh; output and errors together.

        A guest has no other door than ssh.
        """
        if self._is_guest(name):
            return guest.run(self.ssh_command(name, user="root"), argv, stdin)
        init = self._init(name)
        env = [f"{key}={value}" for key, value in ENV.items()]
        enter = ["nsenter", "-t", str(init.pid), "-m", "-u", "-i", "-p", "-r", "-w", "--", "/usr/bin/env", "-i", *env]
        return subprocess.run(
            [*enter, *argv], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )

    def ssh_command(self, name: str, argv: Sequence[str] = (), user: str = "") -> list[str]:
        """The ssh command line to a node with the lab's own key and known_hosts."""
        node = json.loads((self._known(name) / "node.json").read_text())
        return [
            "ssh", "-i", str(self.folder / "ssh/id_ed25519"), "-p", str(node["port"]),
            "-o", "IdentitiesOnly=yes", "-o", f"UserKnownHostsFile={self.folder / 'ssh/known_hosts'}",
            "-o", "StrictHostKeyChecking=yes", "-o", "GlobalKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR",
            f"{user or node['user']}@{node['address']}", *argv,
        ]  # fmt: skip

    def _is_guest(self, name: str) -> bool:
        return bool(json.loads((self._known(name) / "node.json").read_text()).get("guest"))

    def _init(self, name: str) -> Process:
        init = recorded(self._known(name) / "processes.json").get("init")
        if init is None or not init.alive:
            raise FleetError(f"lab node {name} is not running", hint=f"fleet lab power {name} on", slug="lab-node-down")
        return init

    def _node(self, name: str) -> Path:
        return self.folder / "nodes" / name

    def _known(self, name: str) -> Path:
        if not (self._node(name) / "node.json").is_file():
            raise NotFound(f"the lab has no node {name!r}", hint="fleet lab status", slug="unknown-node")
        return self._node(name)

    def _folders(self) -> list[Path]:
        nodes = self.folder / "nodes"
        return sorted(path for path in nodes.iterdir() if path.is_dir()) if nodes.is_dir() else []

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Locked(
                    "another fleet lab command works on this lab", where=str(self.folder), slug="lab-locked"
                ) from None
            yield


def _free(node: LabNode) -> None:
    """FleetError when something else listens where this node's sshd would."""
    with socket.socket() as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind((node.address, node.port))
            door.listen(1)
        except OSError as error:
            raise FleetError(
                f"{node.address}:{node.port} of lab node {node.name} is taken",
                cause=f"another lab or program listens there: {error.strerror}",
                hint="take the other lab down, or give this one another `network` in its spec",
                slug="lab-node-down",
            ) from error


def _own_faults() -> dict[str, dict[str, str]]:
    loaded: dict[str, dict[str, str]] = json.loads((NODE / "faults.json").read_text())
    return loaded
