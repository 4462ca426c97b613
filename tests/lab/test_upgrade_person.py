"""What people do to a rollout: two of them on one node, Ctrl-C, and hands where no machine can switch the power."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from tests.lab.rehearsal import Rehearsal, default_spec, rehearsal

pytestmark = [pytest.mark.lab, pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root")]
NEWEST = ("--strategy", "newest", "-y")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    spec = default_spec("127.92.5", ("br-a", "br-b", "mx-a", "mx-b", "nv-b"))
    with rehearsal(tmp_path_factory.mktemp("person"), spec) as one:
        yield one


def test_a_node_belongs_to_one_rollout(site: Rehearsal) -> None:
    begun = site.begin("upgrade", "br-a", *NEWEST)
    site.await_phase(begun, "br-a", "stage")
    row, _ = site.rollout("br-a")
    same = site.fleet("upgrade", "br-a", *NEWEST, ok=(7,))
    assert row.id in same.err, str(same)
    other = site.fleet("upgrade", "br-a,br-b", *NEWEST, ok=(7,))
    assert row.id in other.err, str(other)
    assert "br-a" in other.err
    assert begun.ran().rc == 0
    with site.store() as store:
        assert [r.id for r in store.rollouts() if "br-a" in store.tasks(r.id)] == [row.id]
        assert not any("br-b" in store.tasks(r.id) for r in store.rollouts())
    assert sum(site.effects("br-b").values()) == 0


def test_ctrl_c_ends_the_running_step_and_resume_goes_on(site: Rehearsal) -> None:
    begun = site.begin("upgrade", "nv-b", *NEWEST)
    site.await_phase(begun, "nv-b", "install", lambda: bool(site.runs_on("nv-b")))
    begun.interrupt()
    ran = begun.ran()
    row, stored = site.rollout("nv-b")
    assert ran.rc == 130, str(ran)
    assert f"fleet rollout resume {row.id}" in ran.err
    with site.store() as store:
        attempts = store.attempts(row.id, "nv-b")
    assert [(a.phase, a.state) for a in attempts[-1:]] == [("install", "done")]  # ended, and nothing begun after it
    assert not stored.task.ended
    assert site.runs_on("nv-b") == []
    assert site.playbooks() == []
    assert site.lab.state("nv-b").read()["boots"] == 1

    shown = site.document("rollout", "show", row.id, kind="Rollout")
    assert shown["state"] == "running"
    listed = site.document("rollout", "list", kind="RolloutList")["items"]
    assert [(item["id"], item["driver"]) for item in listed] == [(row.id, "")]
    done = site.document("rollout", "resume", row.id, kind="Rollout")
    assert (done["id"], done["state"]) == (row.id, "done")
    assert set(site.effects("nv-b").values()) == {1}
    assert site.lab.state("nv-b").read()["boots"] == 2
    site.evidence_is_whole(row.id)


def test_a_power_cycle_is_made_by_the_power_command(site: Rehearsal) -> None:
    wanted = site.wanted("mx-a", "--strategy", "newest")["mx-a"]
    rollout = site.document("upgrade", "mx-a", *NEWEST, kind="Rollout")
    assert [node["state"] for node in rollout["nodes"]] == ["done"]
    state = site.lab.state("mx-a").read()
    assert (state["power_cycles"], state["boots"]) == (1, 2)
    after = site.current("mx-a")["mx-a"]
    assert {c: after.get(c) for c in wanted} == {c: new for c, (_, new) in wanted.items()}
    assert set(site.effects("mx-a").values()) == {1}


def test_without_a_power_command_it_waits_for_hands(site: Rehearsal) -> None:
    none = {"FLEET_POWER_COMMAND": ""}
    wanted = site.wanted("mx-b", "--strategy", "newest")["mx-b"]
    rollout = site.document("upgrade", "mx-b", *NEWEST, kind="Rollout", ok=(8,), env=none)
    node = rollout["nodes"][0]
    assert rollout["state"] == "paused"
    assert (node["state"], node["owner"]) == ("held", "operator")
    assert node["reason"].startswith("hands: "), node
    assert "power-cycle mx-b" in node["nextAction"]
    assert rollout["id"] in node["nextAction"]
    assert site.lab.state("mx-b").read()["power_cycles"] == 0

    again = site.fleet("upgrade", "mx-b", *NEWEST, ok=(8,), env=none)  # the same command says what it waits for
    assert f"fleet rollout resume {rollout['id']}" in again.err
    # Resumed too early: nothing was switched, so it still waits.
    early = site.document("rollout", "resume", rollout["id"], kind="Rollout", ok=(8,), env=none)
    assert early["nodes"][0]["state"] == "held"

    site.fleet("lab", "power", "--dir", str(site.lab.folder), "mx-b", "cycle", "--off-seconds", "60")
    end = time.monotonic() + 300
    while site.lab.phase("mx-b") != "up":
        assert time.monotonic() < end
        time.sleep(0.1)
    done = site.document("rollout", "resume", rollout["id"], kind="Rollout", env=none)
    assert [one["state"] for one in done["nodes"]] == ["done"]
    assert site.lab.state("mx-b").read()["power_cycles"] == 1
    after = site.current("mx-b")["mx-b"]
    assert {c: after.get(c) for c in wanted} == {c: new for c, (_, new) in wanted.items()}
    assert set(site.effects("mx-b").values()) == {1}
    site.evidence_is_whole(rollout["id"])
