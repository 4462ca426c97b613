"""The store's transactions: budgets, owners, fences, on both back ends and under real races."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from sqlalchemy import select

from fleet.core.budget import FLEET, Limit
from fleet.core.errors import Locked, NotFound
from fleet.core.model import Group, Node, Plan, Step
from fleet.core.plan import sealed
from fleet.core.task import NodeTask
from fleet.engine import Progress
from fleet.engine.leases import LeaseEngine
from fleet.inventory import open_inventory
from fleet.inventory.leases import CONTROLLER
from fleet.inventory.rollouts import Fenced, Lease, Result, Rollouts

NOW = "2031-05-01T08:00:00Z"
LIMITS = {FLEET: Limit.parse("3"), "rack": Limit.parse("50%")}
NODES = {f"n{i}": Node(f"n{i}", "192.0.2.1", rack=f"r{i % 3}", lifecycle="ready") for i in range(12)}


@pytest.fixture
def store(database_url: str) -> Rollouts:
    return Rollouts(open_inventory(database_url).database)


def plan(*names: str) -> Plan:
    group = Group(names, "acme", "A1", {}, {}, ((Step("stop"),),), ())
    return sealed(Plan("", (group,), (names,), {}, dict.fromkeys(names, "sha256:0"), "sha256:m", {}))


def taken(store: Rollouts, rollout: str) -> Lease:
    return store.acquire(rollout, rollout, 600.0, 1000.0, lambda _: False)


def test_a_plan_comes_back_as_it_went_in(store: Rollouts) -> None:
    made = plan("n1", "n2")
    store.create("r-1", made, "cmd", [("n1", "n2")], "li", NOW)
    assert store.plan(made.id) == made
    row = store.rollout("r-")
    assert (row.id, row.units, row.state) == ("r-1", (("n1", "n2"),), "running")
    assert store.unfinished(command="cmd") == row == store.unfinished(plan=made.id)
    assert store.unfinished(command="other") is None
    assert set(store.tasks("r-1")) == {"n1", "n2"}
    with pytest.raises(NotFound):
        store.rollout("r-2")
    store.create("r-12", plan("n3"), "", (), "li", NOW)
    assert store.rollout("r-1").id == "r-1"  # a whole id is no beginning
    with pytest.raises(NotFound, match="several"):
        store.rollout("r-")


def test_controllers_that_have_long_been_silent_are_forgotten(store: Rollouts) -> None:
    day = 86400.0
    for name, at in (("old", 0.0), ("old", 10.0), ("young", 2 * day), ("new", 31 * day)):
        store.heartbeat(name, "1", at)
    with store.database.reading() as connection:
        rows = {row.id: (row.started, row.heartbeat) for row in connection.execute(select(CONTROLLER))}
    assert rows == {"young": (2 * day, 2 * day), "new": (31 * day, 31 * day)}


def test_a_node_has_one_unfinished_rollout(store: Rollouts) -> None:
    store.create("r-1", plan("n1", "n2"), "", (), "li", NOW)
    with pytest.raises(Locked) as caught:
        store.create("r-2", plan("n2", "n3"), "", (), "li", NOW)
    assert "r-1" in caught.value.what
    assert [row.id for row in store.rollouts()] == ["r-1"]
    store.set_state(taken(store, "r-1"), "done", "", NOW)
    store.create("r-2", plan("n2", "n3"), "", (), "li", NOW)


def test_claims_of_many_threads_never_exceed_a_budget(store: Rollouts) -> None:
    names = [f"r-{i}" for i in range(6)]
    for i, name in enumerate(names):
        store.create(name, plan(f"n{2 * i}", f"n{2 * i + 1}"), "", (), "li", NOW)
    leases = {name: taken(store, name) for name in names}
    most: list[int] = []

    def work(i: int) -> None:
        mine = [(f"n{2 * i}",), (f"n{2 * i + 1}",)]
        for _ in range(4):
            got, _ = store.claim(leases[f"r-{i}"], mine, LIMITS, NODES, {"n11"}, 0.0)
            claims = store.claims()
            most.append(len(set(claims) | {"n11"}))
            store.release(leases[f"r-{i}"], [name for unit in got for name in unit])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert max(most) <= 3 and len(most) == 24
    assert store.claims() == {}


def test_claiming_twice_is_claiming_once_and_units_go_whole(store: Rollouts) -> None:
    store.create("r-1", plan("n0", "n1", "n2", "n3"), "", (), "li", NOW)
    lease = taken(store, "r-1")
    for _ in range(2):
        got, refused = store.claim(lease, [("n0", "n1"), ("n2", "n3")], LIMITS, NODES, (), 0.0)
        assert got == (("n0", "n1"),)
        assert set(refused) == {"n2", "n3"} and "fleet" in refused["n2"].reason
    assert store.claims() == {"n0": "r-1", "n1": "r-1"}


def test_every_write_of_a_lost_lease_is_refused(store: Rollouts) -> None:
    store.create("r-1", plan("n0"), "", (), "li", NOW)
    old = taken(store, "r-1")
    assert store.renew(old, 600.0, 1100.0)
    new = store.acquire("r-1", "heir", 600.0, 9000.0, lambda _: False)
    assert new.fence > old.fence and not store.renew(old, 600.0, 9001.0)
    task = NodeTask("n0", 0, 0, state="failed")
    writes: list[Callable[[], object]] = [
        lambda: store.put(old, [(task, None, None)]),
        lambda: store.intend(old, [task], "stop", 0.0),
        lambda: store.finish(old, [Result(1, "done", task)], 0.0),
        lambda: store.set_state(old, "done", "", NOW),
        lambda: store.claim(old, [("n0",)], LIMITS, NODES, (), 0.0),
        lambda: store.release(old, ["n0"]),
        lambda: store.reopen(old, [task], 0, {}),
    ]
    for write in writes:
        with pytest.raises(Fenced):
            write()
    assert store.tasks("r-1")["n0"].task.state == "waiting" and store.attempts("r-1") == []
    store.drop(old)
    assert store.leases()["r-1"].owner == "heir"


def test_an_attempt_without_a_result_goes_on_and_one_with_a_result_is_over(store: Rollouts) -> None:
    store.create("r-1", plan("n0"), "", (), "li", NOW)
    lease = taken(store, "r-1")
    task = NodeTask("n0", 0, 0, state="installing", cursor=0)
    first = store.intend(lease, [task], "stop", 1.0)["n0"]
    assert store.tasks("r-1")["n0"].task.open == "intent"
    again = store.acquire("r-1", "heir", 600.0, 9000.0, lambda _: True)
    assert store.intend(again, [task], "stop", 2.0)["n0"] == first
    assert [a.fence for a in store.attempts("r-1")] == [again.fence]
    store.finish(again, [Result(first, "done", task, "fine", prior={"a": 1}, given="sha256:1")], 3.0)
    assert store.intend(again, [task], "stop", 4.0)["n0"] != first
    stored = store.tasks("r-1")["n0"]
    assert stored.prior == {"a": 1} and stored.given == {"sha256:1"}


def test_all_controllers_of_a_database_share_its_clock(store: Rollouts) -> None:
    assert LeaseEngine(store, lambda *_: Progress(True)).clock == store.clock
    one, two = store.clock(), store.clock()
    assert one <= two and abs(one - time.time()) < 60
