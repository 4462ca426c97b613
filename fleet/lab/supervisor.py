"""The one process on the host behind a lab node: boots it, reboots it, and gives or takes its power.

`python -m fleet.lab.supervisor FOLDER` puts itself in the background and records its pid and start time. The node's
processes are its children, in a PID namespace or a QEMU guest, and die with it, even by SIGKILL. It reads the folder's
`node.json`, follows `wish.json` (on, cycle count, seconds off) when SIGUSR1 comes, and writes `status.json`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from fleet.lab.guest import Guest
from fleet.lab.namespace import ENV, Rootfs, die_with_parent, proc_files, spawn
from fleet.lab.node.labnode import Files
from fleet.lab.process import Process, record, recorded, this

WATCHED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1}
REBOOT, POWEROFF = 3, 0
DOWN_S = 1.0  # between the end of one kernel and the next one's first process
SILENT_S = 10.0  # how long the end of a node whose power is taken is waited for
CRASHES = 5  # in a row without a minute of life: the node is given up


class Machine(Protocol):
    """What a node is made of: what its supervisor turns on."""

    def power_on(self, cause: str, change: Callable[[dict[str, Any]], None]) -> str:
        """Before a boot: apply `change` to the node's state; returns a name of this boot for the log."""

    def live(self, cause: str, started: Callable[[int], None]) -> int:
        """In a child process of its own: boot, and live until the node reboots or powers off; `started` is told the
        pid of what must end with the node. Returns REBOOT or POWEROFF, else it crashed."""


class Namespaces:
    """A node in namespaces of the host, on an OverlayFS root."""

    def __init__(self, folder: Path, node: dict[str, Any]) -> None:
        self.folder, self.node = folder, node
        self.files = Files(folder / "state", folder / "log")
        self.boot_id = ""

    def power_on(self, cause: str, change: Callable[[dict[str, Any]], None]) -> str:
        """Each boot has an id of its own."""
        del cause
        self.boot_id = str(uuid.uuid4())

        def fresh(state: dict[str, Any]) -> None:
            change(state)
            state["boot_id"] = self.boot_id

        self.files.update(fresh)
        return self.boot_id

    def live(self, cause: str, started: Callable[[int], None]) -> int:
        """Makes the namespaces, waits for the node's process 1 and passes its exit status on."""
        node = self.node
        root = Rootfs(
            mountpoint=self.folder / "root",
            lowers=[Path(path) for path in node["lowers"]],
            upper=self.folder / "upper",
            work=self.folder / "work",
            hostname=node["name"],
            binds={
                "/opt/fleet-lab": Path(node["opt"]),
                "/var/lib/fleet-lab": self.folder / "state",
                "/var/log/fleet-lab": self.folder / "log",
            },
            read_only=frozenset({"/opt/fleet-lab"}),
            files=proc_files(node["kernel"], self.boot_id),
        )
        argv = ["/usr/bin/python3", "/opt/fleet-lab/init.py", cause, node["address"], str(node["port"])]
        return spawn(root, argv, ENV, started)


