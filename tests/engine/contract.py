"""What every engine must do: subclass, say how one is made, and the tests run against it.

A tick here is a list of steps in a file, so that it survives the process; each step is done under the lease.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from fleet.core.errors import Locked
from fleet.core.model import Plan
from fleet.engine import Engine, Progress, Tick
from fleet.inventory import open_inventory
from fleet.inventory.rollouts import Fenced, Lease, Rollouts

NOW = "2031-05-01T08:00:00Z"


class Work:
    """Counts to `steps`, one in each tick, writing under the lease: the smallest rollout there is."""

    def __init__(self, store: Rollouts, steps: int = 5, pause_s: float = 0.0) -> None:
        self.store = store
        self.steps = steps
        self.pause_s = pause_s
        self.done: list[tuple[str, int]] = []
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self.go_on.set()

    def tick(self, rollout: str, lease: Lease, ending: bool) -> Progress:
        if ending:
            return Progress(resting=True)
        row = self.store.rollout(rollout)
        if row.finished or row.request:
            return Progress(resting=True)
        self.reached.set()
        assert self.go_on.wait(20)
        self.store.set_state(lease, "running", "", NOW)  # raises Fenced for a lost lease
        self.done.append((rollout, lease.fence))
        if len([r for r, _ in self.done if r == rollout]) >= self.steps:
            self.store.set_state(lease, "done", "", NOW)
            return Progress(resting=True)
        return Progress(resting=False, wait_s=self.pause_s)


class Stoppable(Engine, Protocol):
    """An engine of ours: all rollouts wind down when `stop` is set."""

    stop: threading.Event


def until(what: Callable[[], bool], limit_s: float = 60) -> None:
    """Wait until something is so."""
    end = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


class EngineContract:
    """The suite. `make` builds an engine whose owner name is given; two of them share one database."""

    make: Callable[[Rollouts, Tick, str], Stoppable]

    @pytest.fixture
    def store(self, database_url: str) -> Rollouts:
        return Rollouts(open_inventory(database_url).database)

    def rollout(self, store: Rollouts, name: str) -> str:
        plan = Plan(f"p-{name}", (), (), {}, {}, "sha256:m", {})
        from fleet.core.plan import sealed

        store.create(name, sealed(plan), "", (), "tester", NOW)
        return name

    def test_it_drives_until_the_rollout_rests(self, store: Rollouts) -> None:
        work = Work(store)
        self.make(store, work.tick, "one").submit(self.rollout(store, "a"))
        assert len(work.done) == 5
        assert store.rollout("a").state == "done"

    def test_waiting_between_ticks_is_honoured(self, store: Rollouts) -> None:
        work = Work(store, steps=3, pause_s=0.2)
        began = time.monotonic()
        self.make(store, work.tick, "one").submit(self.rollout(store, "a"))
        assert time.monotonic() - began >= 0.4

    def test_two_may_not_drive_one_rollout(self, store: Rollouts) -> None:
        name = self.rollout(store, "a")
        work = Work(store)
        work.go_on.clear()
        one, two = self.make(store, work.tick, "elsewhere:1:1"), self.make(store, work.tick, "elsewhere:2:2")
        thread = threading.Thread(target=one.submit, args=(name,))
        thread.start()
        assert work.reached.wait(20)
        with pytest.raises(Locked):
            two.submit(name)
        work.go_on.set()
        thread.join(20)
        assert len({fence for _, fence in work.done}) == 1 and store.rollout(name).state == "done"

    def test_a_pause_is_obeyed_and_resume_goes_on(self, store: Rollouts) -> None:
        name = self.rollout(store, "a")
        work = Work(store, steps=4)
        engine = self.make(store, work.tick, "one")
        engine.signal(name, "pause")
        engine.submit(name)
        assert work.done == []
        engine.signal(name, "resume")
        engine.submit(name)
        assert len(work.done) == 4

    def test_cancel_stops_after_the_tick_and_the_work_can_be_taken_up(self, store: Rollouts) -> None:
        name = self.rollout(store, "a")
        work = Work(store, steps=1000, pause_s=0.01)
        engine = self.make(store, work.tick, "one")
        thread = threading.Thread(target=engine.submit, args=(name,))
        thread.start()
        assert work.reached.wait(20)
        engine.cancel(name)
        thread.join(20)
        assert not thread.is_alive() and store.rollout(name).state == "running"
        work.steps = len(work.done) + 2
        self.make(store, work.tick, "two").submit(name)
        assert store.rollout(name).state == "done"
        assert len({fence for _, fence in work.done}) == 2

    def test_it_lists_what_is_unfinished_and_who_drives_it(self, store: Rollouts) -> None:
        self.rollout(store, "a")
        self.rollout(store, "b")
        work = Work(store, steps=1)
        engine = self.make(store, work.tick, "one")
        assert {(r.rollout, r.owner) for r in engine.list()} == {("a", ""), ("b", "")}
        engine.submit("a")
        assert [r.rollout for r in engine.list()] == ["b"]

    def test_a_zombie_writes_nothing_after_another_took_over(self, store: Rollouts) -> None:
        name = self.rollout(store, "a")
        zombie, heir = Work(store), Work(store)
        zombie.go_on.clear()
        failed: list[BaseException] = []

        def run() -> None:
            try:
                self.make(store, zombie.tick, "elsewhere:1:1").submit(name)
            except Fenced as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        assert zombie.reached.wait(20)
        store.acquire(
            name, "thief", -20_000.0, time.time() + 10_000, lambda _: False
        )  # its lease has run out long since
        self.make(store, heir.tick, "elsewhere:2:2").submit(name)
        zombie.go_on.set()
        thread.join(20)
        assert len(failed) == 1 and zombie.done == [] and len(heir.done) == 5

    def test_a_hundred_that_wait_hold_a_handful_of_threads(self, store: Rollouts) -> None:
        """And each of them keeps its lease, and obeys at once."""
        names = [self.rollout(store, f"r{i:03}") for i in range(100)]
        ticked: set[str] = set()
        ended: list[Exception | None] = []

        def tick(rollout: str, _lease: Lease, ending: bool) -> Progress:
            ticked.add(rollout)
            return Progress(resting=ending or store.rollout(rollout).request != "", wait_s=600.0)

        before = threading.active_count()
        engine = self.make(store, tick, "one")
        for name in names:
            engine.begin(name, ended.append)
        until(lambda: len(ticked) == 100)
        taken = store.leases()
        until(lambda: all(lease.expires > taken[name].expires + 1 for name, lease in store.leases().items()))
        assert {name: lease.fence for name, lease in store.leases().items()} == {n: t.fence for n, t in taken.items()}
        assert threading.active_count() - before < 25, [thread.name for thread in threading.enumerate()]
        assert ended == []
        for ask in (lambda name: engine.signal(name, "pause"), engine.cancel):
            began, done = time.monotonic(), len(ended)
            for name in names[:5]:
                ask(name)
            until(lambda done=done: len(ended) == done + 5)  # type: ignore[misc]
            assert time.monotonic() - began < 30
            names = names[5:]
        engine.stop.set()
        until(lambda: len(ended) == 100)
        assert ended == [None] * 100
        assert {lease.owner for lease in store.leases().values()} == {""}

    def test_a_driving_that_is_begun_tells_its_end_and_what_it_ran_into(self, store: Rollouts) -> None:
        name = self.rollout(store, "a")
        work = Work(store, steps=3)
        ended: list[Exception | None] = []
        self.make(store, work.tick, "one").begin(name, ended.append)
        until(lambda: ended == [None])
        assert store.rollout(name).state == "done"

        def fails(_rollout: str, _lease: Lease, _ending: bool) -> Progress:
            raise ValueError("made to fail")

        self.make(store, fails, "two").begin(self.rollout(store, "b"), ended.append)
        until(lambda: len(ended) == 2)
        assert isinstance(ended[1], ValueError)
        assert store.leases()["b"].owner == ""

    def test_a_cancel_that_comes_before_the_first_tick_is_obeyed(self, store: Rollouts) -> None:
        name = self.rollout(store, "a")
        wound_down: list[bool] = []
        ended: list[Exception | None] = []

        def tick(_rollout: str, _lease: Lease, ending: bool) -> Progress:
            wound_down.append(ending)
            return Progress(resting=ending, wait_s=600.0)

        engine = self.make(store, tick, "one")
        engine.begin(name, ended.append)
        engine.cancel(name)
        until(lambda: ended == [None])
        engine.begin(name, ended.append)
        until(lambda: wound_down[-1] is False)
        engine.stop.set()
        until(lambda: ended == [None, None])

    def test_one_engine_drives_a_rollout_once(self, store: Rollouts) -> None:
        name = self.rollout(store, "a")
        work = Work(store)
        work.go_on.clear()
        engine = self.make(store, work.tick, "one")
        ended: list[Exception | None] = []
        engine.begin(name, ended.append)
        assert work.reached.wait(20)
        with pytest.raises(Locked):
            engine.submit(name)
        work.go_on.set()
        until(lambda: ended == [None])
        assert len({fence for _, fence in work.done}) == 1

    def test_the_work_of_a_dead_owner_is_healed(self, store: Rollouts) -> None:
        name = self.rollout(store, "a")
        self.rollout(store, "b")
        store.acquire(name, "elsewhere:9:9", -1.0, time.time(), lambda _: False)
        store.set_state(store.acquire("b", "x", 60.0, time.time(), lambda _: True), "done", "", NOW)
        work = Work(store, steps=2)
        assert list(self.make(store, work.tick, "one").heal()) == [name]
        assert store.rollout(name).state == "done"
        assert list(self.make(store, work.tick, "one").heal()) == []


def sqlite_url(folder: Path) -> str:
    """A database of its own."""
    return f"sqlite:///{folder / 'engine.db'}"
