"""Random kills over eight lab nodes: the command and controllers, alone or with their playbooks, over three rollouts.

On PostgreSQL, where another controller may take over from one that is only silent, some are stopped first and go on
beside their successor for a moment before they are killed.

The first goes there and, since every node is made to fail its validation, back again; the second goes there; the third
takes one node to an older driver. What went wrong is counted from the logs of the nodes, where each installation,
removal, flash and boot writes a line of its own with its fence, and of the lab's scheduler (`counted_lab`).
"""

from __future__ import annotations

import os
import random
import shlex
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleet.core.model import Node, Plan
from fleet.core.task import State
from fleet.inventory.rollouts import Attempt
from fleet.lab.process import this
from fleet.lab.scheduler import Scheduler
from tests.engine.counted_lab import Deed, Fences, counted_lab, deeds
from tests.lab.rehearsal import Begun, Rehearsal, default_spec, rehearsal

NETWORK = "127.113.4"
OLDER = "580.95.05"  # a driver of nv-a before the newest
FIRST = ("nv-a", "nv-b", "as-a", "mx-a", "mx-b", "br-a")  # the canaries: of no two the same hardware
TWINS = {"as-c": "as-a", "br-c": "br-a"}  # another node of that class: later waves
NAMES = (*FIRST, *TWINS)
LIMIT = "75%"
OPTIONS = ("--max-failures", "100%", "--max-unavailable", LIMIT, "-y")
NEWEST = ("--strategy", "newest", *OPTIONS)
ALL_ILL = ("--ignore-canary", "--no-gate")  # go on, though every node of a wave fails
LOOK_S = 0.05
MARKS = 20  # beginnings and ends of steps of one node, about half of them: so far are kills spread over a rollout


def spec() -> dict[str, Any]:
    """Eight nodes that make more than one wave."""
    one = default_spec(NETWORK, FIRST)
    one["nodes"] |= {name: dict(one["nodes"][twin]) for name, twin in TWINS.items()}
    return one


