"""Budgets under any order of events: a state machine over the real loop, store and inventory, and simulated nodes.

Two rollouts share the budgets of twelve nodes. Between rounds nodes fall sick, fall silent, fail, come back, are held,
retired, drained by others; rollouts are paused, resumed, aborted, killed; the process dies and another takes over.
Whenever a place is claimed, and after each event, it is counted anew who is out, from the nodes and the inventory, by
other arithmetic than the product's. FLEET_TEST_EXAMPLES asks for more than the few of an ordinary run.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fleet import decision
from fleet.core.budget import Limit, Verdict
from fleet.core.errors import NotFound
from fleet.core.model import Hold, Node
from fleet.core.move import FINISHED, Request
from fleet.core.task import NodeTask
from fleet.evidence import EvidenceStore
from fleet.inventory import Inventory, open_inventory
from fleet.inventory.rollouts import Lease, Rollouts
from fleet.lab.simulated import NOW, SimDrain, SimFleet, note
from fleet.upgrade import Upgrade
from tests.engine.counted import superseded
from tests.engine.emptydb import empty_database
from tests.upgrade.simfleet import hands, plan

EXAMPLES = int(os.environ.get("FLEET_TEST_EXAMPLES", "6"))
NAMES = [f"n{i:02}" for i in range(12)]
RACK = {name: f"r{i % 3}" for i, name in enumerate(NAMES)}
POD = {"n00": "p0", "n01": "p0", "n04": "p1", "n05": "p1", "n08": "p2", "n10": "p2"}
MEMBERS = {pod: {name for name, of in POD.items() if of == pod} for pod in POD.values()}
OF = {"r-1": NAMES[:7], "r-2": NAMES[7:]}
LIMITS = {"fleet": "40%", "rack": "2", "superpod": "100%"}
FAULTS = ["sick", "fail-preflight", "fail-install", "busy", "busy-for-ever", "lying-installer", "dead-after-reboot"]
OUT = ("maintenance", "broken", "provisioning")
NOT_OURS = ("discovered", "retired")

names = st.sampled_from(NAMES)
rollouts = st.sampled_from(sorted(OF))


class Witness:
    """Who is out, by the nodes' and the inventory's own word, and how many may be."""

    def __init__(self, fleet: SimFleet, inventory: Inventory) -> None:
        self.fleet = fleet
        self.inventory = inventory

    def out(self, claims: Collection[str]) -> set[str]:
        sick = self.inventory.sick()
        found = set(claims) | sick
        for node in self.inventory.nodes():
            held = node.hold is not None and (not node.hold.until or node.hold.until > NOW)
            if held or node.lifecycle in OUT or "foreign" in self.fleet.state(node.name)["faults"]:
                found.add(node.name)
        return found

    def over(self, before: set[str], after: set[str], taken: set[str]) -> list[str]:
        """Domains in which `taken` went beyond the limit: those of them that were not out already."""
        nodes = {node.name: node for node in self.inventory.nodes()}
        found = []
        for kind, place in (("fleet", dict.fromkeys(NAMES, "all")), ("rack", RACK)):
            counts = {n for n in NAMES if nodes[n].lifecycle not in NOT_OURS}
            total = Counter(place[n] for n in counts)
            away = Counter(place[n] for n in counts & after)
            for domain in {place[n] for n in (taken & counts) - before}:
                text = LIMITS[kind]
                many = int(text.rstrip("%"))
                most = max(1, total[domain] * many // 100) if text.endswith("%") else min(many, total[domain])
                if away[domain] > most:
                    found.append(f"{kind} {domain}: {away[domain]} of {total[domain]} out, {most} allowed")
        return found


class WatchedRollouts(Rollouts):
    """The store, with a witness at the moment in which places are claimed."""

    witness: Witness

    def claim(
        self, lease: Lease, units: Sequence[Sequence[str]], limits: Mapping[str, Limit], nodes: Mapping[str, Node],
        out: Collection[str], now: float,
    ) -> tuple[tuple[tuple[str, ...], ...], dict[str, Verdict]]:  # fmt: skip
        before = self.claims()
        found = super().claim(lease, units, limits, nodes, out, now)
        after = self.claims()
        taken = set(after) - set(before)
        wrong = self.witness.over(self.witness.out(before), self.witness.out(after), taken)
        assert not wrong, (wrong, sorted(taken))
        tasks = {name: s.task for name, s in self.tasks(lease.name).items()}
        for pod, members in MEMBERS.items():
            mine = members & set(tasks)
            if taken & mine:
                apart = [n for n in mine if n not in after and not tasks[n].ended]
                assert not apart, f"{pod}: {sorted(taken & mine)} went without {apart}"
        return found


class CensusDrain(SimDrain):
    """A scheduler that says which nodes others have taken out."""

    def away(self, nodes: Sequence[Node]) -> dict[str, str]:
        return {n.name: "repair ticket 7" for n in nodes if "foreign" in self.fleet.state(n.name)["faults"]}


class Budgets(RuleBasedStateMachine):
    """The rules. A rollout is driven by calling its tick, as an engine does."""

    @initialize(parallel=st.integers(1, 3), chunk=st.sampled_from([1, 3, 16]), gate=st.booleans())
    def begin(self, parallel: int, chunk: int, gate: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fleet-machine-"))
        self.parallel = parallel
        self.fleet = SimFleet(self.folder / "fleet")
        self.inventory = open_inventory(empty_database(self.folder))
        nodes = [replace(self.fleet.add(n), rack=RACK[n], superpod=POD.get(n, "")) for n in NAMES]
        self.inventory.add(nodes)
        self.inventory.record([self.fleet.facts(name) for name in NAMES])
        self.store = WatchedRollouts(self.inventory.database)
        self.store.witness = Witness(self.fleet, self.inventory)
        self.now = 1_000_000.0
        self.retired: set[str] = set()  # no capacity, so neither in a total nor out of it
        self.leases: dict[str, Lease] = {}
        self.upgrade = self._process()
        for rollout, some in OF.items():
            mine = [node for node in nodes if node.name in some]
            made = plan(
                self.fleet, mine, limits=LIMITS, max_failures="100%", chunk=chunk, gate=gate, revisit_s=5,
                drain_limit_s=20,
            )  # fmt: skip
            decision.start(self.upgrade, rollout, made, rollout, "sha256:m")

    def _process(self) -> Upgrade:
        """Another process: it remembers nothing, and takes the leases over."""
        self.fleet.clock = max(self.fleet.clock, self.now)
        doors = replace(hands(self.fleet), drain=CensusDrain(self.fleet))
        self.leases.clear()
        return Upgrade(
            self.store, self.inventory, doors, EvidenceStore(self.folder / "evidence"), origin="lab",
            operator="tester", parallel=self.parallel, poll_s=0.01,
        )  # fmt: skip

    def _lease(self, rollout: str) -> Lease:
        if rollout not in self.leases:
            self.leases[rollout] = self.store.acquire(rollout, "me", 60.0, self.now, lambda _: True)
        return self.leases[rollout]

    def _round(self, rollout: str) -> bool:
        """One tick; whether there is more to do."""
        self.fleet.clock += 1.0
        if self.store.rollout(rollout).finished:
            return False
        return not self.upgrade.tick(rollout, self._lease(rollout), False).resting

    # --- what happens -------------------------------------------------------------------------------------------------

    @rule(rollout=rollouts, rounds=st.integers(1, 8))
    def work(self, rollout: str, rounds: int) -> None:
        for _ in range(rounds):
            self._round(rollout)
            self.nothing_is_out_uncounted()

    @rule(name=names, fault=st.sampled_from(FAULTS))
    def a_node_gets_a_fault(self, name: str, fault: str) -> None:
        self.fleet.change(name, faults=[fault])

    @rule(name=names)
    def a_node_falls_silent(self, name: str) -> None:
        self.fleet.change(name, up=False)

    @rule(name=names)
    def others_drain_a_node(self, name: str) -> None:
        state = self.fleet.state(name)
        self.fleet.change(name, faults=[*state["faults"], "foreign"])

    @rule(name=names)
    def a_node_is_held(self, name: str) -> None:
        self.inventory.hold([name], Hold("someone", "a reason", NOW))

    @rule(name=names)
    def a_hold_ends(self, name: str) -> None:
        self.inventory.release([name])

    @rule(name=names)
    def a_node_breaks(self, name: str) -> None:
        if name not in self.store.claims():
            self.inventory.set_lifecycle([name], "broken")

    @rule(name=names)
    def a_node_is_retired(self, name: str) -> None:
        if name not in self.store.claims() and not self.fleet.state(name).get("cordoned"):
            self.inventory.set_lifecycle([name], "retired")
            self.retired.add(name)

    @rule(name=names)
    def a_node_is_mended(self, name: str) -> None:
        """Somebody takes the fault away; a node that no rollout has goes back into service too."""
        self.fleet.change(name, faults=[], up=True)
        if name not in self.store.claims() and self.inventory.node(name).lifecycle in OUT:
            with self.fleet.changing(name) as state:
                if state.get("cordoned"):
                    state["cordoned"] = ""
                    note(state, "uncordon")
            self.inventory.set_lifecycle([name], "in-service")
            self.inventory.record([self.fleet.facts(name)])

    @rule(rollout=rollouts, what=st.sampled_from(["pause", "abort", "kill"]))
    def a_person_asks(self, rollout: str, what: Request) -> None:
        if not self.store.rollout(rollout).finished:
            self.store.request(rollout, what)

    @rule(rollout=rollouts)
    def a_person_resumes(self, rollout: str) -> None:
        if not self.store.rollout(rollout).finished:
            decision.reopen(self.upgrade, rollout, self._lease(rollout))

    @rule(rollout=rollouts, name=names)
    def a_person_retries(self, rollout: str, name: str) -> None:
        row = self.store.rollout(rollout)
        if name in OF[rollout] and row.state not in FINISHED:
            decision.retry(self.upgrade, rollout, self._lease(rollout), [name])

    @precondition(lambda self: self.store.claims())
    @rule()
    def the_process_dies(self) -> None:
        self.upgrade.close()
        self.upgrade = self._process()

    # --- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_out_uncounted(self) -> None:
        """Whoever is cordoned by us has a place in the budgets, or is out of service by its lifecycle."""
        claims = self.store.claims()
        lifecycle = {node.name: node.lifecycle for node in self.inventory.nodes()}
        for name in NAMES:
            if self.fleet.state(name).get("cordoned"):
                assert name in claims or lifecycle[name] in OUT, (name, lifecycle[name], self._task(name))

    @invariant()
    def no_more_are_out_than_allowed(self) -> None:
        """Between cordon and uncordon, by the nodes' own log; retired nodes never were capacity."""
        away: dict[str, set[str]] = {"all": set(), **{rack: set() for rack in RACK.values()}}
        most = {"all": len(NAMES) * 40 // 100, **dict.fromkeys(RACK.values(), 2)}
        for effect in self.fleet.log():
            for domain in ("all", RACK[effect.node]) if effect.node not in self.retired else ():
                if effect.what == "cordon":
                    away[domain].add(effect.node)
                elif effect.what == "uncordon":
                    away[domain].discard(effect.node)
                assert len(away[domain]) <= most[domain], (domain, sorted(away[domain]), effect)

    @invariant()
    def nothing_is_done_twice(self) -> None:
        log = self.fleet.log()
        done = Counter((e.node, e.rollout, e.what) for e in log if e.what.partition(" ")[2])
        assert not [effect for effect, times in done.items() if times > 1]
        assert not superseded(log)

    def _task(self, name: str) -> NodeTask | None:
        found = self.store.of_node(name)
        return found[1].task if found else None

    def teardown(self) -> None:
        """All faults mended and everything resumed, each rollout comes to its end, and no place stays taken."""
        if not hasattr(self, "store"):
            return
        try:
            self._come_to_an_end()
        finally:
            self.upgrade.close()
            self.inventory.close()
            shutil.rmtree(self.folder)

    def _come_to_an_end(self) -> None:
        for name in NAMES:
            try:
                self.inventory.release([name])
            except NotFound:
                continue
            self.a_node_is_mended(name)
        for _ in range(4):
            for rollout in OF:
                self.a_person_resumes(rollout)
            for _ in range(300):
                more = [self._round(rollout) for rollout in OF]  # both, whatever the first says
                if not any(more):
                    break
                self.nothing_is_out_uncounted()
            for name in NAMES:
                self.a_node_is_mended(name)
        rows = [self.store.rollout(rollout) for rollout in OF]
        assert all(row.finished for row in rows), [(row.id, row.state, row.reason) for row in rows]
        assert self.store.claims() == {}
        self.no_more_are_out_than_allowed()


TestBudgets = Budgets.TestCase
TestBudgets.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=35, deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)  # fmt: skip
