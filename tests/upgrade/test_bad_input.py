"""What a rollout does with bad input: each kind has its own reason, its own next action, and harms nothing.

A plan whose facts moved, a scheduler that cannot be asked, a drain that never ends, a node that comes back as another
machine, a budget that can never be met, a controller of another protocol.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from fleet import decision
from fleet.controller import seated
from fleet.core.model import Accelerator, ComponentFact, Facts, Json, Node
from fleet.core.plan import start_digest
from fleet.core.task import NodeTask
from fleet.drain import Drained
from fleet.inventory import open_inventory
from fleet.inventory.rollouts import Rollouts
from fleet.probe import Probed
from fleet.proof import another_machine, identity, may_begin
from fleet.remote import Answer
from fleet.slurm import SlurmDrain
from tests.remote.sshd import public
from tests.upgrade.person import FACTS, Person
from tests.upgrade.simfleet import SimFleet
from tests.upgrade.site import Site

EIGHT = tuple(f"n{number}" for number in range(8))


@pytest.fixture
def person(tmp_path: Path) -> Person:
    made = Person(tmp_path)
    made.packages()
    return made


def task(site: Site, name: str) -> NodeTask:
    return site.store.tasks("r-1")[name].task


def driver(site: Site, name: str) -> str:
    return str(site.fleet.state(name)["installed"]["driver"])


def run(site: Site, step_s: float = 20.0, until: Callable[[], bool] = lambda: False, most: int = 4000) -> None:
    """Tick until the rollout rests, or until something is so; each tick takes that many seconds of the fleet's time."""
    lease = site.store.acquire("r-1", site.engine.owner, 1e9, 0.0, lambda _: True)
    for _ in range(most):
        site.fleet.clock += step_s
        if until() or site.upgrade.tick("r-1", lease, False).resting:
            return
    raise AssertionError(f"no rest: {site.states()}, {site.store.rollout('r-1')}")


def resume(site: Site) -> None:
    """What `fleet rollout resume` decides."""
    lease = site.store.acquire("r-1", site.engine.owner, 1e9, 0.0, lambda _: True)
    decision.reopen(site.upgrade, "r-1", lease)


# --- a plan whose facts moved ---------------------------------------------------------------------------------------


def test_a_node_that_moved_since_the_plan_is_left_alone(site: Site) -> None:
    site.start(site.nodes(*EIGHT))
    site.fleet.change("n5", installed={"driver": "1.5"}, loaded={"driver": "1.5"})
    run(site)
    moved = task(site, "n5")
    assert moved.state == "held" and moved.reason.startswith("stale:") and moved.next_action == "fleet plan n5"
    assert site.fleet.effects("n5") == [] and driver(site, "n5") == "1.5"
    assert {state for name, state in site.states().items() if name != "n5"} == {"done"}


def test_a_plan_is_refused_when_more_than_one_node_in_twenty_moved(person: Person) -> None:
    names = [f"x{number:02}" for number in range(21)]
    inventory = open_inventory(person.fleet.url)
    inventory.add([Node(name, "127.0.0.1", 1, "root", lifecycle="ready") for name in names])
    inventory.record([replace(FACTS, node=name) for name in names])
    key = public(person.folder / "key")
    for name in names:
        inventory.trust(name, key, "tester", "2031-05-01T08:00:00Z")
    (person.folder / "plan.json").write_text(person("plan", "x[00-20]", "-o", "json"))

    def moved(name: str) -> Facts:
        return replace(FACTS, node=name, components={**FACTS.components, "driver": ComponentFact("1.7.0", "1.7.0")})

    inventory.record([moved("x07"), moved("x08")])
    person("upgrade", "plan.json", "-y", code=7)
    assert "2 of 21 nodes" in person.err and "stale-plan" in person.err and "fleet plan" in person.err
    assert Rollouts(inventory.database).rollouts() == []
    inventory.record([replace(FACTS, node="x08")])
    person("upgrade", "plan.json", "-y", code=6)  # one of 21: it begins, and meets nodes that do not answer
    inventory.close()


# --- a scheduler that cannot be asked -------------------------------------------------------------------------------


