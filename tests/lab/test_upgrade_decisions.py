"""What a person decides, on real nodes: a yes before anything begins, a kill in the midst, and everything back."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from tests.lab.rehearsal import Rehearsal, default_spec, rehearsal

pytestmark = [pytest.mark.lab, pytest.mark.skipif(os.geteuid() != 0, reason="a lab needs root")]
NEWEST = ("--strategy", "newest", "-y")
OTHER = {"FLEET_OPERATOR": "wang"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rehearsal]:
    with rehearsal(tmp_path_factory.mktemp("decisions"), default_spec("127.103.1", ("br-a", "br-b"))) as one:
        yield one


def test_nothing_begins_before_the_yes_and_a_kill_in_the_midst_is_gone_on_with(site: Rehearsal) -> None:
    wanted = site.wanted("br-a", "--strategy", "newest")["br-a"]
    asked = site.document("upgrade", "br-a", "--approve", "start", *NEWEST, kind="Rollout", ok=(8,))
    rollout = asked["id"]
    assert asked["reason"].startswith(f"approval: plan {asked['plan']} waits for a yes") and not site.effects("br-a")
    site.fleet("rollout", "approve", rollout, "-y", ok=(5,))  # by whoever began it
    site.fleet("rollout", "approve", rollout, "--plan", asked["plan"], "-y", env=OTHER)

    begun = site.begin("rollout", "resume", rollout)
    site.await_phase(begun, "br-a", "install", lambda: bool(site.runs_on("br-a")))
    at = time.monotonic()
    site.fleet("rollout", "kill", rollout, "-y", ok=(0, 8))
    ran = begun.ran()
    assert ran.rc == 8, str(ran)
    assert time.monotonic() - at < 60  # it waits for nothing that a node does
    assert site.playbooks() == []
    row, stored = site.rollout("br-a")
    assert row.state == "paused" and row.reason.startswith("killed by the operator")
    assert stored.task.reason in ("ambiguous: killed while installing", "ambiguous: killed while rebooting")

    done = site.document("rollout", "resume", rollout, kind="Rollout")
    assert done["state"] == "done" and set(site.effects("br-a").values()) == {1}
    after = site.current("br-a")["br-a"]
    assert {c: after.get(c) for c in wanted} == {c: new for c, (_, new) in wanted.items()}
    site.evidence_is_whole(rollout)


def test_a_rollout_that_is_over_is_taken_back_and_tried_again(site: Rehearsal) -> None:
    before = site.current("br-b")["br-b"]
    done = site.document("upgrade", "br-b", *NEWEST, kind="Rollout")
    after = site.current("br-b")["br-b"]
    assert done["state"] == "done" and before != after
    back = site.document("rollout", "rollback", done["id"], "-y", kind="Rollout")
    assert (back["id"], back["state"], back["nodes"][0]["state"]) == (done["id"], "rolled-back", "rolled-back")
    assert site.current("br-b")["br-b"] == before
    again = site.document("rollout", "retry", done["id"], "br-b", "-y", kind="Rollout")
    assert again["state"] == "done" and site.current("br-b")["br-b"] == after
    shown = site.document("rollout", "show", done["id"], kind="Rollout")
    assert {wave["number"]: {j["verdict"] for j in wave["gate"].values()} for wave in shown["waves"]} == {1: {"pass"}}
    site.evidence_is_whole(done["id"])
