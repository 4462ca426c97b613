"""Between waves: the gate, soak, canaries that say nothing, later turns, windows, approvals. On the simulated fleet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from fleet import decision
from fleet.core.errors import Locked
from fleet.core.model import Node
from fleet.inventory.rollouts import Approval
from tests.upgrade.site import Site

TEN = [f"n{i}" for i in range(10)]


def drive(site: Site, each: Callable[[], object] = lambda: None, ticks: int = 4000, step_s: float = 1.0) -> None:
    """Tick until the rollout rests, `each` before every tick; the fleet's own clock goes on by `step_s` a tick."""
    lease = site.store.acquire("r-1", site.engine.owner, 1e9, 0.0, lambda _: True)
    for _ in range(ticks):
        each()
        site.fleet.clock += step_s
        if site.upgrade.tick("r-1", lease, False).resting:
            return
    raise AssertionError(f"it never rested: {site.states()} {site.store.rollout('r-1').reason}")


def fault(site: Site, name: str, *faults: str) -> None:
    site.fleet.change(name, faults=list(faults))


def once_done(site: Site, name: str, then: Callable[[], object]) -> Callable[[], None]:
    """Do something once, as soon as that node is done."""
    did = False

    def look() -> None:
        nonlocal did
        if not did and site.states()[name] == "done":
            did = True
            then()

    return look


def reasons(site: Site) -> dict[str, str]:
    return {name: stored.task.reason for name, stored in site.store.tasks("r-1").items()}


def test_a_canary_that_sickens_while_it_is_watched_goes_back_and_nothing_follows(site: Site) -> None:
    site.start(site.nodes(*TEN), soak_s=600)
    began = site.fleet.clock
    drive(site, once_done(site, "n0", lambda: fault(site, "n0", "sick")))
    assert site.fleet.clock - began >= 600
    assert site.states()["n0"] == "rolled-back" and set(list(site.states().values())[1:]) == {"held"}
    assert site.fleet.state("n0")["loaded"] == {"driver": "1.0"} and site.fleet.state("n0")["cordoned"] == ""
    assert reasons(site)["n5"].startswith("gate: wave 1: 1 of 1 upgraded nodes are not well: n0 (health: a card is")
    assert [j.verdict for j in site.store.waves("r-1")[0].gate.values()] == ["fail"]
    assert not [what for name in TEN[1:] for what in site.fleet.effects(name)]
    record = [r for r in site.evidence.records("r-1") if r.kind == "gate"]
    assert record[0].body["verdict"] == "fail" and len(record[0].body["control"]) == 8  # type: ignore[arg-type]


def test_a_wave_is_watched_before_the_next_begins(site: Site) -> None:
    site.start(site.nodes(*TEN), soak_s=300)
    said: set[str] = set()
    drive(site, lambda: said.add(site.store.rollout("r-1").reason))
    assert set(site.states().values()) == {"done"}
    waves = site.store.waves("r-1")
    for before, after in pairwise(waves):
        assert after.began - before.ended >= 300
    assert any(text.startswith("soak: wave 1 is watched until") for text in said)
    assert all(j.verdict == "pass" for wave in waves for j in wave.gate.values())
    assert site.store.rollout("r-1").reason == ""


def test_ill_untouched_nodes_make_it_ask_and_resume_goes_on(site: Site) -> None:
    site.start(site.nodes(*TEN))

    def storm() -> None:
        for name in TEN:
            site.fleet.change(name, faults=["sick-anyway"])

    drive(site, once_done(site, "n0", storm))
    row = site.store.rollout("r-1")
    assert row.state == "paused" and row.reason.startswith("gate: wave 1: inconclusive: 1 of 1 upgraded nodes")
    assert "8 of 8 untouched ones" in row.reason
    assert site.states() == {"n0": "done", **dict.fromkeys(TEN[1:], "waiting")}
    for name in TEN:
        fault(site, name)
    site.go_on()
    assert set(site.states().values()) == {"done"}
    assert all(j.accepted for j in site.store.waves("r-1")[0].gate.values())


def test_a_silent_canary_is_no_data_and_fails(site: Site) -> None:
    site.start(site.nodes(*TEN))
    drive(site, once_done(site, "n0", lambda: site.fleet.change("n0", up=False)))
    assert "gate: wave 1: 1 of 1 nodes said nothing" in reasons(site)["n1"]
    assert (site.states()["n0"] == "held" and "stale" not in reasons(site)["n0"]) or site.states()["n0"] == "failed"