@dataclass
class Slurm:
    """The Slurm programs over some nodes. `deaf` = phases in which slurmctld does not answer."""

    nodes: dict[str, dict[str, Any]]
    jobs: dict[str, str] = field(default_factory=dict)  # node -> id of a job that runs there
    deaf: set[str] = field(default_factory=set)
    phase: str = ""
    clock: Callable[[], float] = lambda: 0.0

    def __call__(self, argv: Sequence[str], extra: Mapping[str, str], timeout_s: float) -> tuple[int, str, str]:  # noqa: ARG002
        if self.phase in self.deaf:
            return 1, "", f"{argv[0]}: error: Unable to contact slurm controller (connect failure)"
        words = dict(word.split("=", 1) for word in argv if "=" in word)
        match argv[0]:
            case "sinfo":
                return 0, json.dumps({"nodes": [{"name": name, **row} for name, row in self.nodes.items()]}), ""
            case "squeue":
                return 0, "".join(f"{job}|{name}\n" for name, job in self.jobs.items()), ""
        for name in words["nodename"].split(","):
            busy = "mixed" if name in self.jobs else "idle"
            drained = {"reason": words.get("reason"), "reason_changed_at": self.clock(), "state_flags": ["DRAIN"]}
            self.nodes[name] = {"state": busy, **(drained if words["state"] == "drain" else {})}
        return 0, "", ""


class Phased:
    """A BatchDrain and Census over that Slurm, which is told what it is asked for."""

    def __init__(self, slurm: Slurm, drain: SlurmDrain) -> None:
        self.slurm, self.inner = slurm, drain

    def _in(self, phase: str) -> SlurmDrain:
        self.slurm.phase = phase
        return self.inner

    def cordon_all(self, nodes: Sequence[Node], token: str) -> dict[str, Drained]:
        return self._in("cordon").cordon_all(nodes, token)

    def drain_all(self, nodes: Sequence[Node], token: str) -> dict[str, Drained]:
        return self._in("drain").drain_all(nodes, token)

    def uncordon_all(
        self, nodes: Sequence[Node], token: str, priors: Mapping[str, Mapping[str, Json]] | None = None
    ) -> dict[str, Drained]:
        return self._in("uncordon").uncordon_all(nodes, token, priors)

    def away(self, nodes: Sequence[Node]) -> dict[str, str]:
        return self._in("census").away(nodes)

    def cordon(self, node: Node, token: str) -> Drained:
        return self.cordon_all([node], token)[node.name]

    def drain(self, node: Node, token: str) -> Drained:
        return self.drain_all([node], token)[node.name]

    def uncordon(self, node: Node, token: str, prior: Mapping[str, Json]) -> Drained:
        return self.uncordon_all([node], token, {node.name: prior})[node.name]


def behind_slurm(site: Site, names: Sequence[str], deadline_s: float = 600) -> Slurm:
    """The site's nodes are in a Slurm from now on."""
    slurm = Slurm({name: {"state": "idle"} for name in names}, clock=lambda: site.fleet.clock)
    drain = Phased(slurm, SlurmDrain(slurm, lambda: site.fleet.clock, deadline_s=deadline_s))
    site.upgrade.hands = replace(site.upgrade.hands, drain=drain)
    return slurm


@pytest.mark.parametrize("phase", ["cordon", "drain", "uncordon"])
def test_a_scheduler_that_is_away_too_long_pauses_the_rollout_and_fails_no_node(site: Site, phase: str) -> None:
    slurm = behind_slurm(site, EIGHT)
    slurm.deaf = {phase}
    site.start(site.nodes(*EIGHT), drain_limit_s=1000, gate=False)
    run(site)
    row, canary = site.store.rollout("r-1"), task(site, "n0")
    assert canary.state == "held" and canary.reason.startswith("scheduler: slurm-unreachable:"), canary
    assert "slurmctld" in canary.next_action and row.state == "paused" and "slurmctld" in row.reason
    assert set(site.states().values()) == {"held", "waiting"} and "n0" in site.store.claims()
    assert driver(site, "n0") == ("2.0" if phase == "uncordon" else "1.0")
    assert site.inventory.node("n0").lifecycle == "maintenance"

    slurm.deaf = set()
    resume(site)
    run(site)
    assert set(site.states().values()) == {"done"} and site.store.rollout("r-1").state == "done"
    effects = site.fleet.effects("n0")
    assert len(effects) == len(set(effects)) and effects.count("reboot") == 1
    assert all(row == {"state": "idle"} for row in slurm.nodes.values())


