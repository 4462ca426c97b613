"""The counters of a lab's logs: a clean rollout gives zero, and each way of falsifying its logs is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.core.model import Node, Plan
from fleet.drain import FOREIGN
from fleet.inventory import open_inventory
from fleet.lab.lab import Lab
from fleet.lab.node.labnode import Files
from fleet.lab.scheduler import Scheduler
from fleet.lab.simulated import SimFleet
from tests.engine.contract import sqlite_url
from tests.engine.counted_lab import BOOT, FENCE, IN, OUT, Deed, Fences, counted_lab, deeds, owed
from tests.upgrade.simfleet import plan

NAMES = [f"n{i}" for i in range(8)]
LIMITS = {"fleet": "50%"}
SECOND = 1_000_000_000
Log = list[Deed]
Clean = tuple[Log, Plan, dict[str, Node]]


def went(plan: Plan, *, back: bool = False) -> Log:
    """What the logs say when every node has gone its way, two at a time, each wave under a fence of its own."""
    log, at = [], 0

    def add(node: str, *words: str, fence: int = 0) -> None:
        nonlocal at
        at += SECOND
        log.append(Deed(at, node, words, fence, at - SECOND // 2))

    group_of = {name: group for group in plan.groups for name in group.nodes}
    for number, wave in enumerate(plan.waves, start=1):
        for pair in (wave[i : i + 2] for i in range(0, len(wave), 2)):
            for name in pair:
                add(name, OUT)
                add(name, FENCE, fence=number)
            for name in pair:
                changes, boots = owed(group_of[name], back=back)
                for component, new in changes:
                    add(name, "remove", component, f"before {new}", fence=number)
                    add(name, "install", component, new, fence=number)
                for _ in range(boots):
                    add(name, BOOT)
                add(name, IN)
    return log


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Clean:
    folder = tmp_path_factory.mktemp("clean")
    fleet = SimFleet(folder / "fleet")
    inventory = open_inventory(sqlite_url(folder))
    nodes = [fleet.add(name) for name in NAMES]
    inventory.add(nodes)
    inventory.record([fleet.facts(name) for name in NAMES])
    inventory.close()
    made = plan(fleet, nodes, limits=LIMITS)
    assert len(made.waves) > 1
    return went(made), made, {node.name: node for node in nodes}


def of(log: Log, node: str, *words: str) -> int:
    """Where the first such deed stands."""
    return next(i for i, deed in enumerate(log) if deed.node == node and deed.words[: len(words)] == words)


def without(log: Log, node: str, *words: str) -> Log:
    at = of(log, node, *words)
    return [*log[:at], *log[at + 1 :]]


def twice(log: Log, node: str, *words: str) -> Log:
    at = of(log, node, *words)
    return [*log[: at + 1], *log[at:]]


def changed(log: Log, node: str, *words: str, **fields: object) -> Log:
    at = of(log, node, *words)
    return [*log[:at], log[at]._replace(**fields), *log[at + 1 :]]  # type: ignore[arg-type]


def begun_too_late(log: Log) -> Log:
    """A later controller has the node before the run begins that installs something under the older number."""
    at = of(log, "n3", "install")
    later = Deed(log[at].begun - 1, "n3", (FENCE,), log[at].fence + 1, log[at].begun - 1)
    return [*log[:at], later, *log[at:]]


def last_uncordon_late(log: Log) -> Log:
    """Nobody comes back before all is over."""
    return [*(d for d in log if d.words != (IN,)), *(d for d in log if d.words == (IN,))]


def last_wave_first(log: Log, plan: Plan) -> Log:
    at = of(log, plan.waves[-1][-1], OUT)
    return [log[at], *log[:at], *log[at + 1 :]]


@pytest.mark.parametrize(
    ("falsify", "counter", "times"),
    [
        (lambda log: without(log, "n2", "install"), "lost", 1),
        (lambda log: without(log, "n5", BOOT), "lost", 1),
        (lambda log: without(log, "n5", IN), "lost", 1),
        (lambda log: changed(log, "n2", "install", words=("install", "driver", "0.9")), "lost", 1),
        (lambda log: twice(log, "n2", "install"), "doubled", 1),
        (lambda log: twice(log, "n2", "remove"), "doubled", 1),
        (lambda log: twice(log, "n4", BOOT), "doubled", 1),
        (lambda log: twice(log, "n4", OUT), "doubled", 1),
        (lambda log: twice(log, "n4", IN), "doubled", 1),
        (begun_too_late, "superseded", 1),
        (lambda log: changed(log, "n3", "install", fence=0), "superseded", 1),
        (lambda log: changed(log, "n3", "remove", fence=0), "superseded", 1),
        (last_uncordon_late, "over_budget", 4),
        (lambda log: [*log, log[of(log, "n1", "install")]], "over_budget", 1),
        (lambda log: [*log, log[of(log, "n1", BOOT)]], "over_budget", 1),
        (lambda log: [*log, Deed(9000 * SECOND, "stranger", (BOOT,))], "out_of_wave", 1),
    ],
)
def test_a_falsified_log_is_found(clean: Clean, falsify: Callable[[Log], Log], counter: str, times: int) -> None:
    log, plan_, nodes = clean
    nodes = {**nodes, "stranger": Node("stranger", "")}
    assert not any(counted_lab(log, plan_, nodes, LIMITS).numbers.values()), counted_lab(log, plan_, nodes, LIMITS)
    found = counted_lab(falsify(log), plan_, nodes, LIMITS)
    assert found.numbers[counter] == times, found


def test_a_node_of_a_later_wave_that_goes_first_is_found(clean: Clean) -> None:
    log, plan_, nodes = clean
    found = counted_lab(last_wave_first(log, plan_), plan_, nodes, LIMITS)
    assert found.out_of_wave and all("was cordoned" in sentence for sentence in found.out_of_wave)


def test_a_run_that_began_before_the_next_controller_came_may_end_after_it(clean: Clean) -> None:
    """That controller attaches to it."""
    log, plan_, nodes = clean
    at = of(log, "n3", "install")
    between = (log[at].begun + log[at].at) // 2
    later = Deed(between, "n3", (FENCE,), log[at].fence + 1, between)
    attached = [*log[:at], later, *log[at:]]
    assert not counted_lab(attached, plan_, nodes, LIMITS).superseded


def test_there_and_back_is_not_twice(clean: Clean) -> None:
    _, plan_, nodes = clean
    both = went(plan_, back=True)
    assert not any(counted_lab(both, plan_, nodes, LIMITS, back=True).numbers.values())
    assert counted_lab(both, plan_, nodes, LIMITS).numbers["doubled"] == len(NAMES)  # a boot too many on each
    assert counted_lab(went(plan_), plan_, nodes, LIMITS, back=True).numbers["lost"] == 2 * len(NAMES)


def test_an_effect_names_the_run_and_the_fence_it_was_done_under(tmp_path: Path) -> None:
    """Whatever number the node's fence has got since: what counts is what the run was given."""
    writer = f"from fleet.lab.node.labnode import Files; from pathlib import Path; Files(log=Path({str(tmp_path)!r}))"
    inner = f"{sys.executable} -c \"{writer}.effect('install', component='driver', version='2')\"; true"
    runner = tmp_path / "fleet-run"
    runner.write_text(f"sh -c '{inner.replace(chr(39), chr(39) + chr(92) + chr(39) + chr(39))}'; true\n")
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    subprocess.run(["sh", runner, "--child", "r-1.f5.1-ab", "7", "600", "idempotent"], check=True)
    Files(log=tmp_path).effect("boot", cause="reboot")
    by_run, bare = map(json.loads, (tmp_path / "effects.jsonl").read_text().splitlines())
    assert (by_run["run"], by_run["fence"]) == ("r-1.f5.1-ab", 7)
    assert before - SECOND // os.sysconf("SC_CLK_TCK") <= by_run["begun"] < by_run["ns"] < bare["ns"]
    assert not {"run", "fence", "begun"} & set(bare)


