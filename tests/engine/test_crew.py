"""What a crew that is closed leaves behind: nothing that a worker has taken meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fleet.engine import Progress
from fleet.engine.crew import Crew, failure
from fleet.engine.leases import LeaseEngine
from fleet.inventory import open_inventory
from fleet.inventory.rollouts import Lease, Rollouts
from tests.engine.contract import sqlite_url, until


class Slow(Rollouts):
    """A store in which the taking of a lease stands still."""

    reached: threading.Event
    go_on: threading.Event

    def acquire(self, name: str, owner: str, ttl_s: float, now: float, gone: Callable[[str], bool]) -> Lease:
        lease = super().acquire(name, owner, ttl_s, now, gone)
        self.reached.set()
        assert self.go_on.wait(60)
        return lease


def test_closed_in_the_midst_of_the_taking_of_a_lease_it_gives_the_lease_back(tmp_path: Path) -> None:
    store = Slow(open_inventory(sqlite_url(tmp_path)).database)
    store.reached, store.go_on = threading.Event(), threading.Event()
    ticks: list[str] = []

    def tick(rollout: str, _lease: Lease, _ending: bool) -> Progress:
        ticks.append(rollout)
        return Progress(resting=True)

    engine, crew = LeaseEngine(store, tick, owner="elsewhere:1:1"), Crew()
    future = crew.start(engine.carry("r-1", crew))
    assert store.reached.wait(60)
    closing = threading.Thread(target=crew.close)
    closing.start()
    time.sleep(0.1)
    assert store.leases()["r-1"].owner == "elsewhere:1:1" and closing.is_alive()
    store.go_on.set()
    closing.join(60)
    assert future.cancelled() and failure(future) is None
    assert (ticks, store.leases()["r-1"].owner, engine.drives("r-1")) == ([], "", False)


def test_what_a_worker_does_is_waited_for_however_often_the_wait_is_cancelled() -> None:
    crew, go_on, done = Crew(), threading.Event(), list[str]()
    tasks: list[asyncio.Task[None]] = []

    def work() -> None:
        go_on.wait(60)
        done.append("work")

    async def waits() -> None:
        tasks.append(asyncio.ensure_future(crew.do(work)))
        await asyncio.wait(tasks)
        done.append("wait")

    def cancel() -> None:
        tasks[0].cancel()

    future = crew.start(waits())
    until(lambda: bool(tasks))
    for _ in range(3):
        time.sleep(0.05)
        crew.call(cancel)
    time.sleep(0.05)
    assert done == []
    go_on.set()
    future.result(60)
    assert done == ["work", "wait"] and tasks[0].cancelled()
    crew.close()