@pytest.mark.parametrize("phase", ["cordon", "uncordon"])
def test_a_scheduler_that_comes_back_in_time_is_only_waited_for(site: Site, phase: str) -> None:
    slurm = behind_slurm(site, EIGHT)
    slurm.deaf = {phase}
    site.start(site.nodes(*EIGHT), gate=False)
    began = 0.0

    def back() -> bool:
        nonlocal began
        if task(site, "n0").state == f"{phase}ing" and task(site, "n0").reason:
            began = began or site.fleet.clock
            if site.fleet.clock - began > 60:
                slurm.deaf = set()
        return False

    run(site, until=back)
    assert set(site.states().values()) == {"done"}
    assert began and not any(seen.now in ("held", "failed", "paused") for seen in site.seen)


def test_nothing_begins_while_the_census_cannot_be_taken(site: Site) -> None:
    slurm = behind_slurm(site, EIGHT)
    slurm.deaf = {"census"}
    site.start(site.nodes(*EIGHT), gate=False)
    enough = iter(range(40))
    run(site, until=lambda: next(enough) == 39)
    assert set(site.states().values()) == {"waiting"} and site.store.claims() == {} and site.fleet.effects() == []
    said = [seen.reason for seen in site.seen if seen.reason]
    assert len(said) == 1 and said[0].startswith("waiting: scheduler:") and "slurm controller" in said[0]
    row = site.store.rollout("r-1")
    assert row.state == "running" and row.reason.startswith("scheduler:") and "sinfo" in row.reason
    slurm.deaf = set()
    run(site)
    assert set(site.states().values()) == {"done"} and site.store.rollout("r-1").reason == ""


def test_nodes_that_the_scheduler_has_out_count_in_the_budget(site: Site) -> None:
    slurm = behind_slurm(site, EIGHT)
    for name, state in {"n6": "down", "n7": "idle"}.items():
        slurm.nodes[name] = {"state": state, "reason": "bad DIMM", "state_flags": ["DRAIN"]}
    nodes = site.nodes(*EIGHT)
    site.start(nodes[:6], limits={"fleet": "3"}, gate=False)
    most = 0

    def count() -> bool:
        nonlocal most
        most = max(most, len(site.store.claims()))
        return False

    run(site, until=count)
    assert most == 1 and set(site.states().values()) == {"done"}
    assert slurm.nodes["n7"]["reason"] == "bad DIMM"


def test_a_budget_that_others_use_up_says_so(site: Site) -> None:
    slurm = behind_slurm(site, EIGHT)
    for name in ("n6", "n7"):
        slurm.nodes[name] = {"state": "down", "reason": "bad DIMM"}
    nodes = site.nodes(*EIGHT)
    site.start(nodes[:6], limits={"fleet": "2"}, gate=False)
    run(site)
    row = site.store.rollout("r-1")
    assert row.state == "paused" and row.reason.startswith("budget: fleet: 2 of at most 2 nodes are out")
    assert "fleet rollout resume" in row.reason
    slurm.nodes["n6"] = {"state": "idle"}
    resume(site)
    run(site)
    assert set(site.states().values()) == {"done"}


# --- a drain that never ends ----------------------------------------------------------------------------------------


def test_jobs_that_never_end_send_the_node_to_the_end_of_the_queue_and_back_to_service(site: Site) -> None:
    slurm = behind_slurm(site, EIGHT, deadline_s=300)
    slurm.jobs["n3"] = "4711"
    slurm.nodes["n3"] = {"state": "mixed"}
    site.start(site.nodes(*EIGHT), drain_limit_s=300, revisits=1, revisit_s=500, gate=False)
    run(site)
    left = task(site, "n3")
    assert left.state == "held" and left.reason.startswith("revisit:") and "4711" in left.reason
    assert left.revisits == 2 and "fleet upgrade" in left.next_action
    assert site.fleet.effects("n3") == [] and driver(site, "n3") == "1.0"
    assert slurm.nodes["n3"] == {"state": "mixed"} and site.inventory.node("n3").lifecycle == "in-service"
    assert {state for name, state in site.states().items() if name != "n3"} == {"done"}


def test_jobs_that_end_meanwhile_give_the_node_its_turn(site: Site) -> None:
    slurm = behind_slurm(site, EIGHT, deadline_s=300)
    slurm.jobs["n3"] = "4711"
    slurm.nodes["n3"] = {"state": "mixed"}
    site.start(site.nodes(*EIGHT), drain_limit_s=300, revisits=1, revisit_s=500, gate=False)

    def ends() -> bool:
        if task(site, "n3").revisits and slurm.jobs:
            slurm.jobs.clear()
            slurm.nodes["n3"] = {"state": "idle"}
        return False

    run(site, until=ends)
    assert set(site.states().values()) == {"done"} and driver(site, "n3") == "2.0"