class Chaos:
    """Kills what drives the newest rollout of a lab, and counts."""

    def __init__(self, site: Rehearsal, dice: random.Random) -> None:
        self.site = site
        self.dice = dice
        self.kills: Counter[str] = Counter()
        self.names = 0

    def carry(self, words: Sequence[str], kills: int, ok: Sequence[int]) -> str:
        """Carry out one `fleet upgrade`, killing its driver so many times if it lives that long; its id."""
        known = self._ids()
        mine: list[str] = []
        nodes = len(NAMES) if "@all" in words else 1
        spread = max(6, MARKS * nodes // max(1, kills - self.kills.total()))
        while self.kills.total() < kills and not self._ended(mine):
            by_controller = bool(mine) and self.dice.random() < 0.4
            if by_controller:
                begun = self._controller()
            else:
                begun = self.site.begin(*words)
            mine = self._wait_for_work(begun, known, mine)
            self._wait_a_while(begun, mine, spread)
            if begun.process.poll() is not None:
                assert begun.process.returncode in ok, str(begun.ran())
                continue
            if self._ended(mine):
                self._done_with(begun, by_controller)
                continue
            if self.site.database and mine and self.dice.random() < 0.4:
                begun, by_controller = self._superseded(begun, known, mine), True
                if self.kills.total() < kills:
                    self._wait_a_while(begun, mine, spread)
                if self.kills.total() >= kills or self._ended(mine):
                    self._done_with(begun, by_controller)
                    continue
            self._kill(begun, "controller" if by_controller else "command")
        if not self._ended(mine):
            self.site.fleet(*words, ok=ok)
        (rollout,) = set(self._ids()) - set(known)
        assert self._ended([rollout])
        return rollout

    @staticmethod
    def _done_with(begun: Begun, by_controller: bool) -> None:
        """A command ends by itself, a controller when it is told to."""
        if by_controller:
            begun.process.terminate()
        begun.process.wait(240)

    def _controller(self) -> Begun:
        """The one of the lab's file, or on a server one that shares its name with no living one."""
        self.names += 1
        return self.site.begin("controller", "run", "--name", f"c{self.names}" if self.site.database else "c1")

    def _superseded(self, begun: Begun, known: Sequence[str], mine: list[str]) -> Begun:
        """Stop the driver and its playbooks until another one drives, let them go on, and kill them; that other one."""
        held = [this(pid) for pid in (*self.site.playbooks(), begun.process.pid)]
        stopped = [process for process in held if process is not None]
        for process in stopped:
            process.signal(signal.SIGSTOP)
        other = self._controller()
        self._wait_for_work(other, known, mine)
        time.sleep(self.dice.uniform(0.0, 4.0))
        for process in stopped:
            process.signal(signal.SIGCONT)
        time.sleep(self.dice.uniform(0.0, 6.0))
        for process in stopped:
            process.signal(signal.SIGKILL)
        begun.process.wait()
        self.kills["superseded"] += 1
        return other

    def _ids(self) -> list[str]:
        with self.site.store() as store:
            return [row.id for row in store.rollouts()]

    def _ended(self, mine: Sequence[str]) -> bool:
        with self.site.store() as store:
            return bool(mine) and store.rollout(mine[0]).finished

    def _wait_for_work(self, begun: Begun, known: Sequence[str], mine: list[str]) -> list[str]:
        """Until the process drives the rollout; its id."""
        end = time.monotonic() + 240
        with self.site.store() as store:
            while time.monotonic() < end and begun.process.poll() is None:
                mine = mine or [row.id for row in store.rollouts() if row.id not in known]
                lease = store.leases().get(mine[0]) if mine else None
                if lease is not None and f":{begun.process.pid}:" in lease.owner:
                    return mine
                time.sleep(LOOK_S)
        return mine

    def _wait_a_while(self, begun: Begun, mine: Sequence[str], spread: int) -> None:
        """A random time; or, as often, until up to `spread` more steps have begun or ended."""
        more = self.dice.randint(1, spread) if self.dice.random() < 0.5 and mine else 0
        end = time.monotonic() + (240.0 if more else self.dice.uniform(0.2, 9.0))
        with self.site.store() as store:
            before = self._marks(store.attempts(mine[0])) if more else 0
            while begun.process.poll() is None and time.monotonic() < end:
                if more and self._marks(store.attempts(mine[0])) - before >= more:
                    return
                if mine and store.rollout(mine[0]).finished:
                    return
                time.sleep(LOOK_S)

    @staticmethod
    def _marks(attempts: Sequence[Attempt]) -> int:
        return len(attempts) + sum(attempt.state != "intent" for attempt in attempts)

    def _kill(self, begun: Begun, what: str) -> None:
        """The driver alone, or with the playbooks that work for it."""
        playbooks = self.site.playbooks() if self.dice.random() < 0.3 else []
        begun.kill()
        for pid in playbooks:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.kills[f"{what} and worker" if playbooks else what] += 1
        end = time.monotonic() + 15
        while self.site.playbooks():
            assert time.monotonic() < end, f"a playbook outlived its controller: {begun.words}"
            time.sleep(0.1)


def plan_of(site: Rehearsal, rollout: str) -> Plan:
    with site.store() as store:
        return store.plan(store.rollout(rollout).plan)


def states(site: Rehearsal, rollout: str) -> dict[str, str]:
    with site.store() as store:
        return {name: stored.task.state for name, stored in store.tasks(rollout).items()}


class Tour:
    """The rollouts of one lab, one after the other, and what went wrong in them."""

    def __init__(self, site: Rehearsal, dice: random.Random, scheduler: Scheduler, fences: Fences) -> None:
        self.site = site
        self.chaos = Chaos(site, dice)
        self.scheduler, self.fences = scheduler, fences
        self.total: Counter[str] = Counter()
        self.rollouts = self.effects = 0

    def log(self, since: int = 0) -> list[Deed]:
        """What was done since then, as nanoseconds since the machine's boot."""
        self.fences.look()
        return [deed for deed in deeds(self.site.lab, NAMES, self.scheduler, self.fences.log()) if deed.at >= since]

    def turn(self, words: Sequence[str], upto: int, ok: Sequence[int], end: State) -> None:
        """One rollout until `upto` kills in all; every node of it must end in that state."""
        began, since, had = time.monotonic(), time.clock_gettime_ns(time.CLOCK_BOOTTIME), self.chaos.kills.total()
        rollout = self.chaos.carry(words, upto, ok)
        plan = plan_of(self.site, rollout)
        assert len(plan.waves) > 1 or "@all" not in words, plan.waves
        names = {name for wave in plan.waves for name in wave}
        assert states(self.site, rollout) == dict.fromkeys(names, end), states(self.site, rollout)
        log = self.log(since)
        nodes = {name: Node(name, "") for name in NAMES}
        counts = counted_lab(log, plan, nodes, {"fleet": LIMIT}, back=end == "rolled-back")
        for field, sentences in vars(counts).items():
            for sentence in sentences:
                print(f"{field}: {sentence}", flush=True)
        self.total.update(counts.numbers)
        self.effects += len(log)
        self.site.evidence_is_whole(rollout)
        took, died = round(time.monotonic() - began), self.chaos.kills.total() - had
        waves = f"{len(names)} nodes in {len(plan.waves)} waves"
        print(f"lab: {waves} {end}, {died} kills, {took} s, {len(log)} effects, {counts.numbers}", flush=True)
        self.rollouts += 1


def killed(kills: int, dice: random.Random, database: str = "") -> dict[str, object]:
    """Bring a lab up, carry out the three rollouts, kill what drives them so many times in all.

    `database` is the URL of an empty one; default is a SQLite file.
    """
    if under := os.environ.get("FLEET_LAB_DIR"):
        Path(under).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fleet-chaos-lab-", dir=os.environ.get("FLEET_LAB_DIR")) as name:
        folder = Path(name)
        scheduler = Scheduler(folder / "scheduler.jsonl")
        command = shlex.join([sys.executable, "-m", "fleet.lab.scheduler", str(scheduler.file)])
        settings = {"FLEET_DRAIN_COMMAND": command, "FLEET_UNDRAIN_COMMAND": command}
        with (
            rehearsal(folder / "site", spec(), settings=settings, database=database) as site,
            Fences(folder / "fences.jsonl", site.lab, NAMES) as fences,
        ):
            tour = Tour(site, dice, scheduler, fences)
            _tour(tour, kills)
    died = dict(tour.chaos.kills)
    return {"kills": sum(died.values()), "of": died, "rollouts": tour.rollouts, "nodes": len(NAMES),
            "effects": tour.effects, "wrong": dict(tour.total)}  # fmt: skip


def _tour(tour: Tour, kills: int) -> None:
    """There and back, there, and one node to an older driver; nothing of it may be left, and nothing be wrong."""
    site = tour.site
    first = site.current(*NAMES)
    for name in NAMES:
        site.lab.fault(name, "validation-fail")
    tour.turn(("upgrade", "@all", *NEWEST, *ALL_ILL), kills * 3 // 5, (0, 6), "rolled-back")
    for name in NAMES:
        site.lab.fault(name, "validation-fail", on=False)
    assert site.current(*NAMES) == first
    tour.turn(("upgrade", "@all", *NEWEST), kills - kills // 8, (0,), "done")
    then = site.current(*NAMES)
    assert all(then[name] != first[name] for name in NAMES)
    tour.turn(("upgrade", "nv-a", "--to", f"driver=={OLDER}", *OPTIONS), kills, (0,), "done")
    assert site.current("nv-a")["nv-a"]["driver"] == OLDER
    assert all(site.runs_on(name) == [] for name in NAMES)
    left = list((site.lab.folder / "fleet/playbook").glob("run-*"))
    assert left == [], left
    assert not any(tour.total.values()), tour.total
