"""What watching ten thousand nodes costs: CPU milliseconds of a look, beside reading every node of the rollout.

`pytest -m bench -s tests/bench/bench_watch.py` prints them. Nothing here fails on a slow machine.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import insert

from fleet.cli.live import Screen, frame
from fleet.cli.watch import Observer
from fleet.inventory import history, open_inventory
from fleet.metrics import Metrics
from tests.observe.site import STEPS, Site

pytestmark = pytest.mark.bench
NODES, TIMES = 10_000, 10


def cpu_ms(act: Callable[[], object], times: int = TIMES) -> float:
    """CPU milliseconds of one call, the first one left out."""
    act()
    start = time.process_time()
    for _ in range(times):
        act()
    return (time.process_time() - start) / times * 1000


def test_looks(tmp_path: Path) -> None:
    inventory = open_inventory(f"sqlite:///{tmp_path}/x.db")
    site = Site(inventory, NODES)
    lease, now, names = site.lease(), site.store.clock(), site.names
    site.put(lease, names[:4000], state="done", cursor=6, since=now - 100)
    site.put(lease, names[4000:4064], state="rebooting", cursor=3, since=now - 50, limit_s=900)
    site.put(lease, names[4064:4100], state="failed", cursor=3, since=now - 50, reason="x" * 80, next_action="look")
    attempt = {"rollout": "r-1", "direction": "forward", "cursor": 0, "attempt": 1, "state": "done", "fence": 1,
               "began": 0.0, "detail": "", "evidence": ""}  # fmt: skip
    rows = [
        {**attempt, "node": name, "phase": step.phase, "ended": float(30 + i % 100)}
        for i, name in enumerate(names)
        for step in STEPS
    ]
    with inventory.database.writing() as connection:
        for start in range(0, len(rows), 5000):
            connection.execute(insert(history.ATTEMPT), rows[start : start + 5000])
    observer, screen, metrics = Observer(site.store, "r-1", 4), Screen(io.StringIO()), Metrics(site.store)
    look = observer.look(50)

    def draw() -> None:
        screen.update(frame(look.view, look.eta, look.driver, look.now, 160, 50), (160, 50))

    figures = {
        "live screen: read": lambda: observer.look(50),
        "live screen: draw": draw,
        "lines: rows that moved": lambda: history.moved(inventory.database, "r-1", now - 30),
        "metrics: a scrape": lambda: metrics.families(now),
        "metrics: durations of all steps": lambda: history.steps(inventory.database),
        "for comparison: every node read": lambda: site.store.tasks("r-1"),
    }
    print(f"\n{NODES:,} nodes, {len(rows):,} past steps, SQLite; CPU ms of one")
    for what, act in figures.items():
        print(f"{what:40} {cpu_ms(act):7.1f}")
    inventory.close()
