"""How long a rollout will take: the durations of past steps laid over the waves that are left. Arithmetic only.

The capacity model: waves follow one another; in a wave, runs of nodes (one node in the first wave, up to the policy's
`chunk` equal nodes later) are carried out side by side, as many as the command's `parallel` and the budget of the fleet
allow. A run takes the sum of its steps. Where there are maintenance windows, the work goes on only while one is open.
Each step counts with its median for the figure, with its 90th percentile for the upper end. Where nothing is known of a
step there is no figure, and the reason says so: a guess would be believed.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fleet.core.budget import FLEET, limits_of
from fleet.core.model import Group, Json, Plan
from fleet.core.task import ENDS, Direction, State, path
from fleet.core.window import until_done, windows_of

ANY = ""  # the vendor under which the durations of all vendors stand


@dataclass(frozen=True)
class Spell:
    """How long one phase took, in seconds: how often it was seen, the median, the 90th percentile."""

    count: int
    p50: float
    p90: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spell:
        """From at least one duration. Percentiles by nearest rank, so that each is a duration that was seen."""
        ordered = sorted(seconds)
        return cls(len(ordered), _rank(ordered, 0.5), _rank(ordered, 0.9))


def _rank(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclass(frozen=True)
class History:
    """(vendor, phase) -> how long it took; vendor `ANY` for all of them together."""

    spells: Mapping[tuple[str, str], Spell] = field(default_factory=dict)

    @classmethod
    def of(cls, attempts: Iterable[tuple[str, str, float]]) -> History:
        """From (vendor, phase, seconds) of steps that were done."""
        found: dict[tuple[str, str], list[float]] = {}
        for vendor, phase, seconds in attempts:
            for key in {(vendor, phase), (ANY, phase)}:
                found.setdefault(key, []).append(max(0.0, seconds))
        return cls({key: Spell.of(values) for key, values in found.items()})

    def spell(self, vendor: str, phase: str) -> Spell | None:
        """What is known of that phase: of that vendor's nodes, else of any."""
        return self.spells.get((vendor, phase)) or self.spells.get((ANY, phase))


@dataclass(frozen=True)
class Tally:
    """Nodes of a rollout that stand at the same place: `since` is when the last of them came there."""

    wave: int
    group: int
    state: State
    direction: Direction
    cursor: int
    count: int
    since: float = 0.0

    @property
    def begun(self) -> bool:
        """Whether they owe a step now."""
        return self.cursor >= 0 and self.state not in ENDS


@dataclass(frozen=True)
class Estimate:
    """Seconds until the end, `seconds` typically and `worst` when steps are slow; None = not known, and `why`.

    `basis` is the smallest number of past durations that one of its steps rests on.
    """

    seconds: float | None
    worst: float | None = None
    basis: int = 0
    why: str = ""

    def __str__(self) -> str:
        if self.seconds is None or self.worst is None:
            return f"unknown: {self.why}"
        typical, worst = span(self.seconds), span(self.worst)
        few = f", from only {self.basis} past step{'s' if self.basis != 1 else ''}" if self.basis < 5 else ""
        return f"about {typical}{f', up to {worst}' if worst != typical else ''}{few}"

    def as_dict(self) -> dict[str, Json]:
        """As JSON: `eta` of a rollout."""
        whole = [None if value is None else math.ceil(value) for value in (self.seconds, self.worst)]
        return {"seconds": whole[0], "worst": whole[1], "basis": self.basis, "why": self.why}


