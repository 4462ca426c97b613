"""One node class as a constraint problem: small domains as bit masks, constraints as tables of masks.

Every rule becomes rows of masks over its components: the values are allowed together when some row contains them all.
Propagation keeps only values that some row supports in each constraint; what remains is searched. Named groups of
constraints are what an explanation may leave out.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from compat_matrix.facts import NodeClass
from compat_matrix.row import ComponentRow, Record, Release, Row, Rule
from compat_matrix.schema import BASE_SCHEMES
from compat_matrix.table import Matrix, VendorTables
from fleet.core.errors import BadInput
from fleet.core.model import Reason, Request, Source
from fleet.core.version import Range, Term, bound_key, key, valid

Domains: TypeAlias = tuple[int, ...]
GroupKind = Literal["wish", "channel", "level", "requires", "forbids", "equals", "pairs", "record", "hardware"]
CHANNEL_RANK = {"lts": 0, "stable": 1, "candidate": 2, "developer": 3, "legacy": 9}


@dataclass(frozen=True)
class Variable:
    """A component to be chosen: its candidate versions, newest first."""

    component: str
    row: ComponentRow | None  # None = the tables know nothing of it: carried along
    values: tuple[str, ...]
    releases: tuple[tuple[Release, ...], ...]  # the rows of each value that hold here; () = not listed
    admitted: int  # mask: channel and level admitted by the policy, or named by the wish
    current: int | None  # index of the value that is there now
    ladder: Ladder

    @property
    def full(self) -> int:
        return (1 << len(self.values)) - 1

    @property
    def scheme(self) -> str:
        return self.row.scheme if self.row else BASE_SCHEMES.get(self.component, "generic")

    def mask(self, wanted: Range) -> int:
        """The values in a range; a value that has not the scheme's form is in none but `*`."""
        return self.ladder.mask(wanted)

    def only(self, versions: Iterable[str]) -> Variable:
        """The same component with these values; those that were not among the values are not listed."""
        kept = tuple(dict.fromkeys([*(v for v in self.values if v in versions), *versions]))
        releases = tuple(self.releases[self.values.index(v)] if v in self.values else () for v in kept)
        return Variable(self.component, self.row, kept, releases, (1 << len(kept)) - 1, None, Ladder(kept, self.scheme))


class Ladder:
    """The values of a variable in their order, with the masks of the ranges that were asked before.

    A comparison with a bound is a slice of the ordered values, found by bisection; what is no slice (patterns, kernels
    with tags, builds of Ascend versions) is tried value by value.
    """

    def __init__(self, values: tuple[str, ...], scheme: str) -> None:
        self.values, self.scheme = values, scheme
        self.full = (1 << len(values)) - 1
        self.masks: dict[Range, int] = {}
        self._sliced = scheme not in ("kernel", "ascend_hdk")
        order = sorted((key(v, scheme), i) for i, v in enumerate(values) if valid(v, scheme))
        self._keys = [k for k, _ in order]
        self._prefix = [0]  # mask of the n lowest values
        for _, i in order:
            self._prefix.append(self._prefix[-1] | 1 << i)

    def mask(self, wanted: Range) -> int:
        found = self.masks.get(wanted)
        if found is None:
            found = self.masks[wanted] = self._mask(wanted)
        return found

    def _mask(self, wanted: Range) -> int:
        if wanted.any:
            return self.full
        out = 0
        for terms in wanted.alternatives:
            part = self._prefix[-1]
            for term in terms:
                part &= self._term(term)
            out |= part
        return out

    def _term(self, term: Term) -> int:
        if term.op == "*":
            return self._prefix[-1]
        if self._sliced and term.op != "in":
            try:
                bound = bound_key(term.values[0], self.scheme)
            except BadInput:
                return 0
            below = self._prefix[bisect_left(self._keys, bound)]
            up_to = self._prefix[bisect_right(self._keys, bound)]
            every = self._prefix[-1]
            return {
                "<": below, "<=": up_to, ">": every & ~up_to, ">=": every & ~below, "==": up_to & ~below,
                "!=": every & ~(up_to & ~below),
            }[term.op]  # fmt: skip
        out = 0
        for i, value in enumerate(self.values):
            if self._prefix[-1] >> i & 1:
                try:
                    out |= term.holds(value, self.scheme) << i
                except BadInput:
                    continue
        return out


