"""The best stack of a problem: branch and bound over a lexicographic cost, and the cost itself.

The cost is a tuple compared from left to right; the exact newness at its end makes the optimum unique. Each part has a
lower bound over domains, so that bounds compare as costs do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from compat_matrix.compile import channel_limit
from compat_matrix.problem import CHANNEL_RANK, Constraint, Domains, Problem, Propagation, bits, propagate

Cost: TypeAlias = tuple[int, ...]
ACTIVATION_RANK = {"none": 0, "reload": 1, "reboot": 2, "power_cycle": 3, "hands": 4}
PARTS = ("legacy", "record", "stale", "changes", "activation", "dislikes", "rank", "newness")
ORDER = {
    "validated": ("legacy", "record", "stale", "changes", "activation", "dislikes", "rank", "newness"),
    "newest": ("legacy", "rank", "newness", "record", "stale", "changes", "activation", "dislikes"),
    "minimal": ("legacy", "changes", "activation", "record", "stale", "dislikes", "rank", "newness"),
}


@dataclass(frozen=True)
class Weights:
    """What each value of each variable costs, by part."""

    legacy: tuple[tuple[int, ...], ...]
    stale: tuple[tuple[int, ...], ...]
    changes: tuple[tuple[int, ...], ...]
    activation: tuple[tuple[int, ...], ...]
    rank: tuple[tuple[int, ...], ...]  # place in `prefer`
    newness: tuple[tuple[int, ...], ...]


def bucket(behind: int) -> int:
    """Staleness: 0 = at most one behind the head of its channel, 1 = within six, 2 = older."""
    return 0 if behind <= 1 else 1 if behind <= 6 else 2


def weigh(problem: Problem, unary: Domains) -> Weights:
    """`unary` are the values left by the statements on single components: the head of a channel is counted in them."""
    legacy, stale, changes, activation, rank, newness = [], [], [], [], [], []
    for variable, domain in zip(problem.variables, unary, strict=True):
        row = variable.row
        prefer = [p.lower() for p in row.prefer] if row else []
        seen: dict[str, int] = {}
        buckets = []
        for i, _ in enumerate(variable.values):
            channel = _channel(problem, variable.releases[i])
            place = seen.get(channel, 0)
            if domain >> i & 1:
                seen[channel] = place + 1
            counts = row is not None and row.choose == "always" and not prefer
            buckets.append(bucket(place) if counts else 0)
        stale.append(tuple(buckets))
        limit = channel_limit(problem.tables, row, problem.request.policy.channel) if row is not None else 0
        always = row is not None and row.choose == "always"
        legacy.append(
            tuple(
                int(always) if not rows else int(min(CHANNEL_RANK[r.channel] for r in rows) > limit)
                for rows in variable.releases
            )
        )
        moved = tuple(int(i != variable.current) for i in range(len(variable.values)))
        changes.append(moved)
        weight = ACTIVATION_RANK[row.activation] if row else 0
        activation.append(tuple(m * weight for m in moved))
        rank.append(tuple(prefer.index(v.lower()) if v.lower() in prefer else len(prefer) for v in variable.values))
        newness.append(tuple(range(len(variable.values))) if not prefer else (0,) * len(variable.values))
    return Weights(*map(tuple, (legacy, stale, changes, activation, rank, newness)))


def _channel(problem: Problem, rows: Sequence[object]) -> str:
    del problem
    channels = [str(getattr(r, "channel", "")) for r in rows]
    return min(channels, key=lambda c: CHANNEL_RANK.get(c, 99), default="")


def _by_weight(row: Sequence[int]) -> tuple[tuple[int, int], ...]:
    masks: dict[int, int] = {}
    for i, weight in enumerate(row):
        masks[weight] = masks.get(weight, 0) | 1 << i
    return tuple(sorted(masks.items()))


class Objective:
    """The cost of a complete choice and its lower bound over domains, for one strategy."""

    def __init__(self, problem: Problem, unary: Domains, strategy: str) -> None:
        self.problem = problem
        self.weights = weigh(problem, unary)
        self.order = ORDER[strategy]
        # The masks of the values of each weight, lightest first: the least weight in a domain is found by a few ANDs.
        self._steps = {
            name: tuple(map(_by_weight, getattr(self.weights, name)))
            for name in ("legacy", "stale", "changes", "activation", "rank")
        }
        self._by_age = tuple(any(row) for row in self.weights.newness)  # values stand newest first

    def bound(self, domains: Domains) -> Cost:
        """A cost that no choice within the domains is below; the exact cost when each domain has one value."""
        out: list[int] = []
        for name in self.order:
            if name == "newness":
                out += [
                    (d & -d).bit_length() - 1 if by_age else 0 for d, by_age in zip(domains, self._by_age, strict=True)
                ]
            elif name == "record":
                out.append(-self._record(domains))
            elif name == "dislikes":
                out.append(self._dislikes(domains))
            else:
                least = [
                    next(weight for weight, mask in steps if d & mask)
                    for steps, d in zip(self._steps[name], domains, strict=True)
                ]
                number = max(least, default=0) if name == "activation" else sum(least)
                out.append(number + self._unknown(domains) if name == "legacy" else number)
        return tuple(out)

    def _record(self, domains: Domains) -> int:
        best = 0
        for size, masks, _ in self.problem.records:
            if size > best and all(domains[v] & mask for v, mask in masks):
                best = size
        return best

    def _dislikes(self, domains: Domains) -> int:
        return sum(
            all(not domains[v] & ~mask for v, mask in when) and any(not domains[v] & mask for v, mask in needs)
            for _, when, needs in self.problem.likes
        )

    def _unknown(self, domains: Domains) -> int:
        return sum(not _supported(constraint, domains) for constraint in self.problem.unknown_tables)

    def named(self, cost: Cost) -> dict[str, tuple[int, ...]]:
        """A cost by its parts, in the order of the strategy."""
        out: dict[str, tuple[int, ...]] = {}
        at = 0
        for name in self.order:
            size = len(self.problem.variables) if name == "newness" else 1
            out[name] = cost[at : at + size]
            at += size
        return out


def _supported(constraint: Constraint, domains: Domains) -> bool:
    return any(all(domains[v] & m for v, m in zip(constraint.variables, row, strict=True)) for row in constraint.rows)


def best(problem: Problem, strategy: str, judge: Objective | None = None) -> tuple[Domains, Cost, Objective] | None:
    """The cheapest choice (one value per domain), its cost, and the objective; None when nothing fits.

    `judge` is an objective to measure with in place of the problem's own: to compare with another choice.
    """
    if any(g.impossible for g in problem.groups):
        return None
    constraints = problem.constraints()
    propagation = Propagation(constraints)
    unary = propagate([c for c in constraints if len(c.variables) == 1], problem.domains())
    if unary is None:
        return None
    objective = judge or Objective(problem, unary, strategy)
    found: tuple[Cost, Domains] | None = None

    def search(domains: Domains, changed: int | None = None) -> None:
        nonlocal found
        reduced = propagation.run(domains, changed)
        if reduced is None:
            return
        lower = objective.bound(reduced)
        if found is not None and lower >= found[0]:
            return
        open_ = [(mask.bit_count(), i) for i, mask in enumerate(reduced) if mask.bit_count() > 1]
        if not open_:
            found = (lower, reduced)
            return
        _, v = min(open_)
        children = [(*reduced[:v], 1 << value, *reduced[v + 1 :]) for value in bits(reduced[v])]
        for lower, child in sorted((objective.bound(c), c) for c in children):
            if found is not None and lower >= found[0]:
                break  # the rest is no better
            search(child, v)

    search(unary)
    return (found[1], found[0], objective) if found is not None else None


def stack_of(problem: Problem, choice: Domains) -> dict[str, str]:
    """component -> version of a choice."""
    return {
        variable.component: variable.values[domain.bit_length() - 1]
        for variable, domain in zip(problem.variables, choice, strict=True)
    }


def allowed(problem: Problem, stack: Mapping[str, str | None]) -> bool:
    """Whether a stack breaks no rule of the tables (policy and wishes aside). Components not in it are not there."""
    chosen: list[int] = []
    for variable in problem.variables:
        version = stack.get(variable.component)
        if version is None:
            chosen.append(0)
        elif version in variable.values:
            chosen.append(1 << variable.values.index(version))
        else:
            return False
    for group in problem.groups:
        if group.kind in ("wish", "channel", "level", "hardware"):
            continue
        if group.impossible:
            return False
        for constraint in group.constraints:
            if not all(chosen[v] for v in constraint.variables):
                continue
            if not any(
                all(chosen[v] & m for v, m in zip(constraint.variables, row, strict=True)) for row in constraint.rows
            ):
                return False
    return True
