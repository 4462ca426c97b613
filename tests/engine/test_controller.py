"""Controllers that are killed, stopped, superseded and parted from their databases, on both engines and back ends.

A SQLite file has one controller by design: two that live side by side, a takeover from one that sleeps, and a server
that restarts are cases of PostgreSQL alone. Each controller is a process of its own over the simulated fleet; what was
lost or done twice is counted from the fleet's log of effects, which no database keeps.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from fleet import decision
from fleet.cli.following import follow, hand_over, host_of
from fleet.controller import Controller, Living, Workshop, living, same_protocol, seated
from fleet.core.errors import FleetError, Interrupted, Locked
from fleet.core.model import Plan
from fleet.core.plan import sealed
from fleet.engine import Progress, Tick
from fleet.engine.leases import LeaseEngine, gone
from fleet.evidence import EvidenceStore
from fleet.inventory import open_inventory
from fleet.inventory.rollouts import Approval, Lease, Rollouts
from fleet.lab.simulated import hands
from fleet.upgrade import Upgrade
from tests.engine.contract import sqlite_url
from tests.engine.hosted import ROOT, Hosted, Making, until
from tests.engine.pairs import case, pairs
from tests.postgresql import Server

NAMES = ["n0", "n1", "n2", "n3"]
NOW = "2031-05-01T08:00:00Z"
IDLE = "idle_in_transaction_session_timeout"
EACH_STEP = (  # in the order in which the canary comes to them
    "preflight-after", "cordon-after", "stage-after", "stop-after", "install-after", "finish-before", "reboot-after",
    "uncordon-after",
)  # fmt: skip


def killed(host: Hosted, name: str, point: str, number: str) -> None:
    status, said = host.ended(host.controller(name, point, number))
    assert status == -signal.SIGKILL, said


@pytest.mark.parametrize(("engine", "database"), pairs(("leases", "sqlite")))
def test_killed_in_each_step_and_started_again(making: Making, engine: str, database: str) -> None:
    """One rollout, in which the controller dies in each kind of step, and with it the threads that act; the same one
    comes back each time."""
    host = making(engine, database)
    host.begin(NAMES)
    for point in EACH_STEP:
        killed(host, "c1", point, "1")
        assert not host.store.rollout("r-1").finished
    status, said = host.ended(host.controller("c1"))
    assert status == 0, said
    host.proven(NAMES)


@pytest.mark.postgresql
@pytest.mark.parametrize(
    ("engine", "point", "number"),
    [
        case("dbos", "install-after", "1", every_run=True),
        case("dbos", "finish-before", "6"),
        case("leases", "install-after", "1"),
        case("leases", "reboot-after", "1", every_run=True),
    ],
)
def test_another_controller_takes_over_from_a_killed_one(making: Making, engine: str, point: str, number: str) -> None:
    host = making(engine, "postgresql")
    host.begin(NAMES)
    first = host.controller("c1", point, number)
    until(lambda: bool(living(host.store, time.time())))
    second = host.controller("c2")
    assert host.ended(first)[0] == -signal.SIGKILL
    status, said = host.ended(second)
    assert status == 0, said
    host.proven(NAMES)


@pytest.mark.postgresql
@pytest.mark.parametrize(
    ("engine", "point", "number"),
    [
        case("dbos", "install-after", "1"),
        case("dbos", "finish-before", "1"),
        case("dbos", "intend-after", "2"),
        case("leases", "install-after", "1"),
        case("leases", "intend-after", "1"),
        case("leases", "intend-after", "2", every_run=True),  # a cordon is owed, and no node can refuse one
    ],
)
def test_a_controller_that_slept_through_a_takeover_changes_nothing(
    making: Making, engine: str, point: str, number: str
) -> None:
    host = making(engine, "postgresql")
    host.begin(NAMES)
    sleeper = host.controller("c1", point, number, "SIGSTOP")
    host.until_stopped(sleeper)
    status, said = host.ended(host.controller("c2"))
    assert status == 0, said
    before = (host.fleet.log(), host.store.tasks("r-1"), host.store.attempts("r-1"))
    sleeper.send_signal(signal.SIGCONT)
    status, said = host.ended(sleeper)
    assert status == 0, said
    assert (host.fleet.log(), host.store.tasks("r-1"), host.store.attempts("r-1")) == before
    host.proven(NAMES)


@pytest.mark.postgresql
@pytest.mark.parametrize("engine", [case("leases", every_run=True), case("dbos")])
def test_a_controller_stopped_in_a_transaction_keeps_nobody_from_writing(
    tmp_path: Path, postgresql_url: str, engine: str
) -> None:
    """The server ends the sleeper's transaction; the sleeper wakes up to find it gone, and changes nothing."""
    host = Hosted(tmp_path, f"{postgresql_url}?options=-c%20{IDLE}%3D3000", engine)
    try:
        host.begin(NAMES)
        sleeper = host.controller("c1", "transaction", "9", "SIGSTOP")
        host.until_stopped(sleeper)
        status, said = host.ended(host.controller("c2"))
        assert status == 0, said
        before = (host.fleet.log(), host.store.tasks("r-1"), host.store.attempts("r-1"))
        sleeper.send_signal(signal.SIGCONT)
        status, said = host.ended(sleeper)
        assert status == 0, said
        assert (host.fleet.log(), host.store.tasks("r-1"), host.store.attempts("r-1")) == before
        host.proven(NAMES)
    finally:
        host.close()


