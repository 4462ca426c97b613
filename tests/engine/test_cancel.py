"""Pause, abort, rollback and kill at each state of a node, and in the midst of each of its steps; then on to the end.

The full grid is ticks on SQLite in this process; real controllers, on every pair of engine and database, have a part.
What was done is counted from the nodes' log: nothing lost, nothing doubled, whatever a person asks for and when.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from fleet import decision
from fleet.core.move import Request
from fleet.core.task import ENDS, State, touched
from fleet.evidence import EvidenceStore
from fleet.inventory.rollouts import Lease
from fleet.lab.simulated import hands
from fleet.upgrade import Upgrade
from tests.engine.counted import counted
from tests.engine.emptydb import empty_database
from tests.engine.hosted import Hosted, Making, until
from tests.engine.pairs import pairs
from tests.upgrade.site import Site

NAMES = ["n0", "n1", "n2"]  # n0 is the canary
LIMITS = {"fleet": "100%"}
STATES: list[State] = [
    "waiting", "cordoning", "draining", "staging", "installing", "rebooting", "validating", "uncordoning",
]  # fmt: skip
WHERE: dict[State, list[str]] = {  # a canary stands still in that state: at the last of these points, after the others
    "waiting": ["look"], "cordoning": ["cordon-before"], "draining": ["drain-before"], "staging": ["stage-before"],
    "installing": ["install-before"], "rebooting": ["reboot-before"], "validating": ["reboot-after", "look"],
    "uncordoning": ["uncordon-before"],
}  # fmt: skip
STEPS = ["preflight", "cordon", "drain", "stage", "stop", "install", "reboot", "uncordon"]


class Person:
    """A rollout of three nodes, driven tick by tick, with somebody who asks for things."""

    def __init__(self, folder: Path) -> None:
        self.at = ""
        self.then: Callable[[], None] = lambda: None
        empty_database(folder)
        self.site = Site(folder, self._point)
        self.nodes = {node.name: node for node in self.site.nodes(*NAMES)}
        self.plan = self.site.start(list(self.nodes.values()), limits=LIMITS)
        self.lease = self._take()

    def _point(self, point: str, node: str) -> None:
        if point == self.at and node == "n0":
            self.at = ""
            self.then()

    def _take(self) -> Lease:
        return self.site.store.acquire("r-1", "me", 600.0, 0.0, lambda _: True)

    def state(self, name: str = "n0") -> str:
        return self.site.states()[name]

    def until(self, state: State) -> None:
        """Tick until the canary owes that; it has begun by then."""
        for _ in range(60):
            self.site.upgrade.tick("r-1", self.lease, False)
            task = self.site.store.tasks("r-1")["n0"].task
            if task.begun and task.state == state:
                return
        raise AssertionError(f"never {state}: {self.site.states()}")

    def ask(self, what: Request) -> None:
        self.site.store.request("r-1", what)

    def rest(self) -> str:
        """Tick until nothing more happens by itself; the rollout's state."""
        for _ in range(200):
            if self.site.upgrade.tick("r-1", self.lease, False).resting:
                return self.site.store.rollout("r-1").state
        raise AssertionError(f"it does not come to rest: {self.site.states()}")

    def resume(self) -> str:
        decision.reopen(self.site.upgrade, "r-1", self.lease)
        return self.rest()

    def ended_well(self) -> None:
        assert self.site.states() == dict.fromkeys(NAMES, "done")
        self.right(set(NAMES))

    def right(self, done: set[str]) -> None:
        """By the log nothing was lost or doubled; every node that ended is in service, and is what its end says."""
        found = counted(self.site.fleet.log(), self.plan, self.nodes, LIMITS, done=done)
        assert not any(found.numbers.values()), found
        for name, state in self.site.states().items():
            assert state in ENDS
            node = self.site.fleet.state(name)
            version = "2.0" if name in done else "1.0"
            assert node["installed"] == node["loaded"] == {"driver": version}, (name, state)
            assert node.get("cordoned", "") == ""
            assert self.site.inventory.node(name).lifecycle == "in-service"
        assert self.site.store.claims() == {}


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    one = Person(tmp_path)
    yield one
    one.site.close()