# --- a node that comes back as another machine ----------------------------------------------------------------------


class Swapped:
    """The doors of a fleet behind which one address leads elsewhere once its node has been restarted."""

    def __init__(self, fleet: SimFleet, node: str, *, cards: bool = False, key: bool = False) -> None:
        self.fleet, self.node, self.cards, self.key = fleet, node, cards, key

    def _now(self, name: str) -> bool:
        return name == self.node and self.fleet.state(name)["boots"] > 0

    def look(self, nodes: Sequence[Node]) -> Iterator[Probed]:
        for seen in self.fleet.look(nodes):
            if self._now(seen.name) and self.key:
                yield Probed(seen.node, "key-changed", "connect", detail="the host key is another one")
            elif self._now(seen.name) and self.cards and seen.facts is not None:
                others = tuple(replace(card, uuid=f"other-{card.uuid}") for card in seen.facts.accelerators)
                yield replace(seen, facts=replace(seen.facts, accelerators=others))
            else:
                yield seen

    def run(self, node: Node, script: str, *, timeout_s: float, sudo: bool) -> Answer:
        if self._now(node.name) and self.key:
            return Answer(node, "connect", trouble="key-changed", detail="the host key is another one")
        return self.fleet.run(node, script, timeout_s=timeout_s, sudo=sudo)

    def close(self) -> None:
        """Nothing to close."""


def swapped(site: Site, node: str, *, cards: bool = False, key: bool = False) -> Swapped:
    made = Swapped(site.fleet, node, cards=cards, key=key)
    site.upgrade.hands = replace(site.upgrade.hands, look=made.look, transport=made)
    return made


@pytest.mark.parametrize("node", ["n0", "n5"])
def test_other_cards_after_the_restart_are_another_machine(site: Site, node: str) -> None:
    odd = swapped(site, node, cards=True)
    site.start(site.nodes(*EIGHT), gate=False)
    run(site)
    held, row = task(site, node), site.store.rollout("r-1")
    assert held.state == "held" and held.reason.startswith("hands: identity-changed:"), held
    assert f"other-{node}-0" in held.reason and f"not {node}-0" in held.reason
    assert "which machine is it?" in held.next_action and f"fleet probe {node}" in held.next_action
    assert row.state == "paused" and node in row.reason
    effects = site.fleet.effects(node)
    assert effects[-1] == "reboot" and "uncordon" not in effects  # nothing more is done there, and no way back either
    assert node in site.store.claims() and site.fleet.state(node)["cordoned"]
    cards = {card.uuid for card in site.inventory.facts([node])[node].accelerators}
    assert cards == {f"{node}-0", f"{node}-1"}  # the other machine is not taken for this one
    others = {state for name, state in site.states().items() if name != node}
    assert others == ({"waiting"} if node == "n0" else {"done"})

    odd.cards = False  # its address leads to the right machine again
    resume(site)
    run(site)
    assert set(site.states().values()) == {"done"} and site.fleet.effects(node).count("reboot") == 1


def test_another_host_key_after_the_restart(site: Site) -> None:
    odd = swapped(site, "n5", key=True)
    site.start(site.nodes(*EIGHT), gate=False)
    run(site)
    held = task(site, "n5")
    assert held.state == "held" and held.reason.startswith("hands: key-changed:") and "another one" in held.reason
    assert "fleet node trust n5 --replace" in held.next_action and "resume" in held.next_action
    assert site.store.rollout("r-1").state == "paused" and site.fleet.effects("n5")[-1] == "reboot"
    odd.key = False  # a person has compared and trusted it
    resume(site)
    run(site)
    assert set(site.states().values()) == {"done"} and site.fleet.effects("n5").count("reboot") == 1


def test_another_host_key_before_anything_is_done(site: Site) -> None:
    nodes = site.nodes(*EIGHT)
    site.fleet.change("n5", boots=1)
    swapped(site, "n5", key=True)
    site.start(nodes, gate=False)
    run(site)
    failed = task(site, "n5")
    assert failed.state == "failed" and failed.reason.startswith("key-changed:")
    assert "fleet node trust n5 --replace" in failed.next_action and site.fleet.effects("n5") == []


def cards(*uuids: str) -> Facts:
    return replace(FACTS, accelerators=tuple(Accelerator("biren", "Biren106M", uuid=uuid) for uuid in uuids))


