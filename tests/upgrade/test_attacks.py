"""What goes wrong around gates, retries and ways back: looks that break, nodes that vanish, deaths at odd moments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fleet import decision
from fleet.core.model import Hold, Node
from fleet.core.task import begin, failing
from fleet.inventory.rollouts import Lease
from fleet.probe import Probed
from tests.upgrade.site import Site
from tests.upgrade.test_gates import TEN, back, drive, fault, pod, reasons


def lease_of(site: Site) -> Lease:
    return site.store.acquire("r-1", site.engine.owner, 1e9, 0.0, lambda _: True)


def test_a_look_of_the_gate_that_breaks_is_told_and_done_again(site: Site) -> None:
    site.start(site.nodes(*TEN))
    broken = True

    def look(nodes: Sequence[Node]) -> Iterator[Probed]:
        if broken and len(nodes) > 1:
            raise OSError("no more file handles")
        return site.fleet.look(nodes)

    site.upgrade.hands = replace(site.upgrade.hands, look=look)
    lease = lease_of(site)
    said: set[str] = set()
    for tick in range(400):
        site.fleet.clock += 0.001
        progress = site.upgrade.tick("r-1", lease, False)
        assert not progress.resting or not broken
        said.add(site.store.rollout("r-1").reason)
        broken = tick < 200
        if progress.resting:
            break
    assert set(site.states().values()) == {"done"}
    assert any("no more file handles" in text for text in said)
    assert site.store.rollout("r-1").reason == ""


def test_a_gate_over_nodes_that_were_removed(site: Site) -> None:
    site.start(site.nodes(*TEN), soak_s=100)
    gone = False

    def remove() -> None:
        nonlocal gone
        if not gone and site.states()["n0"] == "done":
            gone = True
            site.inventory.remove(["n0"])

    drive(site, remove)
    assert site.store.rollout("r-1").state == "failed"
    assert reasons(site)["n0"].startswith("removed:") or "removed" in reasons(site)["n0"]
    assert site.store.claims() == {}


def test_rolling_back_with_a_node_that_was_removed(site: Site) -> None:
    site.start(site.nodes(*TEN))
    site.engine.submit("r-1")
    site.inventory.remove(["n3"])
    back(site)
    drive(site)
    assert site.states() == {**dict.fromkeys(TEN, "rolled-back"), "n3": "held"}
    assert "removed" in reasons(site)["n3"]


def test_a_rollback_of_which_a_node_cannot_be_drained_is_no_success(site: Site) -> None:
    site.start(site.nodes(*TEN), drain_limit_s=50)
    site.engine.submit("r-1")
    fault(site, "n3", "busy-for-ever")
    back(site)
    drive(site, step_s=5)
    assert site.fleet.state("n3")["installed"] == {"driver": "2.0"}
    row = site.store.rollout("r-1")
    assert row.state == "failed" and "n3" in row.reason, (row, reasons(site)["n3"], site.states())


def test_a_rollback_of_which_the_way_back_fails_is_no_success(site: Site) -> None:
    site.start(site.nodes(*TEN))
    site.engine.submit("r-1")
    fault(site, "n3", "dead-after-reboot")
    back(site)
    drive(site)
    row = site.store.rollout("r-1")
    assert site.states()["n3"] == "failed"
    assert row.state == "failed" and "n3" in row.reason


@pytest.mark.parametrize("what", ["rollback", "abort"])
def test_a_way_back_that_died_goes_on_with_resume(site: Site, what: str) -> None:
    site.start(site.nodes(*TEN), chunk=2)
    if what == "rollback":
        site.engine.submit("r-1")
        back(site)  # and the process dies
    else:
        lease = lease_of(site)
        while site.states()["n0"] != "rebooting":
            site.upgrade.tick("r-1", lease, False)
        site.store.request("r-1", "abort")  # and the process dies
    site.go_on()
    assert site.store.rollout("r-1").state == ("rolled-back" if what == "rollback" else "aborted")
    assert {frozenset(site.fleet.state(n)["installed"].items()) for n in TEN} == {frozenset({("driver", "1.0")})}


def test_a_rollback_that_is_paused_goes_on_as_a_rollback(site: Site) -> None:
    site.start(site.nodes(*TEN), limits={"fleet": "2"})
    site.engine.submit("r-1")
    back(site)
    paused = False

    def pause() -> None:
        nonlocal paused
        if not paused and list(site.states().values()).count("rolled-back") >= 4:
            paused = True
            site.store.request("r-1", "pause")

    drive(site, pause)
    row = site.store.rollout("r-1")
    assert row.state == "paused" and row.reason == "paused by the operator", row
    assert "waiting" in site.states().values()
    site.go_on()
    assert site.store.rollout("r-1").state == "rolled-back"
    assert set(site.states().values()) == {"rolled-back"}


def test_a_superpod_of_which_one_cannot_go_back_stays_whole(site: Site) -> None:
    site.start(pod(site, "a", "b", "c"), drain_limit_s=50)
    site.engine.submit("r-1")
    assert set(site.states().values()) == {"done"}
    fault(site, "b", "busy-for-ever")
    back(site)
    drive(site, step_s=5)
    assert len({site.fleet.state(n)["installed"]["driver"] for n in "abc"}) == 1, (site.states(), reasons(site))
    assert all(site.fleet.state(n)["cordoned"] == "" for n in "abc")
    assert site.store.rollout("r-1").state == "failed"
    assert site.store.claims() == {} and all(n.lifecycle == "in-service" for n in site.inventory.nodes())
    fault(site, "b")
    back(site)  # once its jobs have ended
    drive(site, step_s=5)
    assert site.store.rollout("r-1").state == "rolled-back"
    assert {site.fleet.state(n)["installed"]["driver"] for n in "abc"} == {"1.0"}


def test_a_superpod_member_tried_again_in_vain_takes_the_others_back(site: Site) -> None:
    site.start(pod(site, "a", "b", "c"), gate=False, ignore_canary=True)
    site.engine.submit("r-1")
    tasks = site.store.tasks("r-1")
    lease = lease_of(site)  # b could not return to service
    site.store.put(lease, [(replace(tasks["b"].task, state="failed", reason="uncordon said no"), None, None)])
    fault(site, "b", "fail-validate")
    decision.retry(site.upgrade, "r-1", lease, ["b"])
    drive(site)
    assert len({site.fleet.state(n)["installed"]["driver"] for n in "abc"}) == 1, (site.states(), reasons(site))


def test_a_death_between_the_claim_and_the_beginning_changes_no_lifecycle(site: Site) -> None:
    site.start(site.nodes(*TEN))
    lease = lease_of(site)
    nodes = {n.name: n for n in site.inventory.nodes()}
    site.store.claim(lease, [("n5",)], {}, nodes, (), 0.0)  # and the process dies
    site.upgrade.tick("r-1", lease, False)
    assert {n.name: n.lifecycle for n in site.inventory.nodes()}["n5"] == "in-service"
    assert "n5" not in site.store.claims()


def test_an_abort_ends_although_a_node_got_no_place_to_go_back(site: Site) -> None:
    nodes = site.nodes(*[f"n{i:02}" for i in range(20)])
    made = site.start(nodes, limits={"fleet": "1"})
    lease = lease_of(site)
    while site.states()[made.waves[0][0]] != "done":
        site.upgrade.tick("r-1", lease, False)
    # the canary must go back, while somebody else's broken node takes the only place
    site.store.request("r-1", "rollback")
    site.inventory.set_lifecycle(["n19"], "broken")
    for _ in range(50):
        site.fleet.clock += 10
        site.upgrade.tick("r-1", lease, False)
    site.store.request("r-1", "abort")
    row = site.store.rollout("r-1")
    assert row.state == "paused" and row.reason.startswith("budget:")
    before = len(list(site.evidence.records("r-1")))
    for _ in range(50):
        site.fleet.clock += 10
        site.upgrade.tick("r-1", lease, False)
    assert len(list(site.evidence.records("r-1"))) <= before + 1
    assert site.store.rollout("r-1").state == "aborted"
    assert reasons(site)["n00"] == "not taken back: aborted by the operator; rolled back by the operator"
    site.inventory.set_lifecycle(["n19"], "in-service")
    back(site)
    drive(site)
    assert site.store.rollout("r-1").state == "rolled-back" and site.states()["n00"] == "rolled-back"


@pytest.mark.parametrize("begun", [False, True])
def test_a_broken_node_that_was_to_be_tried_again_is_not_said_to_be_untouched(site: Site, begun: bool) -> None:
    site.start(site.nodes("n0"), limits={"fleet": "1"})
    fault(site, "n0", "dead-after-reboot")
    site.engine.submit("r-1")
    assert site.states() == {"n0": "failed"}
    lease = lease_of(site)
    decision.retry(site.upgrade, "r-1", lease, ["n0"])
    if begun:
        tasks = site.store.tasks("r-1")
        group = site.upgrade.plan(site.store.rollout("r-1").plan).groups[0]
        site.store.put(lease, [(begin(group, tasks["n0"].task, 0.0), None, None)])
    site.store.request("r-1", "abort")
    drive(site)
    task = site.store.tasks("r-1")["n0"].task
    assert task.reason == "aborted by the operator; it stands as its last try left it"
    assert task.state == "held"
    assert site.inventory.nodes()[0].lifecycle == "broken"


def test_a_whole_cell_on_hold_ends(site: Site) -> None:
    site.start(site.nodes(*TEN))
    site.inventory.hold(TEN, Hold("eve", "no", ""))
    drive(site)
    assert site.states() == dict.fromkeys(TEN, "held") and site.store.claims() == {}


@pytest.mark.parametrize("state", ["cordoning", "draining", "staging", "installing", "rebooting", "validating",
                                   "uncordoning"])  # fmt: skip
def test_a_superpod_member_that_dies_in_each_state(site: Site, state: str) -> None:
    site.start(pod(site, "a", "b", "c"), drain_limit_s=50)
    fault(site, "c", "busy")
    dead = False

    def die() -> None:
        nonlocal dead
        if not dead and site.states()["b"] == state:
            dead = True
            site.fleet.change("b", up=False)

    drive(site, die, step_s=5)
    assert dead
    if site.store.rollout("r-1").state == "paused":
        site.fleet.change("b", up=True)
        site.go_on()
    states = site.states()
    others = {site.fleet.state(n)["installed"]["driver"] for n in "ac"}
    assert len(others) == 1, (states, reasons(site))
    assert site.store.rollout("r-1").state in ("done", "failed"), (states, reasons(site))
    assert site.store.claims() == {}
    assert all(site.fleet.state(n).get("cordoned", "") == "" for n in "ac")


@pytest.mark.parametrize("state", ["cordoning", "draining", "installing", "rebooting", "uncordoning"])
@pytest.mark.parametrize("how", ["hold", "remove", "retire"])
def test_a_canary_that_a_person_takes_away_in_the_midst(site: Site, state: str, how: str) -> None:
    site.start(site.nodes(*TEN))
    fault(site, "n0", "busy")
    did = False

    def take() -> None:
        nonlocal did
        if not did and site.states()["n0"] == state:
            did = True
            if how == "hold":
                site.inventory.hold(["n0"], Hold("eve", "mine", ""))
            elif how == "retire":
                site.inventory.set_lifecycle(["n0"], "retired")
            else:
                site.inventory.remove(["n0"])

    drive(site, take)
    assert did and site.store.rollout("r-1").finished
    assert site.store.claims() == {}
    assert site.store.rollout("r-1").state == ("failed" if how == "remove" else "done"), reasons(site)


def test_a_plan_without_waves_is_done_at_once(site: Site) -> None:
    made = site.start([])
    assert made.waves == ()
    site.engine.submit("r-1")
    assert site.store.rollout("r-1").state == "done"


def test_resume_accepts_and_retry_leaves_no_failure_counted(site: Site) -> None:
    site.start(site.nodes(*TEN), ignore_canary=True, max_failures="0")
    fault(site, "n0", "fail-install")
    site.engine.submit("r-1")
    assert site.store.rollout("r-1").state == "paused"
    fault(site, "n0")
    lease = lease_of(site)
    assert decision.retry(site.upgrade, "r-1", lease, ["n0"]) == ["n0"]
    drive(site)
    assert set(site.states().values()) == {"done"}
    assert not any(failing(s.task) for s in site.store.tasks("r-1").values())


def test_nodes_that_went_back_say_why_and_not_what_they_waited_for(site: Site) -> None:
    site.start(site.nodes(*TEN), limits={"fleet": "2"})
    site.engine.submit("r-1")
    back(site)
    seen: set[str] = set()
    drive(site, lambda: seen.update(reasons(site).values()))
    assert set(reasons(site).values()) == {"rolled back by the operator"}
    assert any(text.startswith("budget: fleet: 2 of") and text.endswith("rolled back by the operator") for text in seen)


def test_a_node_that_was_killed_on_its_way_back_still_says_why_it_turned(site: Site) -> None:
    site.start(site.nodes(*TEN), gate=False)
    site.engine.submit("r-1")
    back(site)

    def kill() -> None:
        if site.states()["n0"] == "rebooting" and site.store.rollout("r-1").request == "rollback":
            site.store.request("r-1", "kill")

    drive(site, kill)
    assert reasons(site)["n0"] == "ambiguous: killed while rebooting; before that: rolled back by the operator"
    site.go_on()
    assert set(reasons(site).values()) == {"rolled back by the operator"}
    assert set(site.states().values()) == {"rolled-back"}


def test_what_is_asked_of_a_rollout_that_is_over_is_not_noted(site: Site) -> None:
    site.start(site.nodes(*TEN))
    site.engine.submit("r-1")
    assert site.store.request("r-1", "rollback") is False
    assert site.store.rollout("r-1").request == ""


def test_a_rollback_asked_of_a_paused_rollout_sets_it_going(site: Site) -> None:
    site.start(site.nodes(*TEN), approve=("canary",))
    site.engine.submit("r-1")
    assert site.store.rollout("r-1").state == "paused" and site.states()["n0"] == "done"
    assert site.store.request("r-1", "rollback")
    drive(site)
    assert site.store.rollout("r-1").state == "rolled-back"


def test_what_is_asked_while_a_rollout_pauses_is_obeyed(site: Site) -> None:
    made = site.start(site.nodes(*TEN), approve=("canary",))
    lease = lease_of(site)
    set_state = site.store.set_state

    def late(*of: Any) -> None:
        site.store.request("r-1", "abort")
        set_state(*of)

    site.store.set_state = late  # type: ignore[method-assign,assignment]
    drive(site)
    assert site.store.rollout("r-1").state == "aborted", (made.id, lease.fence)
