"""The five numbers of `tests.engine.counted` for lab nodes, from the logs that nodes and their scheduler write.

A node's emulated installers, flash tools and boots each write a line when something was really done, with the run of
fleet-run that did it and the fence number this run was begun under (`fleet.lab.node.labnode.fenced`); the lab's
scheduler writes who went out of service and came back; `Fences` adds each number that a node's fence took. No database
is read.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fleet.core.model import Group, Node, Plan
from fleet.core.task import Direction, path
from fleet.lab.lab import Lab
from fleet.lab.scheduler import Scheduler
from fleet.lab.simulated import Effect
from tests.engine.counted import Counts, out_of_wave, over_budget, superseded

CHANGES = ("install", "remove", "flash")  # must be done under a fence, and once
IMPLIED = ("bundle", "driver_flavour")  # what comes with a driver's package and leaves no line of its own
OUT, IN, BOOT, FENCE = "cordon", "uncordon", "boot", "fence"
LOOK_S = 0.01


class Deed(NamedTuple):
    """One thing that was done to a node.

    `at` and `begun` (when the run that did it began) are nanoseconds since the machine's boot; `words` are what was
    done: kind, component, version, card, as far as there are such. `fence` is 0 where no run of fleet-run did it.
    """

    at: int
    node: str
    words: tuple[str, ...]
    fence: int = 0
    begun: int = 0

    @property
    def what(self) -> str:
        """In one line."""
        return " ".join(self.words)

    @property
    def effect(self) -> Effect:
        """As the counters of simulated nodes know it."""
        return Effect(self.at, self.node, self.what, self.fence, "")


def deeds(lab: Lab, names: Collection[str], scheduler: Scheduler, fences: Iterable[Deed] = ()) -> list[Deed]:
    """Everything that was done to these nodes since their lab came up, in order."""
    found = [Deed(line["ns"], line["node"], (line["what"],)) for line in scheduler.log()]
    for name in names:
        for line in map(json.loads, lab.state(name).effects.read_text().splitlines()):
            if line["kind"] in (*CHANGES, BOOT):
                found.append(_deed(name, line))
    return sorted([*found, *fences])


def _deed(name: str, line: Mapping[str, Any]) -> Deed:
    words = tuple(str(line[key]) for key in ("kind", "component", "version", "card") if key in line)
    return Deed(line["ns"], name, words, line.get("fence", 0), line.get("begun", line["ns"]))


class Fences:
    """Watches the fence files of nodes from outside, and appends every number that one takes to a log of its own.

    A number stays for as long as a controller lives, seconds at least; it is looked at a hundred times a second.
    """

    def __init__(self, file: Path, lab: Lab, names: Collection[str]) -> None:
        self.file = file
        self.paths = {name: lab.folder / "nodes" / name / "upper/var/lib/fleet/fence" for name in names}
        self.seen: dict[str, int] = dict.fromkeys(names, 0)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Fences:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join()
        self.look()

    def _watch(self) -> None:
        while not self.stop.wait(LOOK_S):
            self.look()

    def look(self) -> None:
        """One look at every node."""
        for name, path_ in self.paths.items():
            with contextlib.suppress(OSError, ValueError):
                number, written = int(path_.read_text()), path_.stat().st_mtime_ns
                if number == self.seen[name]:
                    continue
                self.seen[name] = number
                at = written + time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.time_ns()
                with self.file.open("a") as log:
                    log.write(json.dumps({"ns": at, "node": name, "fence": number}) + "\n")

    def log(self) -> list[Deed]:
        """Every change, as something that was done under that number."""
        lines = map(json.loads, self.file.read_text().splitlines()) if self.file.is_file() else ()
        return [Deed(line["ns"], line["node"], (FENCE,), line["fence"], line["ns"]) for line in lines]


def owed(group: Group, *, back: bool) -> tuple[list[tuple[str, str]], int]:
    """(component and version of each change, boots) of a node that went that way to its end, or there and back."""
    ways: tuple[Direction, ...] = ("forward", "back") if back else ("forward",)
    steps = [step for way in ways for step in path(group, way)]
    changes = [c for step in steps if step.phase in ("install", "firmware") for c in step.changes]
    made = [(c.component, c.new) for c in changes if c.new is not None and c.component not in IMPLIED]
    return made, sum(step.phase == "reboot" for step in steps)


def lost_and_doubled(log: Sequence[Deed], plan: Plan, *, back: bool) -> tuple[list[str], list[str]]:
    """Changes, boots, departures and returns that a node lacks, and those that it had more often than its way has."""
    lost, doubled = [], []
    for group in plan.groups:
        made, boots = owed(group, back=back)
        for name in group.nodes:
            had = Counter(deed.words for deed in log if deed.node == name and deed.words[0] != FENCE)
            there = {words[1:3] for words in had if words[0] in ("install", "flash")}
            lost += [f"{name}: {component} {new}" for component, new in made if (component, new) not in there]
            for words, wanted in (((BOOT,), boots), ((OUT,), 1), ((IN,), 1)):
                lost += [f"{name}: {words[0]}"] * (wanted - had[words])
                doubled += [f"{name}: {words[0]}"] * (had[words] - wanted)
                del had[words]
            doubled += [f"{name}: {' '.join(words)}" for words, times in had.items() for _ in range(times - 1)]
    return lost, doubled


def out_of_turn(log: Iterable[Deed]) -> list[str]:
    """Effects of runs that were begun when a later controller had been on the node already; and changes that no run
    of fleet-run has made, which no fence could have stopped."""
    by_begin = sorted(log, key=lambda deed: (deed.begun or deed.at, deed.at))
    bare = [f"{d.node}: {d.what} under no fence" for d in by_begin if d.words[0] in CHANGES and not d.fence]
    return superseded(deed.effect for deed in by_begin) + bare


def in_service(log: Iterable[Deed]) -> list[str]:
    """Changes and boots of nodes that held no place in any budget: they had not been taken out of service."""
    out: set[str] = set()
    found = []
    for deed in log:
        if deed.words[0] == OUT:
            out.add(deed.node)
        elif deed.words[0] == IN:
            out.discard(deed.node)
        elif deed.words[0] != FENCE and deed.node not in out:
            found.append(f"{deed.node}: {deed.what} while in service")
    return found


def counted_lab(
    log: Sequence[Deed], plan: Plan, nodes: Mapping[str, Node], limits: Mapping[str, str], *, back: bool = False
) -> Counts:
    """Everything that went wrong in one rollout whose nodes all went there, or with `back` there and back."""
    planned = {name for wave in plan.waves for name in wave}
    lost, doubled = lost_and_doubled(log, plan, back=back)
    effects = [deed.effect for deed in log if deed.words[0] != FENCE]
    strangers = [f"{e.node} of no wave: {e.what}" for e in effects if e.node not in planned]
    return Counts(
        tuple(lost), tuple(doubled), tuple(out_of_turn(log)),
        (*over_budget(effects, nodes, limits), *in_service(log)), (*out_of_wave(effects, plan), *strangers),
    )  # fmt: skip