def span(seconds: float) -> str:
    """A duration for people: `40 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    whole = max(0, math.ceil(seconds))
    if whole < 90:
        return f"{whole} s"
    minutes = (whole + 30) // 60
    if minutes < 90:
        return f"{minutes} min"
    if minutes < 48 * 60:
        hours, rest = divmod(minutes, 60)
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    days, rest = divmod((minutes + 30) // 60, 24)
    return f"{days} d {rest} h" if rest else f"{days} d"


def estimate_plan(plan: Plan, history: History, parallel: int, total: int | None = None, now: float = 0.0) -> Estimate:
    """How long a plan will take that begins at `now` (seconds since the epoch, for its windows).

    `total` is the number of nodes in the fleet, for limits in percent.
    """
    group_by_node = {node: number for number, group in enumerate(plan.groups) for node in group.nodes}
    tallies = []
    for number, wave in enumerate(plan.waves):
        counts: dict[int, int] = {}
        for name in wave:
            counts[group_by_node[name]] = counts.get(group_by_node[name], 0) + 1
        tallies += [Tally(number, group, "waiting", "forward", -1, count) for group, count in counts.items()]
    return estimate(plan, tallies, history, parallel, now, total)


def estimate(
    plan: Plan, tallies: Iterable[Tally], history: History, parallel: int, now: float, total: int | None = None
) -> Estimate:
    """How long the rollout of that plan will still take, from where its nodes stand at `now`."""
    by_wave: dict[int, list[Tally]] = {}
    soaking = 0.0  # of the waves that have ended, for the one that ended last
    for tally in tallies:
        if tally.state not in ENDS:
            by_wave.setdefault(tally.wave, []).append(tally)
        elif tally.state == "done":
            soaking = max(soaking, soak_s(plan) - max(0.0, now - tally.since))
    soaking = 0.0 if any(tally.begun for some in by_wave.values() for tally in some) else soaking
    clocks = _Clock(history, now, 0.5), _Clock(history, now, 0.9)
    for clock in clocks:
        clock.soak += soaking
        for number in sorted(by_wave):
            runs, slots = _shape(plan, number, parallel, total)
            started: list[float] = []
            waiting: list[float] = []
            for tally in by_wave[number]:
                group = plan.groups[tally.group]
                many = math.ceil(tally.count / runs)
                (started if tally.begun else waiting).extend([clock.left(group, tally)] * many)
            clock.total += _makespan(started, waiting, slots)
            clock.soak += soak_s(plan)
    typical = clocks[0]
    if typical.missing and not history.spells:
        return Estimate(None, None, 0, "no step was ever carried out here, so nothing is known of their durations")
    if typical.missing:
        phases = ", ".join(sorted(typical.missing))
        return Estimate(None, None, 0, f"no node has been through {phases} yet, so its duration is not known")
    waits = any(not tally.begun for some in by_wave.values() for tally in some)
    windows, margin_s = windows_of(plan.policy)
    windows = windows if waits else ()
    shown = [until_done(windows, now, clock.total, margin_s) + clock.soak for clock in clocks]
    if math.isinf(max(shown)):
        return Estimate(None, None, typical.basis, "in these windows it takes more than a year")
    return Estimate(shown[0], max(shown), typical.basis)


def soak_s(plan: Plan) -> float:
    """How long the rollout waits after each wave before its gate looks at it."""
    value = 0 if plan.policy.get("gate") is False else plan.policy.get("soak_s", 0)
    return float(value) if isinstance(value, int | float) else 0.0


def _shape(plan: Plan, wave: int, parallel: int, total: int | None) -> tuple[int, int]:
    """(nodes of one run, runs side by side) in that wave."""
    size = 1 if wave == 0 else max(1, int(str(plan.policy.get("chunk", 16))))
    limit = limits_of(plan.policy).get(FLEET)
    whole = total if total is not None else sum(map(len, plan.waves))
    room = max(1, limit.of(whole)) if limit is not None else whole
    size = min(size, room)
    return size, max(1, min(parallel, room // size))


class _Clock:
    """Adds up one percentile."""

    def __init__(self, history: History, now: float, share: float) -> None:
        self.history = history
        self.now = now
        self.share = share
        self.total = 0.0
        self.soak = 0.0  # goes on outside of windows too
        self.basis = 0
        self.missing: set[str] = set()

    def left(self, group: Group, tally: Tally) -> float:
        """Seconds that a node at that place still needs."""
        steps = path(group, tally.direction)[max(0, tally.cursor) :]
        spells = []
        for step in steps:
            spell = self.history.spell(group.vendor, step.phase)
            if spell is None:
                self.missing.add(step.phase)
                continue
            self.basis = min(self.basis or spell.count, spell.count)
            spells.append(spell.p50 if self.share < 0.9 else spell.p90)
        if tally.begun and spells and len(spells) == len(steps):
            spells[0] = max(0.0, spells[0] - max(0.0, self.now - tally.since))
        return sum(spells)


def _makespan(started: Iterable[float], waiting: Iterable[float], slots: int) -> float:
    """When the last run ends: those that are under way keep a slot each, the others take the first that comes free."""
    ends = sorted(started)
    free = [*ends, *([0.0] * max(0, slots - len(ends)))]
    free = free if len(free) <= slots else free[-slots:]  # more are under way than slots: the late ones keep theirs
    latest = ends[-1] if ends else 0.0
    heapq.heapify(free)
    for seconds in sorted(waiting, reverse=True):
        end = heapq.heappop(free) + seconds
        latest = max(latest, end)
        heapq.heappush(free, end)
    return latest
