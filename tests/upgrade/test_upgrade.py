"""The acting loop on a simulated fleet: the whole way, failures, the way back, pauses, overlaps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleet import decision
from fleet.core.errors import Locked, StalePlan
from fleet.core.model import Hold, Solution, Stage, VersionChange
from fleet.inventory.rollouts import Fenced
from tests.upgrade.simfleet import solution
from tests.upgrade.site import Site


def driver(site: Site, name: str) -> tuple[str, str]:
    state = site.fleet.state(name)
    return state["installed"]["driver"], state["loaded"]["driver"]


def test_every_node_gets_the_new_stack(site: Site) -> None:
    nodes = site.nodes(*[f"n{i}" for i in range(6)])
    site.start(nodes)
    site.engine.submit("r-1")
    assert set(site.states().values()) == {"done"}
    assert site.store.rollout("r-1").state == "done"
    for node in nodes:
        assert driver(site, node.name) == ("2.0", "2.0")
        effects = site.fleet.effects(node.name)
        assert len(effects) == len(set(effects)) and effects.count("reboot") == 1
        assert site.fleet.state(node.name)["cordoned"] == ""
        assert site.inventory.node(node.name).lifecycle == "in-service"
    assert site.store.claims() == {}
    assert site.evidence.verify("r-1").ok
    assert {r.origin for r in site.evidence.records("r-1")} == {"lab"}
    assert site.inventory.facts(["n0"])["n0"].current()["driver"] == "2.0"


def test_the_canary_goes_first_and_alone(site: Site) -> None:
    site.start(site.nodes(*[f"n{i}" for i in range(5)]))
    site.engine.submit("r-1")
    order = [t.node for t in site.seen if t.now == "done"]
    begun = [t.node for t in site.seen if t.result == "begun"]
    assert begun[0] == "n0" and order[0] == "n0"
    first_other = next(i for i, t in enumerate(site.seen) if t.node not in ("", "n0"))
    assert any(t.node == "n0" and t.now == "done" for t in site.seen[:first_other])


def test_a_node_that_fails_validation_gets_its_old_stack_back(site: Site) -> None:
    nodes = [*site.nodes(*[f"n{i}" for i in range(8)])]
    site.fleet.change("n5", faults=["sick"])
    site.start(nodes)
    site.engine.submit("r-1")
    states = site.states()
    assert states.pop("n5") == "rolled-back"
    assert set(states.values()) == {"done"}
    assert driver(site, "n5") == ("1.0", "1.0")
    task = site.store.tasks("r-1")["n5"].task
    assert "validation: health" in task.reason and task.owner
    assert site.store.rollout("r-1").state == "failed"
    assert site.inventory.node("n5").lifecycle == "in-service"
    assert site.fleet.state("n5")["cordoned"] == ""


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("fail-install", "made-up"),
        ("stale-module", "not-in-force"),
        ("lying-installer", "not-changed"),
    ],
)
def test_failures_after_a_change_take_the_way_back(site: Site, fault: str, words: str) -> None:
    nodes = site.nodes(*[f"n{i}" for i in range(8)])
    site.fleet.change("n7", faults=[fault])
    site.start(nodes)
    site.engine.submit("r-1")
    task = site.store.tasks("r-1")["n7"].task
    assert (task.state, words in task.reason) == ("rolled-back", True)
    assert driver(site, "n7") == ("1.0", "1.0")


def test_a_failure_before_any_change_leaves_the_node_as_it_was(site: Site) -> None:
    nodes = site.nodes(*[f"n{i}" for i in range(8)])
    site.fleet.change("n3", faults=["fail-preflight"])
    site.start(nodes)
    site.engine.submit("r-1")
    task = site.store.tasks("r-1")["n3"].task
    assert task.state == "failed" and "made-up" in task.reason
    assert "install" not in " ".join(site.fleet.effects("n3")) and "reboot" not in site.fleet.effects("n3")
    assert site.inventory.node("n3").lifecycle == "in-service"


def test_a_failing_canary_holds_the_rest_of_its_cell(site: Site) -> None:
    nodes = site.nodes(*[f"n{i}" for i in range(6)])
    site.fleet.change("n0", faults=["sick"])
    site.start(nodes)
    site.engine.submit("r-1")
    states = site.states()
    assert states.pop("n0") == "rolled-back"
    assert set(states.values()) == {"held"}
    assert all(driver(site, name) == ("1.0", "1.0") for name in states)
    assert "canary: n0 failed" in site.store.tasks("r-1")["n4"].task.reason


def test_too_many_failures_pause_and_resume_goes_on(site: Site) -> None:
    nodes = site.nodes(*[f"n{i}" for i in range(12)])
    for name in ("n1", "n2", "n3"):
        site.fleet.change(name, faults=["fail-preflight"])
    site.start(nodes, chunk=1)
    site.engine.submit("r-1")
    assert site.store.rollout("r-1").state == "paused"
    assert "nodes failed" in site.store.rollout("r-1").reason
    assert "waiting" in site.states().values()
    site.go_on()
    assert site.store.rollout("r-1").state == "failed"
    assert sorted(set(site.states().values())) == ["done", "failed"]


def test_a_silent_or_foreign_node_is_named_and_left(site: Site) -> None:
    nodes = site.nodes(*[f"n{i}" for i in range(16)])
    site.fleet.change("n4", up=False)
    site.fleet.change("n5", faults=["foreign"])
    site.start(nodes)
    site.engine.submit("r-1")
    tasks = site.store.tasks("r-1")
    assert tasks["n4"].task.state == "failed" and "silent" in tasks["n4"].task.reason
    assert tasks["n5"].task.state == "failed" and "repair ticket 7" in tasks["n5"].task.reason
    assert list(site.states().values()).count("done") == 14


def test_a_node_that_moved_since_it_was_planned_is_stale(site: Site) -> None:
    nodes = site.nodes("n0", "n1", "n2")
    site.start(nodes)
    site.fleet.change("n2", installed={"driver": "1.5"}, loaded={"driver": "1.5"})
    site.engine.submit("r-1")
    task = site.store.tasks("r-1")["n2"].task
    assert task.state == "held" and task.reason.startswith("stale")
    assert driver(site, "n2") == ("1.5", "1.5")
    assert site.states()["n1"] == "done"


def test_a_node_that_does_not_come_back_is_out_of_service_with_a_next_action(site: Site) -> None:
    nodes = site.nodes(*[f"n{i}" for i in range(9)])
    site.fleet.change("n8", faults=["dead-after-reboot"])
    site.start(nodes)
    site.engine.submit("r-1")
    task = site.store.tasks("r-1")["n8"].task
    assert task.state == "failed" and "no-return" in task.reason and task.next_action
    assert site.inventory.node("n8").lifecycle == "broken"


def test_power_cycle_with_and_without_power_control(site: Site) -> None:
    nodes = site.nodes("n0", "n1", "n2")
    site.fleet.change("n1", faults=["no-power"])
    site.start(nodes, answer=solution(reboot="power_cycle"))
    site.engine.submit("r-1")
    assert site.states() == {"n0": "done", "n1": "held", "n2": "done"}
    assert site.fleet.state("n0")["cycles"] == 1 and site.fleet.state("n1")["cycles"] == 0
    assert site.store.rollout("r-1").state == "paused"
    assert "n1" in site.store.claims()
    site.fleet._boot("n1", "by hand")
    site.go_on()
    assert site.states()["n1"] == "done"
    assert site.store.rollout("r-1").state == "done"


def test_a_power_cycle_that_fails_is_that_nodes_alone(site: Site) -> None:
    nodes = site.nodes("n0", "n1", "n2", "n3")
    site.fleet.change("n2", faults=["power-fails"])
    site.start(nodes, answer=solution(reboot="power_cycle"))
    site.engine.submit("r-1")
    assert site.states() == {"n0": "done", "n1": "done", "n2": "failed", "n3": "done"}
    assert "power-failed" in site.store.tasks("r-1")["n2"].task.reason


def test_overlapping_nodes_are_refused(site: Site) -> None:
    nodes = site.nodes("n0", "n1", "n2")
    site.start(nodes[:2])
    with pytest.raises(Locked) as caught:
        site.start(nodes[1:], rollout="r-2")
    assert "r-1" in caught.value.what and caught.value.exit_code == 7
    site.engine.submit("r-1")
    site.start([nodes[2]], rollout="r-2")


def test_tables_that_changed_make_a_plan_stale(site: Site) -> None:
    made = site.start(site.nodes("n0"))
    with pytest.raises(StalePlan):
        decision.start(site.upgrade, "r-2", made, "", "sha256:other")


def test_a_lost_lease_writes_nothing(site: Site) -> None:
    site.start(site.nodes("n0", "n1"))
    old = site.store.acquire("r-1", "one", 30, 0.0, lambda _: True)
    site.store.acquire("r-1", "two", 30, 100.0, lambda _: True)
    before = site.states()
    with pytest.raises(Fenced):
        for _ in range(50):
            site.upgrade.tick("r-1", old, False)
    assert site.states() == before
    assert site.fleet.effects() == []


def test_budgets_hold_at_every_moment(site: Site) -> None:
    nodes = site.nodes(*[f"n{i}" for i in range(8)])
    site.start(nodes, limits={"fleet": "25%"})
    most = 0
    lease = site.store.acquire("r-1", "me", 600, 0.0, lambda _: True)
    for _ in range(2000):
        if site.upgrade.tick("r-1", lease, False).resting:
            break
        most = max(most, len(site.store.claims()))
    assert most == 2
    assert set(site.states().values()) == {"done"}


def test_a_budget_that_can_never_be_met_pauses(site: Site) -> None:
    site.start(site.nodes("n0", "n1"), limits={"fleet": "0"})
    site.engine.submit("r-1")
    row = site.store.rollout("r-1")
    assert row.state == "paused" and row.reason.startswith("budget: impossible: fleet")


def test_pause_and_abort(site: Site) -> None:
    nodes = site.nodes(*[f"n{i}" for i in range(6)])
    site.start(nodes, chunk=1)
    lease = site.store.acquire("r-1", site.engine.owner, 600, 0.0, lambda _: True)
    while not any(state == "installing" for state in site.states().values()):
        site.upgrade.tick("r-1", lease, False)
    site.engine.signal("r-1", "pause")
    site.engine.submit("r-1")
    assert site.store.rollout("r-1").state == "paused"
    assert sorted(set(site.states().values())) == ["done", "waiting"]
    site.go_on_then_abort()
    assert site.store.rollout("r-1").state == "aborted"
    assert set(site.states().values()) <= {"done", "rolled-back", "failed", "held"}
    for node in nodes:
        assert driver(site, node.name) in (("1.0", "1.0"), ("2.0", "2.0"))


def test_drain_without_end_gives_the_node_back(site: Site) -> None:
    nodes = site.nodes(*[f"n{i}" for i in range(9)])
    site.fleet.change("n6", faults=["busy-for-ever"])
    site.start(nodes)

    def later(transition: Any) -> None:
        if transition.now == "draining":
            site.fleet.clock += 2000

    site.upgrade.telling.watch = later
    lease = site.store.acquire("r-1", site.engine.owner, 1e9, 0.0, lambda _: True)
    for _ in range(3000):
        site.fleet.clock += 20
        if site.upgrade.tick("r-1", lease, False).resting:
            break
    task = site.store.tasks("r-1")["n6"].task
    assert task.state == "held" and task.reason.startswith("revisit:") and "drain did not end" in task.reason
    assert task.revisits == 3
    assert site.fleet.state("n6")["cordoned"] == ""


def test_two_stages_and_a_failure_in_the_second(site: Site) -> None:
    def change(old: str, new: str) -> Stage:
        return Stage((VersionChange("driver", old, new),), "reboot")

    hop = Solution(
        {"driver": "3.0"},
        (change("1.0", "2.0"), change("2.0", "3.0")),
        (change("3.0", "2.0"), change("2.0", "1.0")),
    )
    nodes = site.nodes(*[f"n{i}" for i in range(9)])
    site.fleet.change("n8", faults=["stale-module"])  # fails at the first verify: only one stage to take back
    site.start(nodes, answer=hop)
    site.engine.submit("r-1")
    assert driver(site, "n0") == ("3.0", "3.0")
    assert site.states()["n8"] == "rolled-back"
    assert driver(site, "n8") == ("1.0", "1.0")
    assert site.fleet.effects("n8").count("reboot") == 2


def test_stopping_ends_the_running_steps_and_leaves_the_rest_for_later(site: Site) -> None:
    nodes = site.nodes("n0", "n1", "n2")
    site.start(nodes)

    def stop(transition: Any) -> None:
        if transition.now == "installing":
            site.engine.stop.set()

    site.upgrade.telling.watch = stop
    site.engine.submit("r-1")
    attempts = site.store.attempts("r-1")
    assert attempts and all(attempt.ended for attempt in attempts)
    assert site.store.rollout("r-1").state == "running"
    assert site.states()["n0"] == "installing" and site.states()["n1"] == "waiting"
    site.engine.stop.clear()
    site.upgrade.telling.watch = site.seen.append
    site.engine.submit("r-1")
    assert set(site.states().values()) == {"done"}
    assert all(len(e) == len(set(e)) for e in (site.fleet.effects(n.name) for n in nodes))


def test_groups_go_side_by_side_in_threads(tmp_path: Path) -> None:
    site = Site(tmp_path, parallel=4)
    site.start(site.nodes(*[f"n{i}" for i in range(9)]), chunk=2)
    site.engine.submit("r-1")
    assert set(site.states().values()) == {"done"}
    for number in range(9):
        effects = site.fleet.effects(f"n{number}")
        assert len(effects) == len(set(effects))
    site.close()


def test_a_node_removed_meanwhile_ends_its_part(site: Site) -> None:
    nodes = site.nodes("n0", "n1", "n2")
    site.start(nodes)
    lease = site.store.acquire("r-1", site.engine.owner, 600, 0.0, lambda _: True)
    while not any(t.node == "n1" and t.result == "begun" for t in site.seen):
        site.upgrade.tick("r-1", lease, False)
    site.inventory.remove(["n1"])
    site.engine.submit("r-1")
    assert site.states() == {"n0": "done", "n1": "failed", "n2": "done"}
    assert "removed" in site.store.tasks("r-1")["n1"].task.reason


def test_a_hold_after_the_plan_is_respected(site: Site) -> None:
    nodes = site.nodes("n0", "n1", "n2")
    site.start(nodes)
    site.inventory.hold(["n1"], Hold("li", "repair"))
    site.engine.submit("r-1")
    assert site.states() == {"n0": "done", "n1": "held", "n2": "done"}
    assert "hold: li: repair" in site.store.tasks("r-1")["n1"].task.reason
    assert site.fleet.effects("n1") == []


def test_two_rollouts_share_the_budget(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.nodes(*[f"n{i}" for i in range(8)])
    nodes = site.inventory.nodes()
    site.start(nodes[:4], limits={"fleet": "2"})
    site.start(nodes[4:], rollout="r-2", limits={"fleet": "2"})
    leases = {name: site.store.acquire(name, "me", 1e9, 0.0, lambda _: True) for name in ("r-1", "r-2")}
    most, resting = 0, set()
    for _ in range(4000):
        for name, lease in leases.items():
            if name not in resting and site.upgrade.tick(name, lease, False).resting:
                resting.add(name)
            most = max(most, len(site.store.claims()))
        if len(resting) == 2:
            break
    assert most == 2 and resting == {"r-1", "r-2"}
    assert {*site.states("r-1").values(), *site.states("r-2").values()} == {"done"}
    site.close()


def test_what_a_node_was_before_is_kept_through_every_step(site: Site) -> None:
    nodes = site.nodes("n0", "n1")
    site.start(nodes)
    site.engine.submit("r-1")
    for stored in site.store.tasks("r-1").values():
        name = stored.task.node
        cards = [f"{name}-0", f"{name}-1"]
        assert stored.prior == {
            "lifecycle": "in-service", "count": 2, "cards": cards, "drain": {"cordoned": True},
        }  # fmt: skip