def test_a_later_wave_that_sickens_is_kept_and_pauses(site: Site) -> None:
    nodes = [replace(node, rack=f"r{i // 4}") for i, node in enumerate(site.nodes(*[f"n{i:02}" for i in range(20)]))]
    site.inventory.put(nodes)
    made = site.start(nodes)
    assert len(made.waves) >= 4
    ill = made.waves[2]

    def sicken() -> None:
        for name in ill:
            fault(site, name, "sick")

    drive(site, once_done(site, ill[-1], sicken))
    row = site.store.rollout("r-1")
    assert row.state == "paused"
    assert row.reason.startswith(f"gate: wave 3: fail: {len(ill)} of {len(ill)} upgraded nodes")
    assert {site.states()[name] for name in ill} == {"done"}
    assert {site.states()[name] for name in made.waves[3]} == {"waiting"}


def test_the_first_wave_that_sickens_goes_back_with_the_canary(site: Site) -> None:
    nodes = site.nodes(*[f"n{i:02}" for i in range(20)])
    made = site.start(nodes)
    first = made.waves[1]

    def sicken() -> None:
        for name in first:
            fault(site, name, "sick")

    drive(site, once_done(site, first[-1], sicken))
    for name in (*made.waves[0], *first):
        assert site.states()[name] == "rolled-back", name
        assert site.fleet.state(name)["installed"] == {"driver": "1.0"}
    assert {site.states()[name] for name in made.waves[2]} == {"held"}
    assert site.store.claims() == {}


def test_a_canary_that_cannot_be_tried_makes_the_next_one_the_canary(site: Site) -> None:
    site.start(site.nodes(*TEN))
    site.fleet.change("n0", installed={"driver": "0.9"}, loaded={"driver": "0.9"})  # somebody was there
    drive(site)
    assert reasons(site)["n0"].startswith("stale:")
    assert set(list(site.states().values())[1:]) == {"done"}
    tasks = site.store.tasks("r-1")
    assert tasks["n1"].task.wave == 0
    ends = {name: min(a.began for a in site.store.attempts("r-1", name)) for name in TEN[1:]}
    assert all(ends["n1"] < began for name, began in ends.items() if name != "n1")


def test_a_node_whose_jobs_outlast_the_drain_has_its_turn_later(site: Site) -> None:
    site.start(site.nodes(*TEN), drain_limit_s=100, revisit_s=5000)
    fault(site, "n3", "busy-for-ever")
    freed = 0.0

    def free() -> None:
        nonlocal freed
        task = site.store.tasks("r-1")["n3"].task
        if task.revisits == 1 and not freed and "n3" not in site.store.claims():
            assert task.state == "waiting" and task.reason.startswith("revisit:")
            assert site.fleet.state("n3")["cordoned"] == ""
            freed = site.fleet.clock
            fault(site, "n3")

    drive(site, free, step_s=20)
    assert set(site.states().values()) == {"done"} and freed
    others = max(a.ended for name in TEN if name != "n3" for a in site.store.attempts("r-1", name))
    mine = [a for a in site.store.attempts("r-1", "n3") if a.attempt == 2]
    assert mine[0].began >= freed + 5000 - 100 and others < mine[0].began
    assert site.store.rollout("r-1").state == "done"


def test_a_window_keeps_nodes_from_beginning_and_lets_those_under_way_end(site: Site) -> None:
    site.fleet.clock = 1_935_964_800.0 + 3600 * 20  # Thursday 2031-05-08T20:00Z
    site.start(site.nodes(*TEN), windows=("22:00-06:00",), window_margin_s=1800)
    begun: list[float] = []
    seen: set[str] = set()

    def look() -> None:
        row = site.store.rollout("r-1")
        if row.reason:
            seen.add(row.reason)
        if not begun and site.store.waves("r-1")[0].began:
            begun.append(site.fleet.clock)

    drive(site, look, step_s=60)
    assert seen == {"window: no window is open before 2031-05-08T22:00Z"}
    assert begun[0] >= 1_935_964_800.0 + 3600 * 22
    assert set(site.states().values()) == {"done"}


def test_nothing_begins_without_a_yes_and_the_canaries_need_their_own(site: Site) -> None:
    made = site.start(site.nodes(*TEN), approve=("start", "canary"))
    site.engine.submit("r-1")
    assert site.store.rollout("r-1").reason.startswith(f"approval: plan {made.id} waits for a yes to begin")
    assert not site.fleet.effects()
    site.go_on()  # resuming is not approving
    assert site.store.rollout("r-1").state == "paused" and not site.fleet.effects()
    site.store.approve(Approval("r-1", made.id, "start", "no", "eve", "not tonight", "2031-05-01T08:00:00Z"))
    site.engine.submit("r-1")
    assert site.store.rollout("r-1").reason == "approval: eve said no: not tonight"
    site.store.approve(Approval("r-1", made.id, "start", "yes", "eve", "", "2031-05-01T09:00:00Z"))
    assert site.store.rollout("r-1").state == "running"
    site.engine.submit("r-1")
    assert site.store.rollout("r-1").reason.startswith(f"approval: plan {made.id} waits for a yes to go on after the")
    assert site.states() == {"n0": "done", **dict.fromkeys(TEN[1:], "waiting")}
    site.store.approve(Approval("r-1", made.id, "canary", "yes", "eve", "", "2031-05-01T10:00:00Z"))
    site.engine.submit("r-1")
    assert set(site.states().values()) == {"done"}


