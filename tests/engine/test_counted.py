"""The counters of the effect log: a clean rollout gives zero, and each way of falsifying its log is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fleet.core.model import Node, Plan
from fleet.engine.leases import LeaseEngine
from fleet.evidence import EvidenceStore
from fleet.lab.simulated import Effect
from fleet.upgrade import Upgrade
from tests.engine.contract import sqlite_url
from tests.engine.counted import counted, owed
from tests.engine.hosted import Hosted
from tests.upgrade.simfleet import hands

NAMES = [f"n{i}" for i in range(8)]
LIMITS = {"fleet": "50%", "rack": "1"}
Log = list[Effect]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> tuple[Log, Plan, dict[str, Node]]:
    """The log of a rollout that went well: eight nodes in four racks, one of a rack at a time."""
    folder = tmp_path_factory.mktemp("clean")
    host = Hosted(folder, sqlite_url(folder), "leases")
    plan = host.begin(NAMES, limits=LIMITS, racks=4)
    upgrade = Upgrade(host.store, host.inventory, hands(host.fleet), EvidenceStore(folder / "evidence"), poll_s=0.01)
    LeaseEngine(host.store, upgrade.tick).submit("r-1")
    upgrade.close()
    assert not any(host.proven(NAMES).numbers.values())
    host.close()
    return host.fleet.log(), plan, host.nodes


def of(log: Log, node: str, what: str) -> int:
    """Where that effect stands."""
    return next(i for i, e in enumerate(log) if e.node == node and e.what.startswith(what))


def without(log: Log, node: str, what: str) -> Log:
    at = of(log, node, what)
    return [*log[:at], *log[at + 1 :]]


def twice(log: Log, node: str, what: str) -> Log:
    at = of(log, node, what)
    return [*log[: at + 1], *log[at:]]


def under_an_older_fence(log: Log) -> Log:
    at = of(log, "n3", "install")
    return [*log[:at], log[at]._replace(fence=log[at].fence - 1), *log[at + 1 :]]


def last_uncordon_late(log: Log) -> Log:
    """Two nodes of one rack are out together: the first comes back when all is over."""
    rack = {name: i % 4 for i, name in enumerate(NAMES)}
    order = [e.node for e in log if e.what == "cordon"]
    first = next(a for i, a in enumerate(order) if any(rack[a] == rack[b] for b in order[i + 1 :]))
    at = of(log, first, "uncordon")
    return [*log[:at], *log[at + 1 :], log[at]]


def later_wave_first(log: Log) -> Log:
    """A node of the last wave is cordoned before everything else."""
    last = [e.node for e in log if e.what == "cordon"][-1]
    at = of(log, last, "cordon")
    return [log[at], *log[:at], *log[at + 1 :]]


@pytest.mark.parametrize(
    ("falsify", "counter"),
    [
        (lambda log: without(log, "n2", "install"), "lost"),
        (lambda log: without(log, "n5", "reboot"), "lost"),
        (lambda log: without(log, "n5", "uncordon"), "lost"),
        (lambda log: twice(log, "n2", "install"), "doubled"),
        (lambda log: twice(log, "n2", "stop"), "doubled"),
        (lambda log: twice(log, "n4", "reboot"), "doubled"),
        (lambda log: twice(log, "n4", "cordon"), "doubled"),
        (under_an_older_fence, "superseded"),
        (last_uncordon_late, "over_budget"),
        (later_wave_first, "out_of_wave"),
    ],
)
def test_a_falsified_log_is_found(
    clean: tuple[Log, Plan, dict[str, Node]], falsify: Callable[[Log], Log], counter: str
) -> None:
    log, plan, nodes = clean
    assert not any(counted(log, plan, nodes, LIMITS).numbers.values())
    found = counted(falsify(log), plan, nodes, LIMITS)
    assert found.numbers[counter], found


def test_a_node_that_came_back_may_have_gone_both_ways_but_not_twice(
    clean: tuple[Log, Plan, dict[str, Node]],
) -> None:
    log, plan, nodes = clean
    done = set(NAMES) - {"n6"}
    at = of(log, "n6", "uncordon")
    back = [what for what in owed(plan.groups[0], "back") if what not in ("cordon", "uncordon")]
    assert "reboot" in back and len(back) > 1
    way_back = [log[at]._replace(what=what) for what in back]
    both = [*log[:at], *way_back, *log[at:]]
    assert counted(both, plan, nodes, LIMITS).numbers["doubled"] == len(back)
    assert not any(counted(both, plan, nodes, LIMITS, done=done).numbers.values())
    again = [*both[:at], *way_back, *both[at:]]
    assert counted(again, plan, nodes, LIMITS, done=done).numbers["doubled"] == len(back)