@dataclass(frozen=True)
class Constraint:
    """The values of `variables` are allowed together when some row of masks contains all of them."""

    variables: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]

    def revise(self, domains: list[int]) -> list[int] | None:
        """Indices of variables whose domain shrank; None when one became empty."""
        if len(self.variables) == 2:  # by far the most: spelled out
            v, w = self.variables
            left, right = domains[v], domains[w]
            a = b = 0
            for m, n in self.rows:
                if m & left and n & right:
                    a |= m
                    b |= n
            a &= left
            b &= right
            if not a or not b:
                return None
            domains[v], domains[w] = a, b
            return [u for u, shrank in ((v, a != left), (w, b != right)) if shrank]
        support = [0] * len(self.variables)
        current = [domains[v] for v in self.variables]
        for row in self.rows:
            if all(d & m for d, m in zip(current, row, strict=True)):
                support = [s | m for s, m in zip(support, row, strict=True)]
        changed = []
        for v, before, mask in zip(self.variables, current, support, strict=True):
            after = before & mask
            if not after:
                return None
            if after != before:
                domains[v] = after
                changed.append(v)
        return changed


@dataclass(frozen=True)
class Group:
    """Constraints that one statement makes, and the rows behind it. `reasons` are its sentences in a conflict."""

    name: str
    kind: GroupKind
    constraints: tuple[Constraint, ...]
    rows: tuple[Row, ...] = ()
    reasons: tuple[Reason, ...] = ()
    impossible: bool = False  # cannot be satisfied whatever is chosen


@dataclass
class Problem:
    """A class, its variables and its groups."""

    matrix: Matrix
    tables: VendorTables
    request: Request
    facts: NodeClass
    variables: tuple[Variable, ...]
    groups: tuple[Group, ...] = ()
    carried: Mapping[str, str] = field(default_factory=dict)  # components outside the tables, kept as found
    left_out: Mapping[str, Reason] = field(default_factory=dict)  # there now, but meaningless on this hardware
    records: tuple[tuple[int, tuple[tuple[int, int], ...], Record], ...] = ()  # (size, (variable, mask)…, row)
    tested: tuple[Record, ...] = ()  # sets that others say they ship or test together: told, not preferred
    likes: tuple[tuple[Rule, tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]], ...] = ()
    unknown_tables: tuple[Constraint, ...] = ()  # pairs tables that do not bind under allow_unknown

    def index(self, component: str) -> int | None:
        return next((i for i, v in enumerate(self.variables) if v.component == component), None)

    def constraints(self, groups: Iterable[Group] | None = None) -> list[Constraint]:
        return [c for g in (self.groups if groups is None else groups) for c in g.constraints]

    def domains(self) -> Domains:
        return tuple(v.full or 1 for v in self.variables)  # one without values has an impossible group


def propagate(constraints: Sequence[Constraint], domains: Domains) -> Domains | None:
    """The domains without values that cannot be in any solution of a single constraint; None = nothing fits."""
    return Propagation(constraints).run(domains)


class Propagation:
    """The constraints with an index of who watches which variable, for many runs."""

    def __init__(self, constraints: Sequence[Constraint]) -> None:
        self.constraints = list(constraints)
        self.watch: dict[int, list[Constraint]] = {}
        for constraint in self.constraints:
            for v in constraint.variables:
                self.watch.setdefault(v, []).append(constraint)

    def run(self, domains: Domains, changed: int | None = None) -> Domains | None:
        """As `propagate`; `changed` is the one variable that shrank since the domains were last propagated."""
        state = list(domains)
        if not all(state):
            return None
        queue = list(self.constraints) if changed is None else list(self.watch.get(changed, ()))
        waiting = set(map(id, queue))
        while queue:
            constraint = queue.pop()
            waiting.discard(id(constraint))
            shrank = constraint.revise(state)
            if shrank is None:
                return None
            for v in shrank:
                for other in self.watch[v]:
                    if other is not constraint and id(other) not in waiting:
                        waiting.add(id(other))
                        queue.append(other)
        return tuple(state)


def bits(mask: int) -> Iterator[int]:
    """The positions of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def feasible(problem: Problem, groups: Iterable[Group]) -> bool:
    """Whether some choice satisfies all these groups."""
    chosen = list(groups)
    if any(g.impossible for g in chosen):
        return False
    propagation = Propagation(problem.constraints(chosen))

    def search(domains: Domains, changed: int | None = None) -> bool:
        reduced = propagation.run(domains, changed)
        if reduced is None:
            return False
        open_ = [(mask.bit_count(), i) for i, mask in enumerate(reduced) if mask.bit_count() > 1]
        if not open_:
            return True
        _, v = min(open_)
        return any(search((*reduced[:v], 1 << value, *reduced[v + 1 :]), v) for value in bits(reduced[v]))

    return search(problem.domains())


def request_source(section: str) -> Source:
    """A part of the request as the source of a sentence."""
    return Source("the request", section)


def tables_source(tables: VendorTables, section: str = "") -> Source:
    """The tables as a whole as the source of a sentence: for what no row says."""
    return Source(f"compatibility tables of {tables.name}", section or "all rows", at=f"compat_matrix/{tables.name}")