def test_a_yes_is_good_for_one_run_of_a_plan(site: Site) -> None:
    made = site.start(site.nodes("n0"), approve=("start",))
    site.store.approve(Approval("r-1", made.id, "start", "yes", "eve", "", "2031-05-01T07:00:00Z"))
    site.engine.submit("r-1")
    assert site.states() == {"n0": "done"}
    lease = site.store.acquire("r-1", "me", 60.0, 0.0, lambda _: True)
    decision.roll_back(site.upgrade, "r-1", lease)
    site.engine.submit("r-1")
    assert site.states() == {"n0": "rolled-back"}
    decision.start(site.upgrade, "r-2", made, "command", "sha256:m")
    site.engine.submit("r-2")
    assert site.store.rollout("r-2").reason.startswith(f"approval: plan {made.id} waits for a yes to begin")
    site.store.approve(Approval("r-2", made.id, "start", "yes", "eve", "", "2031-05-01T07:00:00Z"))
    site.engine.submit("r-2")
    assert site.states("r-2") == {"n0": "done"}


def test_retry_takes_failed_and_held_nodes_through_it_again(site: Site) -> None:
    site.start(site.nodes(*TEN))
    fault(site, "n0", "fail-install")
    site.engine.submit("r-1")
    assert site.states() == {"n0": "rolled-back", **dict.fromkeys(TEN[1:], "held")}
    assert site.store.rollout("r-1").state == "failed"
    fault(site, "n0")
    again(site, TEN)
    site.engine.submit("r-1")
    assert set(site.states().values()) == {"done"} and site.store.rollout("r-1").state == "done"
    assert all(site.fleet.state(n)["loaded"] == {"driver": "2.0"} for n in TEN)
    assert {a.attempt for a in site.store.attempts("r-1", "n0")} == {1, 2}


def again(site: Site, names: list[str]) -> None:
    lease = site.store.acquire("r-1", site.engine.owner, 30, site.engine.clock(), lambda _: True)
    decision.retry(site.upgrade, "r-1", lease, names)


def test_retry_of_an_ended_rollout_is_refused_while_another_has_its_nodes(site: Site) -> None:
    nodes = site.nodes(*TEN)
    site.start(nodes)
    fault(site, "n0", "fail-install")
    site.engine.submit("r-1")
    decision.start(site.upgrade, "r-2", site.plan_of(nodes[:1], [], gate=False), "other", "sha256:m")
    with pytest.raises(Locked):
        again(site, ["n1"])
    assert site.states()["n1"] == "held"


def test_a_finished_rollout_is_rolled_back_within_its_budget(site: Site) -> None:
    site.start(site.nodes(*TEN), limits={"fleet": "2"})
    site.engine.submit("r-1")
    assert set(site.states().values()) == {"done"}
    site.fleet.change("n4", installed={"driver": "3.0"}, loaded={"driver": "3.0"})  # somebody changed it since
    back(site)
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, sum(site.fleet.state(n)["cordoned"] != "" for n in TEN))

    drive(site, look)
    row = site.store.rollout("r-1")
    assert (row.state, most) == ("rolled-back", 2)
    assert site.states() == {**dict.fromkeys(TEN, "rolled-back"), "n4": "held"}
    assert reasons(site)["n4"].startswith("stale:") and site.fleet.state("n4")["installed"] == {"driver": "3.0"}
    assert all(site.fleet.state(n)["loaded"] == {"driver": "1.0"} for n in TEN if n != "n4")
    assert all(node.lifecycle == "in-service" for node in site.inventory.nodes())


def back(site: Site) -> None:
    lease = site.store.acquire("r-1", site.engine.owner, 30, site.engine.clock(), lambda _: True)
    decision.roll_back(site.upgrade, "r-1", lease)


def test_rolling_back_in_the_middle_turns_begun_nodes_and_leaves_the_rest(site: Site) -> None:
    site.start(site.nodes(*TEN), chunk=2)

    def middle() -> None:
        if site.states()["n1"] == "installing" and site.store.rollout("r-1").request == "":
            site.store.request("r-1", "rollback")

    drive(site, middle)
    states = site.states()
    assert site.store.rollout("r-1").state == "rolled-back"
    assert states["n0"] == "rolled-back" and states["n1"] in ("held", "rolled-back") and states["n9"] == "held"
    assert {frozenset(site.fleet.state(n)["installed"].items()) for n in TEN} == {frozenset({("driver", "1.0")})}
    assert "rolled back by the operator" in reasons(site)["n9"]


