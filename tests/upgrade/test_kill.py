"""A kill in the midst of going back: whoever goes on afterwards still goes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet import decision
from fleet.core.move import Request
from fleet.inventory.rollouts import Lease
from tests.upgrade.site import Site

NAMES = ["n0", "n1", "n2"]


def rest(site: Site, lease: Lease) -> str:
    for _ in range(200):
        if site.upgrade.tick("r-1", lease, False).resting:
            return site.store.rollout("r-1").state
    raise AssertionError(f"it does not come to rest: {site.states()}")


@pytest.mark.parametrize(
    ("asked", "killed", "end"),
    [("rollback", "kill-rollback", "rolled-back"), ("abort", "kill-abort", "aborted")],
)
def test_a_kill_on_the_way_back_forgets_nothing(tmp_path: Path, asked: Request, killed: str, end: str) -> None:
    site = Site(tmp_path)
    site.start(site.nodes(*NAMES), limits={"fleet": "100%"})
    lease = site.store.acquire("r-1", "me", 600.0, 0.0, lambda _: True)
    for _ in range(60):
        site.upgrade.tick("r-1", lease, False)
        if site.states()["n0"] == "validating":
            break
    site.store.request("r-1", asked)
    for _ in range(60):
        site.upgrade.tick("r-1", lease, False)
        task = site.store.tasks("r-1")["n0"].task
        if task.direction == "back" and task.cursor > 0:
            break
    assert site.states()["n0"] not in ("rolled-back", "held")
    site.store.request("r-1", "kill")
    assert rest(site, lease) == "paused"
    assert site.store.rollout("r-1").request == killed
    site.store.request("r-1", "pause")
    assert site.store.rollout("r-1").request == killed
    decision.reopen(site.upgrade, "r-1", lease)
    assert rest(site, lease) == end
    assert site.states() == {"n0": "rolled-back", "n1": "held", "n2": "held"}
    assert site.fleet.state("n0")["loaded"] == {"driver": "1.0"}
    assert {effect.node for effect in site.fleet.log()} == {"n0"}
    assert site.store.claims() == {}
    site.close()
