"""kill -9 at every boundary of a step, then the same again: every node right, nothing done twice."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fleet.core.errors import Locked
from fleet.engine.leases import LeaseEngine
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
        assert site.inventory.node(name).lifecycle == "in-service"
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


@pytest.mark.parametrize("point", ["install-after", "finish-before", "intend-after", "reboot-after"])
def test_a_process_that_slept_through_a_takeover_changes_nothing(tmp_path: Path, point: str) -> None:
    site = Site(tmp_path)
    site.start(site.nodes("n0", "n1", "n2"))
    argv = [sys.executable, "-m", "tests.upgrade.killed", str(tmp_path), point, "1", "SIGSTOP"]
    sleeper = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while not Path(f"/proc/{sleeper.pid}/stat").read_text().rpartition(")")[2].startswith(" T"):
            assert time.monotonic() < deadline and sleeper.poll() is None
            time.sleep(0.05)
        with pytest.raises(Locked):
            site.engine.submit("r-1")
        later = LeaseEngine(site.store, site.upgrade.tick, clock=lambda: time.time() + 1000)
        later.submit("r-1")
        before = (site.states(), site.fleet.effects(), site.store.attempts("r-1"))
        assert set(before[0].values()) == {"done"}
        sleeper.send_signal(signal.SIGCONT)
        _, err = sleeper.communicate(timeout=60)
        assert sleeper.returncode != 0 and "taken over" in err
        assert (site.states(), site.fleet.effects(), site.store.attempts("r-1")) == before
    finally:
        sleeper.kill()
        sleeper.communicate()
    for name in ("n0", "n1", "n2"):
        effects = site.fleet.effects(name)
        assert len(effects) == len(set(effects))
    site.close()