@pytest.mark.parametrize("then", ["resume", "abort"])
def test_kill_leaves_nodes_where_they_are_and_a_person_decides(site: Site, then: str) -> None:
    site.start(site.nodes(*TEN))

    def middle() -> None:
        if site.states()["n0"] == "rebooting":
            site.store.request("r-1", "kill")

    drive(site, middle)
    row, task = site.store.rollout("r-1"), site.store.tasks("r-1")["n0"].task
    assert row.state == "paused" and row.reason.startswith("killed by the operator")
    assert task.state == "held" and task.reason == "ambiguous: killed while rebooting"
    assert site.store.claims() == {"n0": "r-1"}
    boots = site.fleet.state("n0")["boots"]
    if then == "resume":
        site.go_on()
        assert set(site.states().values()) == {"done"}
        assert site.fleet.state("n0")["boots"] == max(boots, 1)
    else:
        site.engine.signal("r-1", "abort")
        site.engine.submit("r-1")
        assert site.store.rollout("r-1").state == "aborted"
        assert site.states() == {"n0": "rolled-back", **dict.fromkeys(TEN[1:], "held")}
        assert site.fleet.state("n0")["loaded"] == {"driver": "1.0"}


# --- nodes that move together -----------------------------------------------------------------------------------------


def pod(site: Site, *names: str, **more: Any) -> list[Node]:
    nodes = [replace(node, superpod="sp1") for node in site.nodes(*names, **more)]
    site.inventory.put(nodes)
    return nodes


def test_a_superpod_is_changed_and_returns_to_service_as_one(site: Site) -> None:
    nodes = pod(site, "a", "b", "c")
    fault(site, "b", "busy")
    site.start(nodes)
    marks: list[tuple[bool, tuple[str, ...]]] = []

    def look() -> None:
        changed = any(what.startswith("stop") for what in site.fleet.effects())
        marks.append((changed, tuple(site.states().values())))

    drive(site, look)
    assert set(site.states().values()) == {"done"}
    for changed, states in marks:
        if changed:
            assert not {"waiting", "cordoning", "draining"} & set(states)
        if "done" in states:
            assert set(states) <= {"uncordoning", "done"}


def test_one_that_fails_takes_its_superpod_back(site: Site) -> None:
    fault_later = pod(site, "a", "b", "c")
    fault(site, "c", "fail-install")
    site.start(fault_later)
    site.engine.submit("r-1")
    assert site.states() == dict.fromkeys("abc", "rolled-back")
    assert reasons(site)["a"].startswith("moves with c: ")
    assert {site.fleet.state(n)["loaded"]["driver"] for n in "abc"} == {"1.0"}


def test_one_whose_jobs_do_not_end_puts_the_whole_superpod_off(site: Site) -> None:
    site.start(pod(site, "a", "b", "c"), drain_limit_s=50, revisits=1, revisit_s=100)
    fault(site, "b", "busy-for-ever")
    drive(site, step_s=5)
    assert site.states() == dict.fromkeys("abc", "held")
    assert all(reason.startswith("revisit:") for reason in reasons(site).values())
    assert not [what for what in site.fleet.effects() if what.startswith(("stop", "install"))]
    assert site.store.claims() == {} and all(site.fleet.state(n).get("cordoned", "") == "" for n in "abc")


def test_a_part_of_a_superpod_is_refused_unless_it_may_be_split(site: Site) -> None:
    nodes = pod(site, "a", "b", "c")
    made = site.plan_of(nodes[:2], nodes)
    assert "moves together with c, which was not asked for (--split goes without)" in made.refusals["a"]
    assert made.waves == ()
    assert site.plan_of(nodes[:2], nodes, split=True).waves == (("a",), ("b",))
    never = site.plan_of([replace(nodes[0], lifecycle="retired"), *nodes[1:]], nodes)
    assert "moves together" not in never.refusals["a"] and "retired" in never.refusals["b"]


def test_a_wave_begins_with_its_first_node(site: Site) -> None:
    site.start(site.nodes(*TEN[:4]), limits={"fleet": "1"})
    site.engine.submit("r-1")
    assert set(site.states().values()) == {"done"}
    for wave in site.store.waves("r-1"):
        members = [name for name, stored in site.store.tasks("r-1").items() if stored.task.wave == wave.number]
        begun = [min(a.began for a in site.store.attempts("r-1", name)) for name in members]
        assert 0 < wave.began <= min(begun) and wave.ended >= max(begun)
