"""What happened and how it stands, counted on both back ends; the audit log that only grows."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from sqlalchemy import insert, text

from fleet.core.errors import FleetError
from fleet.core.estimate import Spell, Tally
from fleet.core.model import Accelerator, Facts, Group, Node, OsFacts, Plan, Step
from fleet.core.plan import sealed
from fleet.core.task import STATES, Direction, failing
from fleet.inventory import Inventory, history
from fleet.inventory.rollouts import Lease, Result, Rollouts

NOW = "2031-05-01T08:00:00Z"
NAMES = ("n1", "n2", "n3", "n4")
STEPS = (Step("preflight"), Step("install"), Step("reboot"))


@pytest.fixture
def store(inventory: Inventory) -> Rollouts:
    """A rollout `r-1` of four nodes in two racks."""
    inventory.add([Node(name, "192.0.2.1", rack=f"k{i % 2}", labels={"pool": "a"}) for i, name in enumerate(NAMES)])
    inventory.record([
        Facts(node=name, os=OsFacts(), vendor="acme", components={}, accelerators=(Accelerator("acme", "A1"),),
              boot_id="b", at=NOW)
        for name in NAMES
    ])  # fmt: skip
    group = Group(NAMES, "acme", "A1", {}, {}, (STEPS,), ())
    policy = {"limits": {"fleet": "50%", "rack": "1", "label:pool": "3"}, "chunk": 16}
    waves = (NAMES[:1], NAMES[1:])
    made = sealed(Plan("", (group,), waves, {}, dict.fromkeys(NAMES, "sha256:0"), "sha256:m", policy))  # type: ignore[arg-type]  # JSON, as a policy is
    opened = Rollouts(inventory.database)
    opened.create("r-1", made, "", (), "li", NOW)
    return opened


def lease(store: Rollouts) -> Lease:
    return store.acquire("r-1", "me", 600.0, 1000.0, lambda _: False)


def put(store: Rollouts, held: Lease, node: str, **values: object) -> None:
    task = replace(store.tasks("r-1")[node].task, **values)  # type: ignore[arg-type]  # fields of a task
    store.put(held, [(task, None, None)])


def step(store: Rollouts, held: Lease, node: str, phase: str, took: float, result: str = "done") -> None:
    task = store.tasks("r-1")[node].task
    number = store.intend(held, [task], phase, 1000.0)[node]
    cursor = task.cursor + 1
    store.finish(held, [Result(number, result, replace(task, cursor=cursor, open=""))], 1000.0 + took)


def test_a_view_counts_all_and_shows_the_first(store: Rollouts) -> None:
    held = lease(store)
    put(store, held, "n1", state="installing", cursor=1, since=500.0, limit_s=60)
    put(store, held, "n2", state="failed", cursor=2, since=700.0, reason="the tool said no", next_action="look")
    put(store, held, "n3", reason="budget: full")
    step(store, held, "n1", "install", 5.0, "waiting")
    seen = history.view(store.database, "r-1", 1)
    assert (seen.head.state, seen.head.owner, seen.head.until) == ("running", "me", 1600.0)
    assert not seen.head.finished
    assert set(seen.tallies) == {
        Tally(0, 0, "installing", "forward", 2, 1, 500.0), Tally(1, 0, "failed", "forward", 2, 1, 700.0),
        Tally(1, 0, "waiting", "forward", -1, 2, 0.0),
    }  # fmt: skip
    (going,) = seen.under_way
    assert (going.node, going.phase, going.since, going.limit_s) == ("n1", "install", 500.0, 60)
    (bad,) = seen.troubled
    assert (bad.node, bad.reason, bad.next_action) == ("n2", "the tool said no", "look")
    assert seen.waiting == "budget: full"
    assert history.standing(store.database, "r-1") == seen.tallies
    assert history.moved(store.database, "r-1", 600.0) == [("n2", "failed", "the tool said no", 700.0)]


def test_durations_are_learnt_by_vendor_and_phase(store: Rollouts) -> None:
    held = lease(store)
    for node, took in zip(NAMES, (10.0, 20.0, 30.0, 40.0), strict=True):
        step(store, held, node, "preflight", took)
    step(store, held, "n1", "reboot", 300.0, "failed")  # says nothing of how long one takes that succeeds
    found = history.durations(store.database)
    assert found.spells == {key: Spell(4, 20.0, 40.0) for key in (("acme", "preflight"), ("", "preflight"))}
    assert history.durations(store.database, newest=2).spells["acme", "preflight"] == Spell(2, 30.0, 40.0)
    assert history.capacity(store.database) == 4


def test_steps_are_counted_by_result_and_duration(store: Rollouts) -> None:
    held = lease(store)
    for node, took, result in (("n1", 0.5, "done"), ("n2", 20.0, "failed"), ("n3", 1e6, "done")):
        step(store, held, node, "install", took, result)
    store.intend(held, [store.tasks("r-1")["n4"].task], "install", 1000.0)
    (counts,) = history.steps(store.database)
    assert counts.results == {"done": 2, "failed": 1, "intent": 1}
    assert counts.ended == 3 and counts.seconds == pytest.approx(1e6 + 20.5)
    assert counts.buckets == (1, 1, 1, 2, 2, 2, 2, 2, 2, 2)


@pytest.mark.parametrize("direction", get_args(Direction))
def test_failures_are_those_that_the_core_counts(store: Rollouts, direction: Direction) -> None:
    held = lease(store)
    reasons = (
        "validation: a chip is critical",
        "revisit: jobs run",
        "moves with n2: it failed",
        "rolled back by the operator",
    )
    for state in STATES:
        for cursor in (-1, 1):
            for node, reason in zip(NAMES, reasons, strict=True):
                put(store, held, node, state=state, direction=direction, cursor=cursor, reason=reason)
            bad = sum(failing(stored.task) for stored in store.tasks("r-1").values())
            assert history.failing(store.database, ["r-1"]).get("r-1", 0) == bad, (state, cursor)


def test_states_failures_and_overdue_nodes(store: Rollouts) -> None:
    held = lease(store)
    put(store, held, "n1", state="rebooting", cursor=2, since=500.0, limit_s=60)
    put(store, held, "n2", state="installing", direction="back", cursor=0, since=900.0, limit_s=600)
    put(store, held, "n3", state="failed", cursor=2, since=100.0)
    assert history.states(store.database, ["r-1"]) == {
        "r-1": {"rebooting": (1, 500.0), "installing": (1, 900.0), "failed": (1, 100.0), "waiting": (1, 0.0)}
    }
    assert history.failing(store.database, ["r-1"]) == {"r-1": 2}
    late = history.overdue(store.database, 561.0)
    assert [(rollout, node.node) for rollout, node in late] == [("r-1", "n1")]
    assert history.overdue(store.database, 561.0, grace_s=60.0) == []
    assert [row.id for row in history.recent(store.database, NOW)] == ["r-1"]
    store.set_state(held, "done", "", "2031-05-02T08:00:00Z")
    assert history.overdue(store.database, 1e9) == []
    assert [row.id for row in history.recent(store.database, NOW)] == ["r-1"]
    assert history.recent(store.database, "2031-05-02T09:00:00Z") == []


def test_claims_are_told_for_the_fullest_domain_of_each_kind(store: Rollouts, inventory: Inventory) -> None:
    held = lease(store)
    nodes = {node.name: node for node in inventory.nodes()}
    store.claim(held, [("n1",), ("n3",)], {}, nodes, (), 1000.0)
    inventory.set_lifecycle(["n2"], "retired")  # no capacity any more
    (first,) = history.recent(store.database, NOW)
    found = {c.kind: (c.limit, c.claimed, c.total) for c in history.claims(store.database, [first])["r-1"]}
    assert found == {"fleet": ("50%", 2, 3), "rack": ("1", 2, 2), "label:pool": ("3", 2, 3)}


def test_the_audit_log_only_grows(inventory: Inventory) -> None:
    inventory.audit("li", "node add", NOW, {"nodes": "n1"})
    inventory.audit("li", "node hold", NOW, {"nodes": "n1"})
    statements = ["UPDATE audit_log SET who = 'nobody'", "DELETE FROM audit_log WHERE what = 'node add'"]
    if inventory.database.dialect == "sqlite":
        statements.append("INSERT OR REPLACE INTO audit_log VALUES (1, '', 'nobody', '', '{}')")
    else:
        statements.append("TRUNCATE audit_log")
    for statement in statements:
        with pytest.raises(FleetError) as caught, inventory.database.writing() as connection:
            connection.execute(text(statement))
        assert "append-only" in caught.value.cause, statement
    inventory.audit("li", "node release", NOW)
    assert [(e.who, e.what) for e in inventory.audit_log()] == [
        ("li", "node release"), ("li", "node hold"), ("li", "node add"),
    ]  # fmt: skip


def test_a_line_on_a_rollout_names_its_plan(store: Rollouts, inventory: Inventory) -> None:
    plan = store.rollout("r-1").plan
    inventory.audit("li", "rollout pause", NOW, {"rollout": "r-1"})
    inventory.audit("li", "rollout start", NOW, {"rollout": "r-1", "plan": "sha256:given"})
    inventory.audit("li", "rollout abort", NOW, {"rollout": "r-0"})
    last, given, first = inventory.audit_log(3)
    assert first.detail == {"rollout": "r-1", "plan": plan}
    assert given.detail["plan"] == "sha256:given" and "plan" not in last.detail
    with inventory.database.reading() as connection:
        assert history.with_plan(connection, {}) == {}


def test_the_newest_attempts_are_those_that_count(store: Rollouts) -> None:
    rows = [
        {"rollout": "r-1", "node": "n1", "direction": "forward", "cursor": 0, "attempt": 1, "phase": "install",
         "state": "done", "fence": 1, "began": 0.0, "ended": float(i), "detail": "", "evidence": ""}
        for i in range(1, 101)
    ]  # fmt: skip
    with store.database.writing() as connection:
        connection.execute(insert(history.ATTEMPT), rows)
    assert history.durations(store.database, newest=10).spells["acme", "install"] == Spell(10, 95.0, 99.0)