@pytest.mark.parametrize(
    ("before", "after", "other"),
    [
        (("a", "b"), ("a", "b"), False),
        (("a", "b"), ("b", "a"), False),
        (("a", "b"), ("c", "d"), True),
        (("a", "b"), ("a", "c"), False),  # one card was exchanged: the same machine, repaired
        (("a", "b"), ("c",), True),
        (("a", "b"), (), False),  # no card answers: that is another matter
        (("", ""), ("c", "d"), False),  # nobody knows what it was
        (("a", "b"), ("", ""), False),  # the new tool does not say
    ],
)
def test_who_is_another_machine(before: Sequence[str], after: Sequence[str], other: bool) -> None:
    said = another_machine(identity(cards(*before)), cards(*after))
    assert (said is not None) is other
    if said is not None:
        assert said.result == "hands" and said.owner and said.reason.startswith("identity-changed: br1")


def test_a_changed_key_at_the_start_names_the_way_out() -> None:
    said = may_begin(Probed(Node("n1", "192.0.2.1"), "key-changed", "connect", detail="another key"), ())
    assert said is not None and said.result == "failed" and said.reason == "key-changed: another key"
    assert said.next_action.endswith("fleet node trust n1 --replace")


def test_half_a_look_is_no_proof_that_the_node_moved(site: Site) -> None:
    site.nodes("n1")
    facts = site.fleet.facts("n1")
    half = replace(facts, components={})
    node = Node("n1", "192.0.2.1")
    said = may_begin(
        Probed(node, "partial", "done", half, detail="smi: did not end within 10 s"), {start_digest(facts)}
    )
    assert said is not None and said.result == "ambiguous" and said.reason == "partial: smi: did not end within 10 s"
    whole = may_begin(Probed(node, "answered", "done", half), {start_digest(facts)})
    assert whole is not None and whole.result == "stale"
    assert may_begin(Probed(node, "partial", "done", facts), {start_digest(facts)}) is None


# --- a budget that can never be met ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "numbers"), [("0", "0 of 8"), ("0%", "0 of 8")])
def test_a_limit_of_nothing_pauses_at_once_with_the_numbers(site: Site, limit: str, numbers: str) -> None:
    site.start(site.nodes(*EIGHT), limits={"fleet": limit})
    began = site.fleet.clock
    run(site, step_s=0.0)
    row = site.store.rollout("r-1")
    assert site.fleet.clock - began < 60 and site.fleet.effects() == [] and site.store.claims() == {}
    assert row.state == "paused" and row.reason.startswith("budget: impossible: fleet: ") and numbers in row.reason
    assert "--max-unavailable" in row.reason
    assert task(site, "n0").reason.startswith("budget: impossible: ") and task(site, "n0").next_action


def test_nodes_that_move_together_and_are_more_than_the_limit(site: Site) -> None:
    together = [replace(site.fleet.add(f"s{i}"), superpod="sp-1") for i in range(4)]
    site.inventory.add(together)
    site.inventory.record([site.fleet.facts(node.name) for node in together])
    alone = site.nodes("n0", "n1", "n2", "n3")
    site.start([*alone, *together], limits={"fleet": "3"}, gate=False)
    run(site)
    row = site.store.rollout("r-1")
    assert row.state == "paused" and row.reason.startswith("budget: impossible: fleet: 4 nodes"), row.reason
    assert "3 of 8" in row.reason and "--max-unavailable" in row.reason
    assert {driver(site, node.name) for node in together} == {"1.0"} and site.store.claims() == {}


def test_a_limit_of_nothing_at_the_command_line(person: Person) -> None:
    person("upgrade", "br1,br2", "-y", "--max-unavailable", "0", code=8)
    assert "budget: impossible" in person.err and "0 of" in person.err and "--max-unavailable" in person.err


# --- a controller of another protocol -------------------------------------------------------------------------------


def test_a_controller_of_another_protocol_is_neither_joined_nor_handed_anything(person: Person) -> None:
    inventory = open_inventory(person.fleet.url)
    store = Rollouts(inventory.database)
    with seated(store, "old", threading.Event(), protocol="0"):
        for command in (("upgrade", "br1", "-y"), ("controller", "run", "--name", "new")):
            person(*command, code=1)
            assert "controller-protocol" in person.err and "protocol 0" in person.err, command
            assert "same release" in person.err and "stop that controller" in person.err
        assert store.rollouts() == [] and store.claims() == {}
    person("upgrade", "br1", "-y", code=6)  # it is gone: the node that does not answer is all that is wrong now
    inventory.close()
