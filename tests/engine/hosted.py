"""A controller over a simulated site, as a process of its own that tests stop, kill and start again.

`python -m tests.engine.hosted FOLDER URL ENGINE NAME [POINT N [SIGNAL]]`: ENGINE is `dbos` or `leases`; at the Nth time
that POINT is reached (what `tests.upgrade.killed` and the simulated fleet report) the process gets SIGNAL (SIGKILL).
While the file `hold/NODE` of FOLDER names the point that this node comes to, its step stands still there; `held/NODE`
says that it does. FLEET_TEST_PROTOCOL stands for another release. FLEET_TEST_CLOCK names a file with the seconds that
the clock of this host is ahead, which may change at any moment. It ends by SIGTERM, or when no rollout is unfinished.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleet import decision
from fleet.cli.driving import steady
from fleet.controller import Controller, seated
from fleet.core.errors import FleetError
from fleet.core.model import Node, Plan
from fleet.engine import PROTOCOL, Engine
from fleet.engine.leases import LeaseEngine
from fleet.evidence import EvidenceStore
from fleet.inventory import open_inventory
from fleet.inventory.rollouts import Rollouts
from fleet.lab.simulated import SimFleet, hands
from fleet.probe import Probed
from fleet.upgrade import Upgrade
from tests.engine.counted import Counts, counted
from tests.upgrade.killed import Death, MortalRollouts
from tests.upgrade.simfleet import plan

Making = Callable[[str, str], "Hosted"]
ROOT = Path(__file__).parents[2]
TTL_S = 4.0


class Hosted:
    """What the controllers of one test share: the simulated nodes, the database, and the processes."""

    def __init__(self, folder: Path, url: str, engine: str) -> None:
        self.folder = folder
        self.url = url
        self.engine = engine
        self.fleet = SimFleet(folder / "fleet")
        self.inventory = open_inventory(url)
        self.store = Rollouts(self.inventory.database)
        self.processes: list[subprocess.Popen[str]] = []
        self.plans: dict[str, Plan] = {}
        self.nodes: dict[str, Node] = {}
        self.limits: dict[str, str] = {}

    def begin(
        self,
        names: list[str],
        rollout: str = "r-1",
        limits: dict[str, str] | None = None,
        racks: int = 1,
        faults: Sequence[str] = (),
        **policy: Any,
    ) -> Plan:
        """A stored rollout of new nodes, driven by nobody. They stand in so many racks, by turns."""
        nodes = [
            replace(self.fleet.add(name, faults=list(faults)), rack=f"k{number % racks}")
            for number, name in enumerate(names)
        ]
        self.nodes |= {node.name: node for node in nodes}
        self.limits = limits or {"fleet": "50%"}
        self.inventory.add(nodes)
        self.inventory.record([self.fleet.facts(name) for name in names])
        made = plan(self.fleet, nodes, limits=self.limits, **{"max_failures": "50%", **policy})
        upgrade = Upgrade(self.store, self.inventory, hands(self.fleet), EvidenceStore(self.folder / "evidence"))
        decision.start(upgrade, rollout, made, "command", "sha256:m")
        upgrade.close()
        self.plans[rollout] = made
        return made

    def controller(
        self, name: str, *death: str, protocol: str = PROTOCOL, clock: Path | None = None
    ) -> subprocess.Popen[str]:
        """Another process that hosts the engine. `clock` is a file with the seconds that its host's clock is ahead."""
        argv = [sys.executable, "-m", "tests.engine.hosted", str(self.folder), self.url, self.engine, name, *death]
        env = {**os.environ, "FLEET_TEST_PROTOCOL": protocol}
        if clock is not None:
            env["FLEET_TEST_CLOCK"] = str(clock)
        process = subprocess.Popen(
            argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )  # fmt: skip
        self.processes.append(process)
        return process

    def ended(self, process: subprocess.Popen[str], limit_s: float = 180) -> tuple[int, str]:
        """Its exit status and all it said; with the place of each of its threads, when it does not end in time."""
        try:
            out, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGUSR1)
            time.sleep(1.0)
            process.kill()
            out, _ = process.communicate()
            raise AssertionError(f"{process.args!r} did not end within {limit_s} s:\n{out}") from None
        return process.returncode, out

    def until_stopped(self, process: subprocess.Popen[str], limit_s: float = 180) -> None:
        """Wait until SIGSTOP has been obeyed."""
        end = time.monotonic() + limit_s
        while not Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].startswith(" T"):
            assert time.monotonic() < end, "it was never stopped"
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.05)

    def until(self, what: Callable[[], bool], limit_s: float = 180) -> None:
        """Wait until something is so, or until the newest process has ended: then say what it said."""
        process = self.processes[-1]
        until(lambda: what() or process.poll() is not None, limit_s)
        assert process.poll() is None, process.communicate()[0]

    def hold(self, node: str, point: str) -> None:
        """From now on that node's step stands still at that point; "" lets it go on."""
        file = self.folder / "hold" / node
        file.parent.mkdir(exist_ok=True)
        (self.folder / "held").mkdir(exist_ok=True)
        part = file.with_name(f".{node}")
        part.write_text(point)
        part.replace(file)

    def until_held(self, node: str, point: str) -> None:
        """Wait until it does."""
        file = self.folder / "held" / f"{node}.{point}"
        self.until(file.exists)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()
        self.inventory.close()

    def proven(self, names: list[str], rollout: str = "r-1") -> Counts:
        """Every node done; nothing lost, doubled, superseded, beyond a budget or out of its wave, by the nodes' log."""
        counts = counted(self.fleet.log(), self.plans[rollout], self.nodes, self.limits)
        assert not any(counts.numbers.values()), counts
        row = self.store.rollout(rollout)
        assert row.state == "done", (row.state, row.reason)
        states = {name: stored.task.state for name, stored in self.store.tasks(rollout).items()}
        assert states == dict.fromkeys(names, "done")
        for name in names:
            state = self.fleet.state(name)
            assert state["installed"] == state["loaded"] == {"driver": "2.0"}
            assert state["boots"] == 1 and state["cordoned"] == ""
        assert self.store.claims() == {}
        return counts


