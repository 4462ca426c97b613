"""A host's clock that jumps ten minutes under a rollout, forward and back: no lease lost, no step late, no stall.

Leases go by the server's clock on PostgreSQL and by the host's on SQLite; steps go by a clock that was set once.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from fleet.cli.driving import steady
from fleet.engine.leases import LeaseEngine
from tests.engine.hosted import Hosted, Making, until
from tests.engine.pairs import case, pairs

NAMES = ["n0", "n1", "n2", "n3"]
JUMP_S = 600
LIMIT_S = 60  # of a drain: a tenth of the jump


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    """The file that says how far ahead the host's clock is."""
    file = tmp_path / "clock"
    ahead(file, 0)
    return file


def ahead(clock: Path, seconds: int) -> None:
    part = clock.with_name(clock.name + ".part")
    part.write_text(str(seconds))
    part.replace(clock)


def draining(host: Hosted) -> None:
    """Wait until a node waits for its jobs to end."""
    host.until(lambda: any(a.phase == "drain" and a.state == "waiting" for a in host.store.attempts("r-1")))


def jobs_end(host: Hosted) -> None:
    for name in NAMES:
        host.fleet.change(name, faults=[])


def nothing_was_late(host: Hosted) -> None:
    host.proven(NAMES)
    assert not [a.detail for a in host.store.attempts("r-1") if "within" in a.detail]


def fences(host: Hosted) -> set[int]:
    return {effect.fence for effect in host.fleet.log() if effect.fence}


def test_a_steady_clock_is_set_once() -> None:
    told, ticks = [1000.0], [5.0]
    clock = steady(lambda: told[0], lambda: ticks[0])
    assert clock() == 1000.0
    told[0], ticks[0] = 400.0, 7.5
    assert clock() == 1002.5


@pytest.mark.parametrize(
    ("engine", "database"), pairs(("leases", "sqlite"), ("dbos", "sqlite"), ("leases", "postgresql"))
)
def test_jumps_under_a_controller(making: Making, clock: Path, engine: str, database: str) -> None:
    host = making(engine, database)
    host.begin(NAMES, faults=["busy-for-ever"], drained=True, drain_limit_s=LIMIT_S)
    process = host.controller("c1", clock=clock)
    draining(host)
    for seconds in (JUMP_S, -JUMP_S, 0):
        ahead(clock, seconds)
        time.sleep(0.8)
        assert process.poll() is None
    jobs_end(host)
    status, said = host.ended(process, LIMIT_S * 2)
    assert status == 0, said
    assert said.splitlines() == ["rollout r-1 is taken up"]
    assert len(fences(host)) == 1
    nothing_was_late(host)


@pytest.mark.parametrize("seconds", [JUMP_S, -JUMP_S])
@pytest.mark.parametrize(("engine", "database"), pairs(("leases", "sqlite")))
def test_a_jump_over_a_restart_costs_no_node(
    making: Making, clock: Path, engine: str, database: str, seconds: int
) -> None:
    """The clock that jumps is the one that our tables and steps go by; DBOS keeps no time that counts."""
    host = making(engine, database)
    host.begin(NAMES, faults=["busy-for-ever"], drained=True, drain_limit_s=LIMIT_S + JUMP_S)
    process = host.controller("c1", clock=clock)
    draining(host)
    process.send_signal(signal.SIGKILL)
    host.ended(process)
    before = host.store.leases()["r-1"].fence
    ahead(clock, seconds)
    process = host.controller("c1", clock=clock)
    until(lambda: host.store.leases()["r-1"].fence > before)
    jobs_end(host)
    status, said = host.ended(process, LIMIT_S * 2)
    assert status == 0, said
    nothing_was_late(host)


@pytest.mark.postgresql
@pytest.mark.parametrize("seconds", [JUMP_S, -JUMP_S])
@pytest.mark.parametrize("engine", [case("leases", every_run=True), case("dbos")])
def test_two_controllers_ten_minutes_apart(
    making: Making, tmp_path: Path, clock: Path, engine: str, seconds: int
) -> None:
    """On PostgreSQL: a SQLite file has one controller, so no two clocks."""
    other = tmp_path / "other"
    ahead(other, seconds)
    host = making(engine, "postgresql")
    host.begin(NAMES, faults=["busy-for-ever"], drained=True, drain_limit_s=LIMIT_S)
    first = host.controller("c1", clock=clock)
    draining(host)
    second = host.controller("c2", clock=other)
    owner = host.store.leases()["r-1"]
    until(lambda: "controller:c2" in host.store.leases())
    time.sleep(1.5)  # five rounds of the second one
    assert host.store.leases()["r-1"].fence == owner.fence
    first.send_signal(signal.SIGKILL)
    host.ended(first)
    until(lambda: host.store.leases()["r-1"].fence > owner.fence)
    jobs_end(host)
    status, said = host.ended(second, LIMIT_S * 2)
    assert status == 0, said
    nothing_was_late(host)


@pytest.mark.postgresql
def test_leases_on_a_server_go_by_its_clock(making: Making) -> None:
    host = making("leases", "postgresql")
    engine = LeaseEngine(host.store, lambda *_: pytest.fail("not driven"))
    assert engine.clock == host.store.clock
    assert abs(host.store.clock() - time.time()) < 60  # the server is on this machine
