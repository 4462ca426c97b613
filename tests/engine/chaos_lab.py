"""Random kills over eight lab nodes: the command and controllers, alone or with their playbooks, over three rollouts.

The first goes there and, since every node is made to fail its validation, back again; the second goes there; the third
takes one node to an older driver. What was done is counted in the nodes, where each installation, removal, flash and
boot writes a line of its own; how many were out at once, from the stored attempts.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from fleet.core.budget import Limit
from fleet.core.model import Plan
from fleet.core.task import Direction, State, path
from fleet.inventory.rollouts import Attempt
from tests.lab.rehearsal import Begun, Rehearsal, default_spec, rehearsal

NETWORK = "127.113.4"
OLDER = "580.95.05"  # a driver of nv-a before the newest
NAMES = ("nv-a", "nv-b", "as-a", "as-b", "mx-a", "mx-b", "br-a", "br-b")
LIMIT = "75%"
OPTIONS = ("--max-failures", "100%", "--max-unavailable", LIMIT, "-y")
NEWEST = ("--strategy", "newest", *OPTIONS)
LOOK_S = 0.05
Effects = dict[str, Counter[tuple[str, ...]]]


class Chaos:
    """Kills what drives the newest rollout of a lab, and counts."""

    def __init__(self, site: Rehearsal, dice: random.Random) -> None:
        self.site = site
        self.dice = dice
        self.kills: Counter[str] = Counter()

    def carry(self, words: Sequence[str], kills: int, ok: Sequence[int]) -> str:
        """Carry out one `fleet upgrade`, killing its driver so many times if it lives that long; its id."""
        known = self._ids()
        mine: list[str] = []
        while self.kills.total() < kills and not self._ended(mine):
            by_controller = bool(mine) and self.dice.random() < 0.4
            if by_controller:
                begun = self.site.begin("controller", "run", "--name", "c1")
            else:
                begun = self.site.begin(*words)
            mine = self._wait_for_work(begun, known, mine)
            self._wait_a_while(begun, mine)
            if begun.process.poll() is not None:
                assert begun.process.returncode in ok, str(begun.ran())
                continue
            self._kill(begun, "controller" if by_controller else "command")
        if not self._ended(mine):
            self.site.fleet(*words, ok=ok)
        (rollout,) = set(self._ids()) - set(known)
        assert self._ended([rollout])
        return rollout

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

    def _wait_a_while(self, begun: Begun, mine: Sequence[str]) -> None:
        """A random time; or, as often, until so many more steps have begun or ended."""
        end = time.monotonic() + self.dice.uniform(0.2, 9.0)
        more = self.dice.randint(1, 6) if self.dice.random() < 0.5 and mine else 0
        with self.site.store() as store:
            before = self._marks(store.attempts(mine[0])) if more else 0
            while begun.process.poll() is None and time.monotonic() < end:
                if more and self._marks(store.attempts(mine[0])) - before >= more:
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


def effects(site: Rehearsal) -> Effects:
    """What was done to each node since its lab came up."""
    return {name: site.effects(name) for name in NAMES}


def boots(site: Rehearsal) -> dict[str, int]:
    return {name: int(site.lab.state(name).read()["boots"]) for name in NAMES}


def plan_of(site: Rehearsal, rollout: str) -> Plan:
    with site.store() as store:
        return store.plan(store.rollout(rollout).plan)


def states(site: Rehearsal, rollout: str) -> dict[str, str]:
    with site.store() as store:
        return {name: stored.task.state for name, stored in store.tasks(rollout).items()}


def reboots(plan: Plan, name: str, *, back: bool) -> int:
    """How often the node starts on that way."""
    group = next(group for group in plan.groups if name in group.nodes)
    ways = [*path(group, "forward"), *(path(group, "back") if back else ())]
    return sum(step.phase == "reboot" for step in ways)


def wrong(site: Rehearsal, plan: Plan, before: Effects, started: Mapping[str, int], *, back: bool) -> Counter[str]:
    """Changes lost and doubled in one rollout, counted in the nodes."""
    found: Counter[str] = Counter(lost=0, doubled=0)
    for name in [n for wave in plan.waves for n in wave]:
        did = site.effects(name) - before[name]
        if any(times > 1 for times in did.values()):
            print(f"doubled: {name}: {did}", flush=True)
        found["doubled"] += sum(times - 1 for times in did.values())
        group = next(group for group in plan.groups if name in group.nodes)
        ways: tuple[Direction, ...] = ("forward", "back") if back else ("forward",)
        for steps in (path(group, way) for way in ways):
            for change in [c for s in steps if s.phase == "install" for c in s.changes if c.component == "driver"]:
                if change.new is not None and not did["install", "driver", change.new]:
                    print(f"lost: {name}: driver {change.new} in {did}", flush=True)
                    found["lost"] += 1
        extra = boots(site)[name] - started[name] - reboots(plan, name, back=back)
        if extra:
            print(f"boots: {name}: {extra:+}", flush=True)
        found["doubled" if extra > 0 else "lost"] += abs(extra)
    return found


def over_budget(site: Rehearsal, rollout: str) -> int:
    """Steps that began while more nodes than allowed had begun and not ended."""
    with site.store() as store:
        attempts = store.attempts(rollout)
    first = {name: min(a.began for a in attempts if a.node == name) for name in {a.node for a in attempts}}
    last = {name: max(a.ended for a in attempts if a.node == name) for name in first}
    allowed = Limit.parse(LIMIT).of(len(NAMES))
    return sum(sum(first[o] <= at < last[o] for o in first) > allowed for at in first.values())


class Tour:
    """The rollouts of one lab, one after the other, and what went wrong in them."""

    def __init__(self, site: Rehearsal, dice: random.Random) -> None:
        self.site = site
        self.chaos = Chaos(site, dice)
        self.total: Counter[str] = Counter()
        self.rollouts = 0

    def turn(self, words: Sequence[str], upto: int, ok: Sequence[int], end: State) -> None:
        """One rollout until `upto` kills in all; every node of it must end in that state."""
        before, started = effects(self.site), boots(self.site)
        began, had = time.monotonic(), self.chaos.kills.total()
        rollout = self.chaos.carry(words, upto, ok)
        plan = plan_of(self.site, rollout)
        names = {name for wave in plan.waves for name in wave}
        assert states(self.site, rollout) == dict.fromkeys(names, end), states(self.site, rollout)
        found = wrong(self.site, plan, before, started, back=end == "rolled-back")
        found["over_budget"] = over_budget(self.site, rollout)
        self.total.update(found)
        self.site.evidence_is_whole(rollout)
        took, died = round(time.monotonic() - began), self.chaos.kills.total() - had
        print(f"lab: {len(names)} nodes {end}, {died} kills, {took} s, {dict(found)}", flush=True)
        self.rollouts += 1


def killed(kills: int, dice: random.Random) -> dict[str, object]:
    """Bring a lab up, carry out the three rollouts, kill what drives them so many times in all."""
    if under := os.environ.get("FLEET_LAB_DIR"):
        Path(under).mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="fleet-chaos-lab-", dir=os.environ.get("FLEET_LAB_DIR")) as folder,
        rehearsal(Path(folder) / "site", default_spec(NETWORK, NAMES)) as site,
    ):
        tour = Tour(site, dice)
        first = site.current(*NAMES)
        for name in NAMES:
            site.lab.fault(name, "validation-fail")
        tour.turn(("upgrade", "@all", *NEWEST), kills * 3 // 5, (0, 6), "rolled-back")
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
    died = dict(tour.chaos.kills)
    return {"kills": sum(died.values()), "of": died, "rollouts": tour.rollouts, "nodes": len(NAMES),
            "wrong": dict(tour.total)}  # fmt: skip
