"""Approve, reject, retry, rollback and kill as a person types them; and the options of a plan that go with them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fleet.core.gate import Judgement
from fleet.core.model import Plan
from fleet.core.planfile import load
from fleet.core.task import State
from fleet.inventory import open_inventory
from fleet.inventory.rollouts import Rollouts
from tests.upgrade.person import Person


def store_of(person: Person) -> Rollouts:
    return Rollouts(open_inventory(person.fleet.url).database)


def begun(person: Person, *options: str) -> tuple[Rollouts, Plan]:
    """A stored rollout `r-1` of br1, begun by li and driven by nobody."""
    person.packages()
    made = load({k: v for k, v in person.document("Plan", "plan", "br1", *options).items() if k != "apiVersion"})
    store = store_of(person)
    store.create("r-1", made, "asked", (), "li", "2031-05-01T08:00:00Z")
    return store, made


def test_a_plan_says_what_stands_between_its_waves(person: Person) -> None:
    person.packages()
    options = ["--soak", "10m", "--window", "Mon-Fri 22:00-06:00 Asia/Shanghai", "--approve", "start,canary",
               "--revisit-after", "2h", "--wave-by", "leaf"]  # fmt: skip
    made = person.document("Plan", "plan", "br1", *options)
    policy = made["policy"]
    assert (policy["soak_s"], policy["revisit_s"], policy["wave_by"]) == (600, 7200, "leaf")
    assert policy["approve"] == ["start", "canary"] and policy["windows"] == ["Mon-Fri 22:00-06:00 Asia/Shanghai"]
    text = person("plan", "br1", *options)
    assert "after each wave: 600 s of watching, then a look at it beside untouched nodes" in text
    assert "nodes begin only: Mon-Fri 22:00-06:00 Asia/Shanghai" in text and "must say yes after the canaries" in text
    site: dict[str, Any] = {
        "FLEET_SOAK": "60",
        "FLEET_WINDOW": "22:00-06:00; Sun 00:00-23:00 UTC",
        "FLEET_APPROVE": "start",
    }
    policy = json.loads(person("plan", "br1", "-o", "json", **site))["policy"]
    assert policy["soak_s"] == 60 and policy["approve"] == ["start"]
    assert policy["windows"] == ["22:00-06:00", "Sun 00:00-23:00 UTC"]
    both = json.loads(person("plan", "br1", "--approve", "canary", "-o", "json", **site))["policy"]["approve"]
    assert both == ["start", "canary"]  # what the site asks for, nobody can do without


@pytest.mark.parametrize(
    ("option", "value", "slug"),
    [
        ("--soak", "soon", "bad-time"),
        ("--soak", "400d", "bad-time"),
        ("--revisit-after", "-5m", "bad-time"),
        ("--window", "tonight", "bad-window"),
        ("--wave-by", "fleet", "bad-limit"),
        ("--wave-by", "cable", "bad-limit"),
    ],
)
def test_what_cannot_be_meant_is_one_error(person: Person, option: str, value: str, slug: str) -> None:
    person.packages()
    person("plan", "br1", option, value, code=2)
    assert slug in person.err


def test_an_approval_is_for_one_plan_and_by_somebody_else(person: Person) -> None:
    store, made = begun(person, "--approve", "start")
    person("rollout", "resume", "r-1", code=8, FLEET_OPERATOR="li")
    assert f"approval: plan {made.id} waits for a yes to begin" in store.rollout("r-1").reason
    person("rollout", "approve", "r-1", "-y", code=5, FLEET_OPERATOR="li")
    assert "own-approval" in person.err
    person("rollout", "approve", "r-1", "-y", "--plan", "p-000000000000", code=7, FLEET_OPERATOR="wang")
    assert "other-plan" in person.err and store.approvals(store.rollout("r-1")) == []
    person("rollout", "reject", "r-1", code=2, FLEET_OPERATOR="wang")
    person("rollout", "reject", "r-1", "--why", "wrong night", FLEET_OPERATOR="wang")
    row = store.rollout("r-1")
    assert (row.state, row.reason) == ("paused", "approval: wang said no: wrong night")
    person("rollout", "resume", "r-1", code=8)
    assert store.rollout("r-1").reason == "approval: wang said no: wrong night"
    person("rollout", "approve", "r-1", code=2, FLEET_OPERATOR="wang")
    assert "confirmation-needed" in person.err
    person("rollout", "approve", "r-1", "-y", "--plan", made.id, FLEET_OPERATOR="wang")
    assert "fleet rollout resume r-1 goes on" in person.err
    person("rollout", "resume", "r-1", code=6)  # it begins, and finds a silent node
    shown = person.document("Rollout", "rollout", "show", "r-1")
    assert [(a["verdict"], a["who"]) for a in shown["approvals"]] == [("no", "wang"), ("yes", "wang")]
    assert "approval (start): no by wang" in person("rollout", "show", "r-1")
    audit: list[dict[str, Any]] = json.loads(person("db", "log", "-o", "json"))["entries"]
    named = [(line["who"], line["detail"].get("plan")) for line in audit if line["what"] == "rollout approve"]
    assert named == [("wang", made.id)]
    person("rollout", "approve", "r-1", "-y", code=2, FLEET_OPERATOR="wang")
    assert "rollout-over" in person.err


def test_whoever_is_alone_may_say_so(person: Person) -> None:
    begun(person, "--approve", "start")
    person("rollout", "approve", "r-1", "-y", FLEET_OPERATOR="li", FLEET_OWN_APPROVAL="true")


def test_retry_of_a_rollout_that_is_over(person: Person) -> None:
    store, _ = begun(person)
    person("rollout", "resume", "r-1", code=6)
    assert store.tasks("r-1")["br1"].task.state == "failed"
    person("rollout", "retry", "r-1", "br2", "-y", code=2)
    assert "not-in-rollout" in person.err
    person("rollout", "retry", "r-1", code=2)
    assert "confirmation-needed" in person.err
    person("rollout", "retry", "r-1", "br[1-1]", "-y", code=6)
    assert {a.attempt for a in store.attempts("r-1")} == {1, 2}
    shown = person.document("Rollout", "rollout", "show", "r-1")
    assert shown["state"] == "failed" and len(shown["steps"]) == 2


def test_a_retry_of_nodes_that_are_done_changes_nothing(person: Person) -> None:
    store, _ = begun(person)
    lease = store.acquire("r-1", "me", 60, 0.0, lambda _: True)
    store.put(lease, [(replace(store.tasks("r-1")["br1"].task, state="done"), None, None)])
    store.set_state(lease, "aborted", "aborted by the operator", "2031-05-01T09:00:00Z")
    store.drop(lease)
    before = store.rollout("r-1")
    person("rollout", "retry", "r-1", "br1", "-y")
    assert "no node of rollout r-1 is to be tried again" in person.err and store.rollout("r-1") == before


def test_rollback_with_nothing_to_take_back(person: Person) -> None:
    store, _ = begun(person)
    row = person.document("Rollout", "rollout", "rollback", "r-1", "-y")
    assert row["state"] == "rolled-back" and row["nodes"][0]["state"] == "held"
    assert "rolled back by the operator" in store.tasks("r-1")["br1"].task.reason
    person("rollout", "rollback", "r-1", "-y")
    assert "has anything to go back from" in person.err


@pytest.mark.parametrize(
    ("state", "reason", "code"),
    [
        ("rolled-back", "rolled back by the operator", 0),
        ("failed", "rolled back by the operator; the way back failed too: no package", 6),
        ("held", "stale: the driver is another one", 6),
    ],
)
def test_a_rollback_that_left_a_node_behind_is_no_success(person: Person, state: State, reason: str, code: int) -> None:
    store, _ = begun(person)
    lease = store.acquire("r-1", "me", 60, 0.0, lambda _: True)
    task = replace(store.tasks("r-1")["br1"].task, state=state, reason=reason)
    store.put(lease, [(task, None, None)])
    store.set_state(lease, "rolled-back", "rolled back by the operator", "2031-05-01T09:00:00Z")
    store.drop(lease)
    person("rollout", "watch", "r-1", code=code)


def test_kill_pauses_and_what_is_killed_can_be_aborted(person: Person) -> None:
    store, _ = begun(person)
    person("rollout", "kill", "r-1", code=2)
    person("rollout", "kill", "r-1", "-y", code=8)
    assert store.rollout("r-1").state == "paused" and "killed by the operator" in store.rollout("r-1").reason
    person("rollout", "kill", "r-1", "-y", code=8)
    assert "nothing of rollout r-1 is under way" in person.err
    person("rollout", "abort", "r-1", "-y", code=1)
    assert store.rollout("r-1").state == "aborted"


def test_verdicts_of_gates_are_shown(person: Person) -> None:
    store, _ = begun(person)
    lease = store.acquire("r-1", "me", 60, 0.0, lambda _: True)
    store.set_gate(lease, 0, {"cell": Judgement("inconclusive", "2 of 8 are ill", accepted=True)})
    store.drop(lease)
    shown = person.document("Rollout", "rollout", "show", "r-1")
    assert shown["waves"][0]["gate"]["cell"]["verdict"] == "inconclusive"
    assert "gate of wave 1: inconclusive (accepted): 2 of 8 are ill" in person("rollout", "show", "r-1")