class Supervisor:
    """State of one node's power."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        node: dict[str, Any] = json.loads((folder / "node.json").read_text())
        self.machine: Machine = Guest(folder, node) if node.get("guest") else Namespaces(folder, node)
        self.files = Files(folder / "state", folder / "log")
        self.cycles = int(self.wish().get("cycles", 0))
        self.me = this(os.getpid())

    def wish(self) -> dict[str, Any]:
        try:
            loaded: dict[str, Any] = json.loads((self.folder / "wish.json").read_text())
            return loaded
        except (OSError, ValueError):
            return {"on": True, "cycles": 0}

    def say(self, phase: str) -> None:
        fresh = self.folder / "status.new"
        fresh.write_text(json.dumps({"phase": phase, "since": time.time()}))
        fresh.replace(self.folder / "status.json")

    def run(self) -> None:
        """Until SIGTERM."""
        cause, crashes = "reboot", 0
        while True:
            if not self.wish()["on"]:
                self.say("off")
                self._sleep_until_wish()
                cause = "power_cycle"
                continue
            began = time.monotonic()
            end = self._boot(cause)
            crashes = crashes + 1 if end == "crashed" and time.monotonic() - began < 60 else 0
            cause = "power_cycle" if end in {"cut", "poweroff"} else "reboot"
            if end == "poweroff":
                self._off_by_itself()
            elif end == "reboot" and self._fault("reboot-hangs"):
                self.say("hung")
                self._sleep_until_wish()
                cause = "power_cycle"
            elif crashes >= CRASHES:
                self.say("failed")
                self._sleep_until_wish()
                crashes = 0
            else:
                self.say("booting" if self.wish()["on"] else "off")
                off = min(float(self.wish().get("off_seconds", 0)), 3.0) if end == "cut" else 0.0
                self._pause(DOWN_S + off)

    def _fault(self, name: str) -> bool:
        return name in self.files.read().get("faults", [])

    def _off_by_itself(self) -> None:
        wish = {**self.wish(), "on": False}
        (self.folder / "wish.json").write_text(json.dumps(wish))

    def _boot(self, cause: str) -> str:
        """One life of the node. Returns reboot, poweroff, crashed, or cut (the power was taken)."""
        self.say("booting")

        def fresh(state: dict[str, Any]) -> None:
            state.update(boots=int(state.get("boots", 0)) + 1, booted_at=time.time())
            state.update(modules={}, holders=[])
            for unit in state.get("units", {}).values():
                unit.update(active="inactive", pid=0)
            if cause == "power_cycle":
                state["power_cycles"] = int(state.get("power_cycles", 0)) + 1
                state["off_seconds"] = float(self.wish().get("off_seconds", 0))

        boot = self.machine.power_on(cause, fresh)
        (self.folder / "state/ready").unlink(missing_ok=True)
        keeper = os.fork()
        if keeper == 0:
            self._keep(cause)
        started = this(keeper)
        while True:
            got = signal.sigtimedwait(WATCHED, 5)
            number = got.si_signo if got else 0
            pid, status = os.waitpid(keeper, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                sys.stderr.write(f"{time.strftime('%H:%M:%S')} boot {boot} ended with {code}\n")
                sys.stderr.flush()
                return {REBOOT: "reboot", POWEROFF: "poweroff"}.get(code, "crashed")
            if number == signal.SIGTERM:
                self._cut(started)
                self.say("down")
                sys.exit(0)
            wish = self.wish()
            if not wish["on"] or int(wish.get("cycles", 0)) > self.cycles:
                self.cycles = int(wish.get("cycles", 0))
                self._cut(started)
                os.waitpid(keeper, 0)
                self._silent()
                return "cut"
            self.say("up" if (self.folder / "state/ready").exists() else "booting")

    def _cut(self, keeper: Process | None) -> None:
        if keeper is not None:
            keeper.signal(signal.SIGKILL)

    def _silent(self) -> None:
        """Wait until nothing of the node is left. Its init dies with the keeper, yet a moment after it."""
        init, end = recorded(self.folder / "processes.json").get("init"), time.monotonic() + SILENT_S
        while init is not None and init.alive and time.monotonic() < end:
            time.sleep(0.01)

    def _keep(self, cause: str) -> None:
        """In a child: the node's life, whose end is this process's exit status."""
        die_with_parent()
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        me = this(os.getpid())

        def started(pid: int) -> None:
            processes = {"supervisor": self.me, "keeper": me, "init": this(pid)}
            record(self.folder / "processes.json", {role: one for role, one in processes.items() if one})

        code = 125
        try:
            code = self.machine.live(cause, started)
        except BaseException as error:
            sys.stderr.write(f"{error}\n")
            sys.stderr.flush()
        os._exit(code if code >= 0 else 126)

    def _sleep_until_wish(self) -> None:
        """Until the wish changes: SIGUSR1 with power on or one more cycle; SIGTERM ends the supervisor."""
        while True:
            got = signal.sigtimedwait(WATCHED, 60)
            if got and got.si_signo == signal.SIGTERM:
                self.say("down")
                sys.exit(0)
            wish = self.wish()
            more = int(wish.get("cycles", 0)) > self.cycles
            if got and got.si_signo == signal.SIGUSR1 and (wish["on"] or more):
                self.cycles = int(wish.get("cycles", 0))
                return

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            got = signal.sigtimedwait({signal.SIGTERM}, left)
            if got:
                self.say("down")
                sys.exit(0)


def main(argv: list[str]) -> None:
    """Go into the background, then supervise the node of that folder."""
    folder = Path(argv[0]).resolve()
    if os.fork():
        os._exit(0)
    os.setsid()
    os.chdir("/")
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    supervisor = Supervisor(folder)
    if supervisor.me is not None:
        record(folder / "processes.json", {"supervisor": supervisor.me})
    supervisor.run()


if __name__ == "__main__":
    main(sys.argv[1:])