def test_the_labs_scheduler_keeps_who_has_which_node(tmp_path: Path) -> None:
    scheduler = Scheduler(tmp_path / "scheduler.jsonl")
    assert [scheduler.ask("cordon", "n1", "fleet:r-1")[0] for _ in range(2)] == [0, 0]
    assert scheduler.ask("cordon", "n1", "fleet:r-2") == (FOREIGN, "n1 is out for fleet:r-1")
    assert scheduler.ask("uncordon", "n1", "fleet:r-2") == (0, "")
    env = {**os.environ, "NODE": "n1", "ACTION": "uncordon", "TOKEN": "fleet:r-1"}
    for _ in range(2):
        subprocess.run([sys.executable, "-m", "fleet.lab.scheduler", scheduler.file], env=env, check=True)
    assert scheduler.ask("drain", "n1", "fleet:r-2") == (0, "")
    assert [(line["node"], line["what"]) for line in scheduler.log()] == [("n1", "cordon"), ("n1", "uncordon")]


def test_logs_of_nodes_scheduler_and_fences_are_one(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab", print)
    fence = lab.folder / "nodes/n1/upper/var/lib/fleet/fence"
    fence.parent.mkdir(parents=True)
    (lab.folder / "nodes/n1/node.json").write_text("{}")
    scheduler = Scheduler(tmp_path / "scheduler.jsonl")
    fences = Fences(tmp_path / "fences.jsonl", lab, ["n1"])
    for number in (3, 3, 4):
        fence.write_text(f"{number}\n")
        fences.look()
        time.sleep(0.02)
        scheduler.ask("uncordon" if number == 4 else "cordon", "n1", "t")
        lab.state("n1").effect("boot", cause="reboot")
    lab.state("n1").effect("load", module="acme")
    found = deeds(lab, ["n1"], scheduler, fences.log())
    assert [(d.what, d.fence) for d in found] == [
        ("fence", 3), ("cordon", 0), ("boot", 0), ("boot", 0), ("fence", 4), ("uncordon", 0), ("boot", 0),
    ]  # fmt: skip