def given_up(person: Person, end: str) -> None:
    """After abort or rollback: the canary went back as far as it had come, the others never began."""
    task = person.site.store.tasks("r-1")["n0"].task
    done = {"n0"} if task.state == "done" else set()
    assert person.site.store.rollout("r-1").state == end
    assert {person.state("n1"), person.state("n2")} == {"held"}
    person.right(done)


def stood(what: Request, *, last: bool) -> tuple[State, ...]:
    """How a canary may end that was asked in the midst of a step: a kill may come after it only when it is the last."""
    return ("done",) if what == "pause" else ("held", "done") if last else ("held",)


@pytest.mark.parametrize("state", STATES)
def test_a_pause_lets_the_node_end_and_begins_nothing(person: Person, state: State) -> None:
    person.until(state)
    person.ask("pause")
    assert person.rest() == "paused"
    assert (person.state(), person.state("n1"), person.state("n2")) == ("done", "waiting", "waiting")
    assert {effect.node for effect in person.site.fleet.log()} == {"n0"}
    assert person.resume() == "done"
    person.ended_well()


@pytest.mark.parametrize("state", STATES)
def test_an_abort_takes_the_node_back_as_far_as_it_came(person: Person, state: State) -> None:
    person.until(state)
    task = person.site.store.tasks("r-1")["n0"].task
    changed = touched(person.plan.groups[task.group], task, begun=False)
    person.ask("abort")
    person.rest()
    assert person.state() == ("done" if state == "uncordoning" else "rolled-back" if changed else "held")
    given_up(person, "aborted")


@pytest.mark.parametrize("state", STATES)
def test_a_kill_leaves_the_node_where_it_stands(person: Person, state: State) -> None:
    person.until(state)
    before = person.site.fleet.log()
    person.ask("kill")
    assert person.rest() == "paused"
    task = person.site.store.tasks("r-1")["n0"].task
    assert task.state == "held" and task.reason == f"ambiguous: killed while {state}"
    assert person.site.fleet.log() == before
    assert "n0" in person.site.store.claims()  # its place is kept: nobody knows how it is
    assert person.resume() == "done"
    person.ended_well()


@pytest.mark.parametrize("state", STATES)
def test_what_was_killed_can_be_taken_back(person: Person, state: State) -> None:
    person.until(state)
    person.ask("kill")
    assert person.rest() == "paused"
    person.ask("abort")
    person.rest()
    assert person.state() in ("held", "rolled-back")
    given_up(person, "aborted")


@pytest.mark.parametrize("state", STATES)
def test_a_rollback_takes_everything_back(person: Person, state: State) -> None:
    person.until(state)
    decision.roll_back(person.site.upgrade, "r-1", person.lease)
    person.rest()
    states = person.site.states()
    assert states.pop("n0") in ("held", "rolled-back") and set(states.values()) == {"held"}
    assert person.site.fleet.state("n0")["loaded"] == {"driver": "1.0"}
    assert person.site.fleet.state("n0").get("cordoned", "") == ""
    assert person.site.store.claims() == {}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("what", ["pause", "abort", "kill"])
def test_asked_in_the_midst_of_a_step(person: Person, step: str, what: Request) -> None:
    """The request is written by another process while the step is under way."""
    person.at, person.then = f"{step}-before", lambda: person.ask(what)
    end = person.rest()
    assert person.at == "", "the step was never met"
    if what == "abort":
        given_up(person, "aborted")
        return
    assert end == "paused"
    assert person.state() in stood(what, last=step == "uncordon")
    assert (person.state("n1"), person.state("n2")) == ("waiting", "waiting")
    assert person.resume() == "done"
    person.ended_well()


def test_another_process_takes_up_what_was_killed(tmp_path: Path) -> None:
    one = Person(tmp_path)
    one.at, one.then = "install-after", lambda: one.ask("kill")
    assert one.rest() == "paused"
    assert one.state() == "held"
    one.site.close()
    other = Site(tmp_path)
    other.fleet.clock += 1000.0
    other.go_on()
    assert set(other.states().values()) == {"done"}
    found = counted(other.fleet.log(), one.plan, one.nodes, LIMITS)
    assert not any(found.numbers.values()), found
    other.close()


