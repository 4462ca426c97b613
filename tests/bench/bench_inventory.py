"""What the inventory costs: CPU seconds, and ratios of two ways measured side by side in one run.

`pytest -m bench -s tests/bench/bench_inventory.py` prints them. Nothing here fails on a slow machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlmodel import Session

from fleet.core.model import Accelerator, ComponentFact, Facts, Node, OsFacts
from fleet.core.nodeset import expand, fold
from fleet.inventory import Inventory, open_inventory, rows
from fleet.inventory.selection import select
from fleet.inventory.tables.nodes import NodeRow

pytestmark = pytest.mark.bench
MANY, SOME = 10_000, 2_000


def cpu(act: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    act()
    return time.process_time() - start


def nodes(count: int) -> list[Node]:
    return [
        Node(
            f"gpu{n:05}", f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", rack=f"r{n // 16:04}", labels={"pool": f"p{n % 9}"}
        )
        for n in range(1, count + 1)
    ]


def said(name: str, driver: str) -> Facts:
    cards = tuple(Accelerator("nvidia", "H100-SXM5-80GB", uuid=f"GPU-{name}-{n}", index=n) for n in range(8))
    parts = {
        name: ComponentFact(driver, driver) for name in ("driver", "firmware", "toolkit", "fabricmanager", "nvlsm")
    }
    return Facts(name, OsFacts("debian", "12", "6.1.0-31-amd64", "x86_64"), "nvidia", parts, cards)


def test_writing_and_reading(tmp_path: Path) -> None:
    inventory = open_inventory(f"sqlite:///{tmp_path}/x.db")
    many = nodes(MANY)
    names = [node.name for node in many]
    print(f"\n{'what':50} CPU s  per s")

    def tell(what: str, seconds: float, count: int = MANY) -> float:
        print(f"{what:50} {seconds:5.2f}  {count / max(seconds, 1e-6):9,.0f}")
        return seconds

    tell(f"add {MANY:,} nodes with a label", cpu(lambda: inventory.add(many)))
    first = [said(name, "570.1") for name in names]
    tell("record their first facts, 8 cards each", cpu(lambda: inventory.record(first)))
    changed = [said(name, "580.1" if n % 20 == 0 else "570.1") for n, name in enumerate(names)]
    tell("record again, 5 % changed", cpu(lambda: inventory.record(changed)))
    tell("load all nodes", cpu(inventory.nodes))
    tell("load all facts", cpu(inventory.facts))
    tell("select 'pool=p1,driver<580'", cpu(lambda: select(inventory, None, None, "pool=p1,driver<580", True)))
    tell("select @rack:r0007", cpu(lambda: select(inventory, "@rack:r0007")))
    tell("fold", cpu(lambda: fold(names)))
    tell("expand", cpu(lambda: expand(fold(names))))
    inventory.close()


def test_core_against_orm(tmp_path: Path) -> None:
    some = nodes(SOME)

    def fresh(name: str) -> Inventory:
        return open_inventory(f"sqlite:///{tmp_path}/{name}.db")

    def orm(inventory: Inventory, merge: bool) -> None:
        with Session(inventory.database.write_engine) as session:
            for node in some:
                row = NodeRow(**rows.node_row(node))
                session.merge(row) if merge else session.add(row)
            session.commit()

    core, added, merged = fresh("core"), fresh("added"), fresh("merged")
    ours = cpu(lambda: core.put(some))
    again = cpu(lambda: core.put(some))
    print(f"\n{SOME:,} nodes: Core upsert (with labels) {ours:.2f} CPU s, again {again:.2f}")
    print(f"ORM add   {(seconds := cpu(lambda: orm(added, False))):.2f} CPU s, {seconds / ours:.1f} times ours")
    print(f"ORM merge {(seconds := cpu(lambda: orm(merged, True))):.2f} CPU s, {seconds / ours:.1f} times ours")
    for inventory in (core, added, merged):
        inventory.close()
