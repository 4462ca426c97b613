"""The in-process engine against the suite, and what only leases can get wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from fleet.engine import Progress, Tick
from fleet.engine.leases import LeaseEngine, gone, owner_here
from fleet.inventory import open_inventory
from fleet.inventory.rollouts import Lease, Rollouts
from fleet.process import start_of
from tests.engine.contract import EngineContract, Stoppable, Work, sqlite_url


class TestLeases(EngineContract):
    @staticmethod
    def make(store: Rollouts, tick: Tick, owner: str) -> Stoppable:
        return LeaseEngine(store, tick, owner=owner, ttl_s=5.0)


def test_an_owner_is_gone_when_its_process_is() -> None:
    assert not gone(owner_here())
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    host = owner_here().split(":")[0]
    owner = f"{host}:{child.pid}:{start_of(child.pid)}"
    assert not gone(owner)
    child.kill()
    child.wait()
    assert gone(owner)
    assert gone(f"{host}:{os.getpid()}:1")  # the number was given to another process since
    assert not gone("another-host:1:1")


def test_fences_rise_across_rollouts_and_outrank_an_older_database(tmp_path: Path) -> None:
    store = Rollouts(open_inventory(sqlite_url(tmp_path)).database)
    fences = [store.acquire(name, "me", 1.0, 1000.0, lambda _: True).fence for name in ("a", "b", "a", "c")]
    assert fences == sorted(set(fences))
    assert store.acquire("d", "me", 1.0, time.time(), lambda _: True).fence >= int(time.time()) - 1


def test_a_lease_is_kept_while_a_tick_takes_long(tmp_path: Path) -> None:
    store = Rollouts(open_inventory(sqlite_url(tmp_path)).database)
    contract = TestLeases()
    name = contract.rollout(store, "a")
    work = Work(store, steps=1)

    def tick(rollout: str, lease: Lease, ending: bool) -> Progress:
        time.sleep(1.5)
        return work.tick(rollout, lease, ending)

    LeaseEngine(store, tick, owner="h:1:1", ttl_s=0.6).submit(name)
    assert store.rollout(name).state == "done"