class Asked:
    """Rollouts of two nodes, one after another in one controller process, each asked for something at one place."""

    def __init__(self, host: Hosted) -> None:
        self.host = host
        self.number = 0
        self.canary, self.second = "", ""
        host.begin(["z0"], "r-last", limits=LIMITS, approve=("start",))  # unfinished, so that the process stays
        self.process = host.controller("c1")

    @property
    def rollout(self) -> str:
        return f"r-{self.number}"

    def ask(self, what: Request, state: State) -> None:
        """A new rollout whose canary is in that state, and in the midst of its step, when it is asked."""
        points = WHERE[state]
        self.number += 1
        self.canary, self.second = names = [f"a{self.number}", f"b{self.number}"]
        self.host.hold(self.canary, points[0])
        self.host.begin(names, self.rollout, limits=LIMITS)
        for point, following in pairwise([*points, ""]):
            self.host.until_held(self.canary, point)
            if following == "":
                assert self.state(self.canary) == state
                self.host.store.request(self.rollout, what)
            self.host.hold(self.canary, following)

    def state(self, name: str) -> str:
        return self.host.store.tasks(self.rollout)[name].task.state

    def until(self, state: str) -> None:
        try:
            until(lambda: self.host.store.rollout(self.rollout).state == state and self.free(), 60)
        except AssertionError:
            row = self.host.store.rollout(self.rollout)
            raise AssertionError((self.rollout, row, self.host.store.tasks(self.rollout))) from None

    def free(self) -> bool:
        lease = self.host.store.leases().get(self.rollout)
        return lease is None or not lease.owner

    def resume(self) -> None:
        store, host = self.host.store, self.host
        upgrade = Upgrade(store, host.inventory, hands(host.fleet), EvidenceStore(host.folder / "evidence"))
        lease = store.acquire(self.rollout, "a person", 30.0, store.clock(), lambda _: False)
        decision.reopen(upgrade, self.rollout, lease)
        store.drop(lease)
        upgrade.close()
        self.until("done")

    def right(self, done: set[str]) -> None:
        """By the nodes' own log: nothing lost or doubled, every node what its end says and in service."""
        plan = self.host.plans[self.rollout]
        log = [effect for effect in self.host.fleet.log() if effect.node in (self.canary, self.second)]
        found = counted(log, plan, self.host.nodes, LIMITS, done=done)
        assert not any(found.numbers.values()), found
        for name in (self.canary, self.second):
            node, version = self.host.fleet.state(name), "2.0" if name in done else "1.0"
            assert node["installed"] == node["loaded"] == {"driver": version}, (name, self.state(name))
            assert node.get("cordoned", "") == ""
        assert self.host.store.claims() == {}


@pytest.mark.parametrize(("engine", "database"), pairs())
def test_asked_of_a_controller_in_each_state(making: Making, engine: str, database: str) -> None:
    """On every pair, through a real controller, asked by another process while the canary's step stands still."""
    asked = Asked(making(engine, database))
    asks: list[Request] = ["pause", "abort", "kill"]
    for state in STATES:
        for what in asks:
            asked.ask(what, state)
            if what == "abort":
                asked.until("aborted")
                end = asked.state(asked.canary)
                assert end in ("done", "rolled-back", "held"), (state, end)
                assert asked.state(asked.second) == "held"
                asked.right({asked.canary} if end == "done" else set())
                continue
            asked.until("paused")
            assert asked.state(asked.canary) in stood(what, last=state == "uncordoning"), (state, what)
            assert asked.state(asked.second) == "waiting"
            asked.resume()
            asked.right({asked.canary, asked.second})
    asked.process.send_signal(signal.SIGTERM)
    status, said = asked.host.ended(asked.process)
    assert status == 0, said
    assert asked.number == len(STATES) * len(asks)
