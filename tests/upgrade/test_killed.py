"""kill -9 at every boundary of a step, then the same again: every node right, nothing done twice."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleet.core.errors import FleetError, Locked
from fleet.engine.leases import LeaseEngine
from fleet.inventory.rollouts import Lease, Rollouts, Stored
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


class Sleeper:
    """A process that carries out rollout r-1, and stops at a point."""

    def __init__(self, folder: Path, point: str) -> None:
        argv = [sys.executable, "-m", "tests.upgrade.killed", str(folder), point, "1", "SIGSTOP"]
        self.process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 60
        while not Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].startswith(" T"):
            assert time.monotonic() < deadline and self.process.poll() is None
            time.sleep(0.05)

    def wakes_up(self) -> tuple[int, str]:
        """It goes on until it ends: its exit status, and what it said."""
        self.process.send_signal(signal.SIGCONT)
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def asleep(tmp_path: Path) -> Iterator[Callable[[str], Sleeper]]:
    made: list[Sleeper] = []

    def make(point: str) -> Sleeper:
        made.append(Sleeper(tmp_path, point))
        return made[-1]

    yield make
    for sleeper in made:
        sleeper.end()


def taken_over(site: Site) -> None:
    """Another process carries the rollout out to its end."""
    with pytest.raises(Locked):
        site.engine.submit("r-1")
    LeaseEngine(site.store, site.upgrade.tick, clock=lambda: time.time() + 1000).submit("r-1")
    assert set(site.states().values()) == {"done"}


@pytest.mark.parametrize("point", ["install-after", "finish-before", "intend-after", "reboot-after"])
def test_a_process_that_slept_through_a_takeover_changes_nothing(
    tmp_path: Path, asleep: Callable[[str], Sleeper], point: str
) -> None:
    site = Site(tmp_path)
    site.start(site.nodes("n0", "n1", "n2"))
    sleeper = asleep(point)
    taken_over(site)
    before = (site.states(), site.fleet.effects(), site.store.attempts("r-1"))
    status, said = sleeper.wakes_up()
    assert status == 0 or "taken over" in said  # it may see first that the rollout is over
    assert (site.states(), site.fleet.effects(), site.store.attempts("r-1")) == before
    for name in ("n0", "n1", "n2"):
        effects = site.fleet.effects(name)
        assert len(effects) == len(set(effects))
    site.close()


def test_a_cordon_that_comes_after_a_takeover_is_undone_by_whoever_was_late(
    tmp_path: Path, asleep: Callable[[str], Sleeper]
) -> None:
    """It sleeps between its last look at the lease and the scheduler, which knows no fence."""
    site = Site(tmp_path)
    site.start(site.nodes("n0", "n1"))
    sleeper = asleep("cordon-before")
    taken_over(site)
    before = (site.states(), site.store.attempts("r-1"))
    sleeper.wakes_up()
    assert site.fleet.effects("n0")[-2:] == ["cordon", "uncordon"]  # its own, after all was done
    assert [site.fleet.state(name)["cordoned"] for name in ("n0", "n1")] == ["", ""]
    assert (site.states(), site.store.attempts("r-1")) == before
    site.close()


def test_a_late_cordon_of_a_node_that_is_to_stay_out_is_left(tmp_path: Path, asleep: Callable[[str], Sleeper]) -> None:
    site = Site(tmp_path)
    site.start(site.nodes("n0"))
    sleeper = asleep("cordon-before")
    site.fleet.change("n0", faults=["dead-after-reboot"])
    LeaseEngine(site.store, site.upgrade.tick, clock=lambda: time.time() + 1000).submit("r-1")
    assert site.states() == {"n0": "failed"} and site.inventory.node("n0").lifecycle == "broken"
    sleeper.wakes_up()
    assert site.fleet.state("n0")["cordoned"] == "fleet:r-1"
    site.close()


def test_a_database_that_is_away_while_a_node_is_cordoned_fails_nobody(tmp_path: Path) -> None:
    """Whether the rollout is still ours cannot be asked then: that says nothing of the node."""
    away: list[str] = []
    site = Site(tmp_path, lambda point, _node: away.append("holds") if point == "cordon-after" and not seen else None)
    seen: list[str] = []

    class Away(Rollouts):
        def holds(self, lease: Lease) -> bool:
            if away:
                seen.append(away.pop())
                raise FleetError("the database is away", slug="database-unreachable")
            return super().holds(lease)

        def tasks(self, rollout: str) -> dict[str, Stored]:
            if len(seen) == 1 and threading.current_thread().name.startswith("step"):
                seen.append("tasks")
                raise FleetError("the database is away", slug="database-unreachable")
            return super().tasks(rollout)

    site.start(site.nodes("n0", "n1"))
    site.upgrade.store = Away(site.inventory.database)
    site.engine.submit("r-1")
    assert seen == ["holds", "tasks"]
    assert site.states() == {"n0": "done", "n1": "done"}
    site.close()