@pytest.mark.postgresql
def test_a_sleeping_transaction_is_ended_unless_the_site_says_otherwise(postgresql_url: str) -> None:
    said = {}
    for name, url in (("ours", postgresql_url), ("theirs", f"{postgresql_url}?options=-c%20{IDLE}%3D7000")):
        database = open_inventory(url).database
        with database.writing() as connection:
            said[name] = connection.exec_driver_sql(f"SHOW {IDLE}").scalar()
        database.close()
    assert said == {"ours": "15s", "theirs": "7s"}


@pytest.mark.postgresql
@pytest.mark.parametrize("engine", ["dbos", "leases"])
def test_two_controllers_start_the_same_rollout(making: Making, engine: str) -> None:
    host = making(engine, "postgresql")
    host.begin(NAMES)
    both = [host.controller(name) for name in ("c1", "c2")]
    said = {}
    for process in both:
        status, said[process.pid] = host.ended(process)
        assert status == 0, said
    host.proven(NAMES)
    driven = {effect.fence for effect in host.fleet.log() if effect.fence}
    assert len(driven) == 1, said


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def test_two_people_start_the_same_plan(making: Making, database: str) -> None:
    host = making("leases", database)
    plan = host.begin(NAMES, "r-0")
    host.store.set_state(host.store.acquire("r-0", "me", 60.0, time.time(), lambda _: True), "aborted", "", NOW)
    gate, came = threading.Barrier(4), list[str]()

    def start(number: int) -> None:
        gate.wait()
        try:
            host.store.create(f"r-{number}", plan, "command", (), "tester", NOW)
            came.append("begun")
        except Locked as error:
            came.append(error.slug)

    threads = [threading.Thread(target=start, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(came) == ["begun", "nodes-locked", "nodes-locked", "nodes-locked"]
    assert len(host.store.rollouts(unfinished=True)) == 1


@pytest.mark.parametrize(("engine", "database"), pairs(("leases", "sqlite"), ("dbos", "postgresql")))
def test_an_approval_outlives_a_restart(making: Making, engine: str, database: str) -> None:
    """The controller dies while it waits for a yes; the yes is given while none lives, and the next one goes on."""
    host = making(engine, database)
    made = host.begin(NAMES, approve=("canary",))
    first = host.controller("c1")
    until(lambda: host.store.rollout("r-1").state == "paused")
    assert host.store.rollout("r-1").reason.startswith("approval:")
    assert {effect.node for effect in host.fleet.log()} == {"n0"}
    first.send_signal(signal.SIGKILL)
    host.ended(first)
    host.store.approve(Approval("r-1", made.id, "canary", "yes", "li", "looks well", NOW))
    status, said = host.ended(host.controller("c1"))
    assert status == 0, said
    host.proven(NAMES)


@pytest.mark.postgresql
@pytest.mark.parametrize("engine", ["dbos", "leases"])
def test_the_database_server_crashes_under_load(making: Making, engine: str, postgresql_server: Server) -> None:
    host = making(engine, "postgresql")
    names = [f"n{i:02}" for i in range(24)]
    host.begin(names)
    process = host.controller("c1")
    for effects in (3, 30, 60):
        until(lambda effects=effects: len(host.fleet.log()) >= effects or process.poll() is not None)  # type: ignore[misc]
        assert process.poll() is None
        postgresql_server.restart(signal.SIGQUIT)
    status, said = host.ended(process)
    assert status == 0, said
    host.proven(names)


@pytest.mark.postgresql
@pytest.mark.parametrize("engine", [case("dbos"), case("leases", every_run=True)])
def test_a_controller_ends_although_its_database_is_away(
    making: Making, engine: str, postgresql_server: Server
) -> None:
    host = making(engine, "postgresql")
    for number in range(4):
        host.begin([f"n{number}-{i}" for i in range(4)], f"r-{number}")
    process = host.controller("c1")
    until(lambda: len(host.fleet.log()) >= 3 or process.poll() is not None)
    assert process.poll() is None
    postgresql_server.stop(signal.SIGQUIT)
    try:
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        host.ended(process, 90)
    finally:
        postgresql_server.start()
    status, said = host.ended(host.controller("c1"))
    assert status == 0, said
    for number in range(4):
        host.proven([f"n{number}-{i}" for i in range(4)], f"r-{number}")


@pytest.mark.parametrize("engine", [case("dbos"), case("leases", every_run=True)])
def test_a_full_disk_stops_the_work_and_room_lets_it_go_on(making: Making, engine: str) -> None:
    host = making(engine, "sqlite")
    names = [f"n{i:02}" for i in range(12)]
    host.begin(names)
    process = host.controller("c1")
    until(lambda: len(host.fleet.log()) >= 5 or process.poll() is not None)
    full = 4096  # bytes that a file of this process may have: what any write beyond them meets is a disk without room
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (full, resource.RLIM_INFINITY))

    def stuck() -> bool:
        before = host.store.attempts("r-1")
        time.sleep(3.0)
        return host.store.attempts("r-1") == before

    until(stuck)
    assert process.poll() is None
    assert not host.store.rollout("r-1").finished
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    status, said = host.ended(process)
    assert status == 0, said
    host.proven(names)


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def test_the_loss_of_the_engines_database_costs_nothing_but_a_restart(making: Making, database: str) -> None:
    host = making("dbos", database)
    host.begin(NAMES)
    killed(host, "c1", "install-after", "2")
    if database == "sqlite":
        gone = list(host.folder.glob("engine-engine.db*"))
        assert gone
        for file in gone:
            file.unlink()
    else:
        with psycopg.connect(host.url, autocommit=True) as connection:
            connection.execute("DROP SCHEMA fleet_engine CASCADE")
    status, said = host.ended(host.controller("c1"))
    assert status == 0, said
    host.proven(NAMES)


@pytest.mark.parametrize(("engine", "database"), pairs(("dbos", "sqlite")))
def test_another_protocol_waits_for_the_end_of_the_old_one_and_then_goes_on(
    making: Making, engine: str, database: str
) -> None:
    host = making(engine, database)
    host.begin(NAMES)
    status, said = host.ended(host.controller("c1", "install-after", "1", protocol="1"))
    assert status == -signal.SIGKILL, said
    with seated(host.store, "c0", threading.Event(), protocol="1"):
        status, said = host.ended(host.controller("c2", protocol="2"))
        assert status == 1 and "controller-protocol" in said and "protocol 1" in said
    status, said = host.ended(host.controller("c2", protocol="2"))
    assert status == 0, said
    host.proven(NAMES)


def test_a_name_and_a_file_have_one_living_controller(tmp_path: Path) -> None:
    store = Rollouts(open_inventory(sqlite_url(tmp_path)).database)
    stop = threading.Event()
    with seated(store, "c1", stop, single=True):
        for name in ("c1", "c2"):
            with pytest.raises(Locked) as caught, seated(store, name, stop, single=True):
                pass
            assert caught.value.slug == "controller-running"
        with seated(store, "c2", stop):
            assert {c.name for c in living(store, time.time())} == {"c1", "c2"}
    assert living(store, time.time()) == []
    with seated(store, "c1", stop, single=True):
        assert not stop.is_set()


def test_a_controller_that_lost_its_seat_stops(tmp_path: Path) -> None:
    store = Rollouts(open_inventory(sqlite_url(tmp_path)).database)
    stop = threading.Event()
    with seated(store, "c1", stop, ttl_s=0.3):
        store.acquire("controller:c1", "thief", 60.0, time.time() + 100, lambda _: False)
        assert stop.wait(10)
    assert store.leases()["controller:c1"].owner == "thief"


def test_the_command_follows_what_a_controller_does(making: Making, capfd: pytest.CaptureFixture[str]) -> None:
    host = making("leases", "sqlite")
    host.begin(NAMES)
    host.controller("c1")
    until(lambda: host_of(host.store) is not None)
    row = follow(host.store, "r-1", look_s=0.05)
    assert row.state == "done"
    host.proven(NAMES)
    said = capfd.readouterr().err
    assert all(f"{name}  " in said for name in NAMES) and "done" in said


def test_following_ends_when_no_controller_is_left(making: Making) -> None:
    host = making("leases", "sqlite")
    host.begin(NAMES)
    with pytest.raises(FleetError) as caught:
        follow(host.store, "r-1", look_s=0.0)
    assert caught.value.slug == "controller-lost" and "fleet rollout resume r-1" in caught.value.hint


class _Read(Rollouts):
    """A store that tells when somebody follows a rollout in it."""

    followed: threading.Event

    def clock(self) -> float:
        self.followed.set()
        return super().clock()


def test_ctrl_c_leaves_the_rollout_to_the_controller(making: Making) -> None:
    host = making("leases", "sqlite")
    host.begin(NAMES)
    store = _Read(host.inventory.database)
    store.followed = threading.Event()

    def ctrl_c() -> None:
        if store.followed.wait(60):  # no sooner: before that it would end the tests
            os.kill(os.getpid(), signal.SIGINT)

    with seated(host.store, "c1", threading.Event()):
        (controller,) = living(host.store, time.time())
        person = threading.Thread(target=ctrl_c)
        person.start()
        with pytest.raises(Interrupted) as caught:
            hand_over(store, controller, "r-1")
        person.join()
    assert "goes on in controller c1" in caught.value.what and "fleet rollout watch r-1" in caught.value.hint
    assert host.store.rollout("r-1").state == "running"


def test_another_protocol_is_named() -> None:
    same_protocol(Living("c1", "h:1:1", 0.0, "1.0", "1"), "1")
    for other in ("2", ""):
        with pytest.raises(FleetError) as caught:
            same_protocol(Living("c1", "h:1:1", 0.0, "1.0", other), "1")
        assert caught.value.slug == "controller-protocol" and "c1" in caught.value.what


class _Opened:
    """Counts the doors that a workshop opens and closes."""

    def __init__(self, fails: int = 0) -> None:
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.fails = fails

    @contextmanager
    def __call__(self, rollout: str) -> Iterator[Tick]:
        self.opened.append(rollout)

        def tick(_rollout: str, lease: Lease, ending: bool) -> Progress:  # noqa: ARG001
            if self.fails:
                self.fails -= 1
                raise RuntimeError("made to fail")
            return Progress(resting=True)

        yield tick
        self.closed.append(rollout)


def test_a_rollout_that_cannot_be_driven_does_not_end_the_service(tmp_path: Path) -> None:
    store = Rollouts(open_inventory(sqlite_url(tmp_path)).database)
    store.create("r-1", sealed(Plan("p", (), (), {}, {}, "sha256:m", {})), "", (), "tester", NOW)
    said: list[str] = []
    doors, stop, time_now = _Opened(fails=1), threading.Event(), [1000.0]
    shop = Workshop(doors)
    controller = Controller(
        store, LeaseEngine(store, shop.tick), stop, round_s=0.01, done=shop.done, say=said.append,
        clock=lambda: time_now[0],
    )  # fmt: skip
    assert controller.round() == ["r-1"]
    until(lambda: doors.closed == ["r-1"])
    assert any("could not be driven: made to fail" in text for text in said)
    until(lambda: not store.leases()["r-1"].owner)
    assert controller.round() == []  # not at once
    time_now[0] += 100
    assert controller.round() == ["r-1"]
    until(lambda: doors.closed == ["r-1", "r-1"])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_ends_the_service_only_when_its_rollouts_have_wound_down(tmp_path: Path) -> None:
    """Whoever called then closes the inventory and leaves the seat. A broken stderr keeps nothing begun for ever."""
    store = Rollouts(open_inventory(sqlite_url(tmp_path)).database)
    store.create("r-1", sealed(Plan("p", (), (), {}, {}, "sha256:m", {})), "", (), "tester", NOW)
    stop, wound_down, closed = threading.Event(), list[bool](), list[str]()

    def tick(_rollout: str, _lease: Lease, ending: bool) -> Progress:
        wound_down.append(ending)
        if ending:
            raise RuntimeError("made to fail")
        return Progress(resting=False, wait_s=0.05)

    def say(text: str) -> None:
        if "taken up" not in text:
            raise BrokenPipeError

    class Failing(Controller):
        def round(self) -> list[str]:
            if wound_down:
                raise ValueError("made to fail")
            return super().round()

    engine = LeaseEngine(store, tick, stop=stop, ttl_s=1.0)
    with pytest.raises(ValueError, match="made to fail"):
        Failing(store, engine, stop, round_s=0.05, done=closed.append, say=say).run()
    assert wound_down[-1] is True and closed == ["r-1"]
    assert store.leases()["r-1"].owner == ""


def test_the_command_runs_until_it_is_told_to_stop(tmp_path: Path) -> None:
    fleet = [sys.executable, "-m", "fleet.cli.main", "--state-dir", str(tmp_path)]

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*fleet, *args], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    service = subprocess.Popen(
        [*fleet, "controller", "run", "--name", "c1", "--engine", "dbos"], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    try:
        until(lambda: run("controller", "list", "-o", "name").stdout == "c1\n" or service.poll() is not None)
        second = run("controller", "run", "--name", "c1")
        assert second.returncode == 7 and "controller-running" in second.stderr
        service.send_signal(signal.SIGTERM)
        _, err = service.communicate(timeout=180)
        assert service.returncode == 0 and "controller c1 has ended" in err, err
        assert "conductor" not in err.lower()
    finally:
        service.kill()
        service.communicate()
    assert run("controller", "list", "-o", "name").stdout == ""


@pytest.mark.parametrize(("engine", "database"), pairs(("leases", "sqlite"), ("dbos", "sqlite")))
def test_a_rollout_that_was_over_is_taken_up_when_a_person_reopens_it(
    making: Making, engine: str, database: str
) -> None:
    """By the controller that carried it out, still alive; and once more by one that is killed on the way."""
    host = making(engine, database)
    host.begin(NAMES)
    other = host.begin(["m0"], "r-2", approve=("start",))
    first = host.controller("c1")
    until(lambda: host.store.rollout("r-1").state == "done")
    upgrade = Upgrade(host.store, host.inventory, hands(host.fleet), EvidenceStore(host.folder / "evidence"))

    def decided(what: Callable[[Upgrade, str, Lease], object]) -> None:
        leases: list[Lease] = []

        def taken() -> bool:  # once its driver has let go of it, or is known to be dead
            with contextlib.suppress(Locked):
                leases.append(host.store.acquire("r-1", "a person", 30.0, host.store.clock(), gone))
            return bool(leases)

        until(taken)
        what(upgrade, "r-1", leases[0])
        host.store.drop(leases[0])

    decided(decision.roll_back)
    until(lambda: host.store.rollout("r-1").state == "rolled-back")
    first.send_signal(signal.SIGKILL)
    host.ended(first)
    decided(lambda upgrade, rollout, lease: decision.retry(upgrade, rollout, lease, NAMES))
    killed(host, "c1", "install-after", "1")
    host.store.approve(Approval("r-2", other.id, "start", "yes", "li", "", NOW))
    status, said = host.ended(host.controller("c1"))
    upgrade.close()
    assert status == 0, said
    assert {row.id: row.state for row in host.store.rollouts()} == {"r-1": "done", "r-2": "done"}
    for name in NAMES:
        state = host.fleet.state(name)
        assert (state["loaded"], state["boots"], state["cordoned"]) == ({"driver": "2.0"}, 3, "")
