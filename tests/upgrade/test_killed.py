"""kill -9 at every boundary of a step, then the same again: every node right, nothing done twice."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.upgrade.site import Site

ROOT = Path(__file__).parents[2]
POINTS = [
    ("intend-before", 1),
    ("intend-after", 3),
    ("intend-after", 9),
    ("finish-before", 4),
    ("finish-after", 6),
    ("finish-before", 11),
    ("preflight-after", 1),
    ("stage-before", 1),
    ("stage-after", 2),
    ("stop-after", 1),
    ("install-before", 1),
    ("install-after", 1),
    ("install-after", 3),
    ("reboot-before", 1),
    ("reboot-after", 2),
]


def killed(folder: Path, point: str, number: int) -> None:
    argv = [sys.executable, "-m", "tests.upgrade.killed", str(folder), point, str(number)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize(("point", "number"), POINTS)
def test_a_killed_rollout_goes_on_and_does_nothing_twice(tmp_path: Path, point: str, number: int) -> None:
    site = Site(tmp_path)
    names = [f"n{i}" for i in range(4)]
    nodes = site.nodes(*names)
    site.fleet.change("n3", faults=["sick"])
    site.start(nodes, max_failures="50%")
    killed(tmp_path, point, number)
    assert not site.store.rollout("r-1").finished
    site.engine.submit("r-1")
    assert site.states() == {"n0": "done", "n1": "done", "n2": "done", "n3": "rolled-back"}
    for name in names:
        effects = site.fleet.effects(name)
        state = site.fleet.state(name)
        assert state["installed"] == state["loaded"] == {"driver": "1.0" if name == "n3" else "2.0"}
        assert effects.count("reboot") == (2 if name == "n3" else 1) == state["boots"]
        assert len([e for e in effects if e != "reboot"]) == len({e for e in effects if e != "reboot"})
        assert state["cordoned"] == ""
        assert site.inventory.node(name).lifecycle == "ready"
    assert site.store.claims() == {}
    assert site.evidence.verify("r-1").ok
    site.close()


def test_killed_again_and_again(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.start(site.nodes("n0", "n1", "n2"))
    for number, point in enumerate(["finish-before", "install-after", "reboot-after", "intend-after", "finish-after"]):
        killed(tmp_path, point, 1 + (number == 3))
    site.engine.submit("r-1")
    assert set(site.states().values()) == {"done"}
    for name in ("n0", "n1", "n2"):
        effects = site.fleet.effects(name)
        assert len(effects) == len(set(effects))
    site.close()