def until(what: Callable[[], bool], limit_s: float = 180) -> None:
    """Wait until something is so."""
    end = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.05)


class Hold:
    """Where a node's step stands still, as `Hosted.hold` says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, point: str, node: str) -> None:
        file = self.folder / "hold" / node
        if node and file.exists() and file.read_text() == point:
            (self.folder / "held" / f"{node}.{point}").touch()
            while file.read_text() == point:
                time.sleep(0.02)


class Wall:
    """The time of day of a host whose clock is set by whoever writes the file."""

    def __init__(self, file: str) -> None:
        self.file = Path(file) if file else None

    def __call__(self) -> float:
        return time.time() + (float(self.file.read_text()) if self.file else 0.0)


class ClockedRollouts(MortalRollouts):
    """A store that goes by such a clock where it would go by the host's."""

    wall: Wall

    def clock(self) -> float:
        return self.wall() if self.database.dialect == "sqlite" else super().clock()


def main(folder: str, url: str, kind: str, name: str, point: str = "", number: str = "0", how: str = "SIGKILL") -> None:
    """Host the engine until SIGTERM or the end of all rollouts."""
    faulthandler.register(signal.SIGUSR1, sys.stdout, all_threads=True)
    protocol = os.environ["FLEET_TEST_PROTOCOL"]
    death = Death(point, int(number), signal.Signals[how])
    hold = Hold(Path(folder))

    def reached(point: str, node: str) -> None:
        death(point, node)
        hold(point, node)

    fleet = SimFleet(Path(folder) / "fleet", reached)
    inventory = open_inventory(url)
    store = ClockedRollouts(inventory.database)
    store.death, store.wall = death, Wall(os.environ.get("FLEET_TEST_CLOCK", ""))
    evidence = EvidenceStore(Path(folder) / "evidence")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def nap(seconds: float) -> None:
        fleet.clock += seconds  # of the nodes
        time.sleep(0.005)

    def look(nodes: Sequence[Node]) -> Iterator[Probed]:
        for node in nodes:
            hold("look", node.name)
        return fleet.look(nodes)

    doors = replace(hands(fleet, nap, steady(store.clock)), look=look)
    upgrade = Upgrade(
        store, inventory, doors, evidence, origin="lab", operator="tester", parallel=2, poll_s=0.05
    )  # fmt: skip
    with seated(store, name, stop, single=url.startswith("sqlite"), protocol=protocol, ttl_s=TTL_S):
        engine: Engine
        if kind == "dbos":
            from fleet.engine.durable import DurableEngine, engine_url, shut

            engine = DurableEngine(
                store, upgrade.tick, url=engine_url(url), executor=name, ttl_s=TTL_S, stop=stop, protocol=protocol
            )
        else:
            engine = LeaseEngine(store, upgrade.tick, ttl_s=TTL_S, stop=stop)
        controller = Controller(store, engine, stop, round_s=0.3, say=lambda text: print(text, flush=True))

        def watch() -> None:
            while not stop.wait(0.3):
                try:
                    if not store.rollouts(unfinished=True):
                        stop.set()
                except FleetError:  # the database is away
                    continue

        threading.Thread(target=watch, daemon=True).start()
        controller.run()
        if kind == "dbos":
            shut()
    upgrade.close()
    inventory.close()


if __name__ == "__main__":
    status = 0
    try:
        main(*sys.argv[1:])
    except FleetError as error:
        print(f"error: {error.slug}: {error.what} ({error.cause})", flush=True)
        status = error.exit_code
    if sys.argv[3] == "dbos":
        from fleet.engine.durable import leave

        leave(status)
    sys.exit(status)
