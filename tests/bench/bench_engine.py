"""What a rollout costs the controller: CPU milliseconds a step, memory, and whether both grow in proportion.

`pytest -m bench -s tests/bench/bench_engine.py` prints a line for each database, engine and number of nodes. A step is
one that a node of this plan goes through; the simulated nodes take no time, so what is measured is deciding and
writing, with the nodes' own small cost (their files) told apart. Each run is a process of its own, so that its memory
is its own. Bounds: 10 ms a step and 300 MB, which are asserted; that a node of the largest rollout costs at most 1.3
times one of the smallest is printed only, since the load of the machine moves it.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fleet import decision
from fleet.core.model import Node
from fleet.engine import Engine
from fleet.engine.leases import LeaseEngine
from fleet.evidence import EvidenceStore
from fleet.inventory import open_inventory
from fleet.inventory.rollouts import Rollouts
from fleet.lab.simulated import SimFleet, hands
from fleet.upgrade import Upgrade
from tests.postgresql import Server, postgresql_server
from tests.upgrade.simfleet import plan

__all__ = ["postgresql_server"]
pytestmark = pytest.mark.bench
ROOT = Path(__file__).parents[2]
SIZES = tuple(int(n) for n in os.environ.get("BENCH_NODES", "250,500,1000").split(","))
RACK = 16
GROWTH = 1.3  # the most that a node of the largest rollout may cost, in nodes of the smallest


class Metered(SimFleet):
    """The simulated fleet, with the CPU seconds of its own side counted apart."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.spent = 0.0
        self._lock = threading.Lock()

    def metered(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **more: Any) -> Any:
            began = time.thread_time()
            found = act(*args, **more)
            if isinstance(found, Iterator):
                found = iter(list(found))
            with self._lock:
                self.spent += time.thread_time() - began
            return found

        return timed


def rollout(folder: Path, url: str, engine_kind: str, count: int) -> dict[str, float]:
    """Carry out one rollout of `count` nodes and say what it cost."""
    fleet = Metered(folder / "fleet")
    inventory = open_inventory(url)
    store = Rollouts(inventory.database)
    nodes: list[Node] = [replace(fleet.add(f"n{n:04}"), rack=f"r{n // RACK:03}") for n in range(count)]
    inventory.add(nodes)
    inventory.record([fleet.facts(node.name) for node in nodes])
    doors = hands(fleet)
    doors = replace(doors, look=fleet.metered(doors.look))
    doors.playbook.run = fleet.metered(doors.playbook.run)  # type: ignore[method-assign]
    upgrade = Upgrade(
        store, inventory, doors, EvidenceStore(folder / "evidence"), origin="lab", operator="bench", parallel=8,
        poll_s=0.01,
    )  # fmt: skip
    made = plan(fleet, nodes, limits={"fleet": "25%", "rack": "50%"})
    decision.start(upgrade, "r-1", made, "bench", "sha256:m")
    engine: Engine
    if engine_kind == "dbos":
        from fleet.engine.durable import DurableEngine, engine_url

        engine = DurableEngine(store, upgrade.tick, url=engine_url(url), executor="bench:1")
    else:
        engine = LeaseEngine(store, upgrade.tick)
    fleet.spent = 0.0
    ticks = 0
    tick = upgrade.tick

    def counted(*args: Any) -> Any:
        nonlocal ticks
        ticks += 1
        return tick(*args)

    leases = engine if isinstance(engine, LeaseEngine) else engine.leases
    leases.tick = counted
    cpu, wall = time.process_time(), time.monotonic()
    engine.submit("r-1")
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    row = store.rollout("r-1")
    assert row.state == "done", (row.state, row.reason)
    attempts = store.attempts("r-1")
    assert all(a.state in ("done", "already") for a in attempts)
    effects = fleet.effects()
    assert effects.count("reboot") == count
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    upgrade.close()
    return {
        "nodes": count,
        "steps": len(attempts),
        "cpu": cpu,
        "sim": fleet.spent,
        "wall": wall,
        "rss": peak,
        "ticks": ticks,
    }


def measured(folder: Path, url: str, engine: str, count: int) -> dict[str, float]:
    """The same in a process of its own."""
    folder.mkdir()
    argv = [sys.executable, "-m", "tests.bench.bench_engine", str(folder), url, engine, str(count)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=3000)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("database", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
@pytest.mark.parametrize("engine", ["leases", "dbos"])
def test_a_rollout_of_many_nodes(
    request: pytest.FixtureRequest, tmp_path: Path, database: str, engine: str, sizes: Sequence[int] = SIZES
) -> None:
    print(f"\n{'database':11}{'engine':8}{'nodes':>6}{'steps':>7}{'CPU ms/step':>12}{'CPU ms/node':>12}"
          f"{'of it sim':>10}{'wall s':>8}{'peak MB':>9}{'ticks':>7}")  # fmt: skip

    def one(count: int) -> float:
        """CPU milliseconds a node."""
        serial = len(list(tmp_path.iterdir()))
        if database == "sqlite":
            got = measured(tmp_path / str(serial), f"sqlite:///{tmp_path / f'{serial}.db'}", engine, count)
        else:
            server: Server = request.getfixturevalue("postgresql_server")
            name = server.make()
            got = measured(tmp_path / str(serial), server.url(name), engine, count)
            server.drop(name)
        each, node, sim = (got[key] / got[per] * 1000 for key, per in (("cpu", "steps"), ("cpu", "nodes"),
                           ("sim", "nodes")))  # fmt: skip
        print(f"{database:11}{engine:8}{count:6}{got['steps']:7.0f}{each:12.2f}{node:12.1f}{sim:10.1f}{got['wall']:8.1f}"
              f"{got['rss']:9.0f}{got['ticks']:7.0f}")  # fmt: skip
        assert got["rss"] < 300
        assert each < 10
        return node

    costs = {count: one(count) for count in sizes}
    if len(sizes) > 1:
        first, last = sizes[0], sizes[-1]
        grown = costs[last] / costs[first]
        met = "met" if grown <= GROWTH else "NOT met"
        print(
            f"{database:11}{engine:8}a node of {last} costs {grown:.2f} times one of {first} (at most {GROWTH}: {met})"
        )


if __name__ == "__main__":
    print(json.dumps(rollout(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))))
