"""One node class as a constraint problem: small domains as bit masks, constraints as tables of masks.

Every rule becomes rows of masks over its components: the values are allowed together when some row contains them all.
Propagation keeps only values that some row supports in each constraint; what remains is searched. Named groups of
constraints are what an explanation may leave out.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from compat_matrix.facts import NodeClass, holds
from compat_matrix.row import ComponentRow, Record, Release, Row, Rule, Scope, level_rank
from compat_matrix.schema import BASE_SCHEMES
from compat_matrix.table import Matrix, VendorTables
from fleet.core.errors import BadInput
from fleet.core.model import LEVELS, Reason, Request, Source
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
    state = list(domains)
    if not all(state):
        return None
    watch: dict[int, list[Constraint]] = {}
    for constraint in constraints:
        for v in constraint.variables:
            watch.setdefault(v, []).append(constraint)
    queue = list(constraints)
    waiting = set(map(id, queue))
    while queue:
        constraint = queue.pop()
        waiting.discard(id(constraint))
        changed = constraint.revise(state)
        if changed is None:
            return None
        for v in changed:
            for other in watch[v]:
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
    constraints = problem.constraints(chosen)

    def search(domains: Domains) -> bool:
        reduced = propagate(constraints, domains)
        if reduced is None:
            return False
        open_ = [(mask.bit_count(), i) for i, mask in enumerate(reduced) if mask.bit_count() > 1]
        if not open_:
            return True
        _, v = min(open_)
        return any(search((*reduced[:v], 1 << value, *reduced[v + 1 :])) for value in bits(reduced[v]))

    return search(problem.domains())


# --- compiling ------------------------------------------------------------------------------------------------------


def compile_problem(matrix: Matrix, request: Request, facts: NodeClass) -> Problem:
    """The problem of one class. What cannot be satisfied at all is in it as an `impossible` group."""
    tables = matrix.tables[request.vendor]
    request = replace(request, wish={c: completed(tables, c, text) for c, text in request.wish.items()})
    variables, carried, left_out, groups = variables_of(matrix, tables, request, facts)
    problem = Problem(matrix, tables, request, facts, variables, (), carried, left_out)
    groups += _rule_groups(problem)
    groups += _table_groups(problem)
    groups += _record_groups(problem)
    groups += _policy_groups(problem)
    groups += _wish_groups(problem)
    problem.groups = tuple(g for g in groups if g.constraints or g.impossible)
    problem.likes = tuple(_likes(problem))
    return problem


def completed(tables: VendorTables, component: str, wish: str) -> str:
    """A wish as it is meant: a bare beginning (`580`, `12.8`) that is no release itself means all that begin so."""
    row = tables.components.get(component)
    if row is None or not re.fullmatch(r"\d+(\.\d+)*", wish):
        return wish
    exact, longer = Range.parse(f"=={wish}"), Range.parse(f"{wish}.*")
    versions = [r.version for r in tables.releases.get(row.releases_of or component, ())]
    if any(exact.contains(v, row.scheme) for v in versions):
        return wish
    return str(longer) if any(longer.contains(v, row.scheme) for v in versions) else wish


def applies(row: ComponentRow, facts: NodeClass) -> bool:
    """Whether the component means anything on this hardware."""
    return not row.when or any(holds(scope, facts) for scope in row.when)


def request_source(section: str) -> Source:
    return Source("the request", section)


def variables_of(
    matrix: Matrix, tables: VendorTables, request: Request, facts: NodeClass
) -> tuple[tuple[Variable, ...], dict[str, str], dict[str, Reason], list[Group]]:
    found: list[Variable] = []
    carried: dict[str, str] = {}
    left_out: dict[str, Reason] = {}
    groups: list[Group] = []
    for name, row in tables.components.items():
        if name in ("os", "kernel", "gcc"):
            continue
        wished = name in request.wish
        current = request.current.get(name)
        if not applies(row, facts):
            if wished:
                text = f"{name} does not apply to {facts.model} as described ({_described(facts)}). {row.because}"
                reason = (Reason(f"you wish {name} {request.wish[name]}", request_source(f"wish.{name}")),)
                groups.append(Group(f"wish:{name}", "hardware", (), (row,), (*reason, row.reason(text)), True))
            elif current:
                left_out[name] = row.reason(f"{name} {current} is there but means nothing here. {row.because}")
            continue
        releases = _releases(tables, row, facts)
        if not releases and current and not wished:
            carried[name] = current
        elif row.choose == "always" or wished or current:
            found.append(_variable(matrix, row, releases, current, request))
    for name, version in request.current.items():
        if name not in tables.components and name not in ("os", "kernel"):
            if name == "gcc":
                found.append(Variable(name, None, (version,), ((),), 1, 0, Ladder((version,), BASE_SCHEMES[name])))
            else:
                carried[name] = version
    for name, wanted in request.wish.items():
        if name not in tables.components and name not in ("os", "kernel", "gcc"):
            text = f"the tables of {tables.name} have no component {name}"
            reasons = (
                Reason(f"you wish {name} {wanted}", request_source(f"wish.{name}")),
                Reason(text, tables_source(tables)),
            )
            groups.append(Group(f"wish:{name}", "hardware", (), (), reasons, True))
    groups += _fact_wishes(request, facts)
    return tuple(found), carried, left_out, groups


def tables_source(tables: VendorTables, section: str = "") -> Source:
    return Source(f"compatibility tables of {tables.name}", section or "all rows", at=f"compat_matrix/{tables.name}")


def _described(facts: NodeClass) -> str:
    flags = ", ".join(f"{name} {value}" for name, value in sorted(facts.flags.items()))
    return f"{facts.count} cards" + (f", {flags}" if flags else "")


def _fact_wishes(request: Request, facts: NodeClass) -> Iterator[Group]:
    """A wish for os, kernel or gcc is held against the fact: the solver does not exchange them."""
    have = {"os": f"{facts.os_version}", "kernel": facts.kernel, "gcc": request.current.get("gcc", "")}
    for name, value in have.items():
        wanted = request.wish.get(name)
        if wanted is None or (name == "kernel" and wished_kernel(request)):
            continue
        try:
            met = bool(value) and Range.parse(wanted).contains(value, {"kernel": "kernel"}.get(name, "generic"))
        except BadInput:
            met = False
        if not met:
            reasons = (
                Reason(f"you wish {name} {wanted}", request_source(f"wish.{name}")),
                Reason(f"{name} is {value or 'not known'}, and is a fact of the node", request_source("os")),
            )
            yield Group(f"wish:{name}", "hardware", (), (), reasons, True)


def wished_kernel(request: Request) -> str:
    """The kernel that is wished by exactly one name; "" when the wish is no name or is met already."""
    wanted = request.wish.get("kernel", "")
    if not wanted:
        return ""
    parsed = Range.parse(wanted)
    names = parsed.versions()
    exact = len(names) == 1 and len(parsed.alternatives) == 1 and valid(names[0], "kernel")
    return names[0] if exact and names[0] != request.os.kernel else ""


def _releases(tables: VendorTables, row: ComponentRow, facts: NodeClass) -> dict[str, list[Release]]:
    """version -> rows that hold for this class. Versions that are the same have one entry."""
    out: dict[str, list[Release]] = {}
    spelled: dict[object, str] = {}
    for release in tables.releases.get(row.releases_of or row.component, ()):
        if holds(release.when, facts, lenient=True) and not release.when.components:
            name = spelled.setdefault(key(release.version, row.scheme), release.version)
            out.setdefault(name, []).append(release)
    return out


def _variable(
    matrix: Matrix, row: ComponentRow, releases: Mapping[str, Sequence[Release]], current: str | None, request: Request
) -> Variable:
    policy = request.policy
    wish = request.wish.get(row.component) or request.wish.get(row.releases_of)
    wanted = Range.parse(wish) if wish else None
    named = wanted is not None and wanted.names
    well_formed = current is not None and valid(current, row.scheme)
    values = dict(releases)
    there: str | None = None
    if current is not None:
        if well_formed:
            same = key(current, row.scheme)
            there = next((v for v in values if key(v, row.scheme) == same), None)
        if there is None and (row.choose == "keep" or policy.allow_unknown):
            there = current
            values[current] = []
    good = sorted((v for v in values if valid(v, row.scheme)), key=lambda v: key(v, row.scheme), reverse=True)
    order = tuple(good + [v for v in values if v not in good])
    limit = channel_limit(matrix.tables[request.vendor], row, policy.channel)
    admitted = 0
    for i, version in enumerate(order):
        rows = values[version]
        if not rows:
            admitted |= 1 << i
        for release in rows:
            by_name = release.channel == "legacy" and (
                policy.channel == "legacy" or (named and wanted is not None and wanted.contains(version, row.scheme))
            )
            if CHANNEL_RANK[release.channel] <= limit or by_name or (row.choose == "keep" and version == there):
                admitted |= 1 << i
    index = order.index(there) if there is not None else None
    ladder: Ladder | None = matrix.ladders.get((row.scheme, order))
    if ladder is None:
        ladder = matrix.ladders[(row.scheme, order)] = Ladder(order, row.scheme)
    return Variable(row.component, row, order, tuple(tuple(values[v]) for v in order), admitted, index, ladder)


def channel_limit(tables: VendorTables, row: ComponentRow, channel: str) -> int:
    """The rank of the least stable channel that a policy admits of a component.

    A policy of `lts` admits stable releases of a component that has no lts line at all. `legacy` admits, beside what
    `stable` does, releases past their end.
    """
    known = tables.releases.get(row.releases_of or row.component, ())
    if channel == "legacy" or (channel == "lts" and all(r.channel != "lts" for r in known)):
        return CHANNEL_RANK["stable"]
    return CHANNEL_RANK[channel]


def _conditions(problem: Problem, scope: Scope) -> list[tuple[int, int]] | None:
    """(variable, mask) for each component of a scope; None when one of them is not in the stack."""
    out: list[tuple[int, int]] = []
    for component, wanted in scope.components.items():
        index = problem.index(component)
        if index is None:
            return None
        out.append((index, problem.variables[index].mask(wanted)))
    return out


def _rows(problem: Problem, alternatives: Sequence[Mapping[int, int]]) -> Constraint | None:
    """A constraint from alternatives of (variable -> mask); None when it holds for every choice."""
    variables = tuple(sorted({v for row in alternatives for v in row}))
    full = {v: problem.variables[v].full for v in variables}
    rows = []
    for row in alternatives:
        masks = tuple(row.get(v, full[v]) for v in variables)
        if all(m == full[v] for v, m in zip(variables, masks, strict=True)):
            return None
        if all(masks):
            rows.append(masks)
    return Constraint(variables, tuple(rows))


def _rule_groups(problem: Problem) -> list[Group]:
    out: list[Group] = []
    for rule in problem.tables.rules:
        if rule.relation not in ("requires", "forbids", "equals") or not holds(rule.when, problem.facts):
            continue
        conditions = _conditions(problem, rule.when)
        if conditions is None:
            continue
        alternatives: list[dict[int, int]] = [
            {v: problem.variables[v].full & ~mask} for v, mask in conditions
        ]  # one condition fails
        found: list[Constraint] = []
        impossible = False
        if rule.relation == "equals":
            found = _equal(problem, rule, alternatives)
        else:
            if rule.relation == "requires" and holds(rule.needs, problem.facts, lenient=True):
                needs = {
                    i: problem.variables[i].mask(wanted)
                    for component, wanted in rule.needs.components.items()
                    if (i := problem.index(component)) is not None
                }
                if not needs:
                    continue
                alternatives.append(needs)
            constraint = _rows(problem, [a for a in alternatives if all(a.values())])
            if not any(all(a.values()) for a in alternatives):
                impossible = True
            elif constraint is not None:
                found = [constraint]
        group = Group(rule.id or rule.at, rule.relation, tuple(found), (rule,), (rule.reason(),), impossible)
        out.append(group)
    return out


def _equal(problem: Problem, rule: Rule, otherwise: list[dict[int, int]]) -> list[Constraint]:
    present = [i for c in rule.components if (i := problem.index(c)) is not None]
    if len(present) < 2:
        return []
    masks: dict[object, dict[int, int]] = {}
    for v in present:
        variable = problem.variables[v]
        for i, value in enumerate(variable.values):
            same = key(value, variable.scheme) if valid(value, variable.scheme) else value
            row = masks.setdefault(same, {})
            row[v] = row.get(v, 0) | 1 << i
    rows = [row for row in masks.values() if len(row) == len(present)]
    constraint = _rows(problem, [*(a for a in otherwise if all(a.values())), *rows])
    if constraint is None:
        return []
    return [constraint if constraint.rows else Constraint(tuple(present), ())]


def table_constraint(problem: Problem, rows: Sequence[Rule], minimum: int) -> Constraint | None:
    """The pairs rows of one table at or above a level; None when the table does not bind here."""
    components = {c for rule in rows for c in rule.pairs}
    indices = {c: i for c in components if (i := problem.index(c)) is not None}
    if set(indices) != components:
        return None
    alternatives: list[dict[int, int]] = []
    for rule in rows:
        if level_rank(rule.level) < minimum or not holds(rule.when, problem.facts, lenient=True):
            continue
        conditions = _conditions(problem, rule.when)
        if conditions is None:
            continue
        row = {indices[c]: problem.variables[indices[c]].mask(wanted) for c, wanted in rule.pairs.items()}
        for v, mask in conditions:
            row[v] = row.get(v, problem.variables[v].full) & mask
        alternatives.append(row)
    if not alternatives:
        return Constraint(tuple(sorted(indices.values())), ())
    return _rows(problem, alternatives)


def _table_groups(problem: Problem) -> list[Group]:
    """One group for what a table says at all, one for what it says with the evidence that the policy demands."""
    out: list[Group] = []
    policy = problem.request.policy
    unknown: list[Constraint] = []
    for name, rows in problem.tables.tables.items():
        weak = table_constraint(problem, rows, 0)
        strong = table_constraint(problem, rows, _minimum(problem))
        if policy.allow_unknown:
            unknown += [strong] if strong else []
            continue
        if weak is not None:
            out.append(Group(f"table:{name}", "pairs", (weak,), tuple(rows)))
        if strong is not None and strong != weak:
            out.append(Group(f"level:table:{name}", "level", (strong,), tuple(rows)))
    problem.unknown_tables = tuple(unknown)
    return out


def _minimum(problem: Problem) -> int:
    """The level that single rows must have. `validated` is demanded of the set as a whole: see `_record_groups`."""
    level = problem.request.policy.min_level
    return 0 if level == "validated" else level_rank(level)


def _record_groups(problem: Problem) -> list[Group]:
    out: list[Group] = []
    passed = []
    for record in problem.tables.records:
        if not holds(record.when, problem.facts):
            continue
        masks = []
        for component, version in record.stack.items():
            index = problem.index(component)
            if index is None:
                break
            masks.append((index, problem.variables[index].mask(Range.parse(f"=={version}"))))
        else:
            if record.result == "pass" and all(m for _, m in masks):
                if record.level == "validated":
                    passed.append((len(masks), tuple(masks), record))
                else:
                    problem.tested += (record,)
            elif record.result == "fail":
                full = [{v: problem.variables[v].full & ~m} for v, m in masks]
                constraint = _rows(problem, [a for a in full if all(a.values())])
                said = record.because or "this very set failed its validation"
                out.append(
                    Group(record.at, "record", (constraint,) if constraint else (), (record,), (record.reason(said),))
                )
    problem.records = tuple(passed)
    if problem.request.policy.min_level == "validated":
        constraint = _rows(problem, [dict(masks) for _, masks, _ in passed]) if passed else None
        out.append(Group("level:records", "level", (constraint,) if constraint else (), impossible=not passed))
    return out


def _policy_groups(problem: Problem) -> list[Group]:
    out: list[Group] = []
    minimum = _minimum(problem)
    for i, variable in enumerate(problem.variables):
        if variable.admitted != variable.full:
            out.append(Group(f"channel:{variable.component}", "channel", (Constraint((i,), ((variable.admitted,),)),)))
        weak = sum(
            1 << n
            for n, rows in enumerate(variable.releases)
            if rows and n != variable.current and max(level_rank(r.level) for r in rows) < minimum
        )
        if weak:
            mask = variable.full & ~weak
            rows_ = ((mask,),) if mask else ()
            found = tuple(r for n in bits(weak) for r in variable.releases[n])
            out.append(Group(f"level:{variable.component}", "level", (Constraint((i,), rows_),), found))
    return out


def _wish_groups(problem: Problem) -> list[Group]:
    out: list[Group] = []
    for component, text in problem.request.wish.items():
        index = problem.index(component)
        if index is not None:
            mask = problem.variables[index].mask(Range.parse(text))
            constraint = Constraint((index,), ((mask,),) if mask else ())
            reason = Reason(f"you wish {component} {text}", request_source(f"wish.{component}"))
            out.append(Group(f"wish:{component}", "wish", (constraint,), (), (reason,)))
    for i, variable in enumerate(problem.variables):
        if not variable.values:
            said = f"no release of {variable.component} is in the tables for {problem.facts.model}"
            reasons = (Reason(said, tables_source(problem.tables, "releases")),)
            out.append(Group(f"releases:{variable.component}", "hardware", (Constraint((i,), ()),), (), reasons, True))
    return out


def _likes(
    problem: Problem,
) -> Iterator[tuple[Rule, tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]]:
    for rule in problem.tables.rules:
        if rule.relation != "prefers" or not holds(rule.when, problem.facts):
            continue
        conditions = _conditions(problem, rule.when)
        needs = _conditions(problem, rule.needs)
        if conditions is not None and needs:
            yield rule, tuple(conditions), tuple(needs)


def level_of(problem: Problem, chosen: Mapping[str, str]) -> str:
    """The weakest evidence that a stack rests on: of its releases, and of the best matching row of each table.

    `validated` when a passing record of this class names all that is always chosen, in these versions.
    """
    found: list[str] = []
    needed = {v.component for v in problem.variables if v.row is not None and v.row.choose == "always"}
    for _, masks, record in problem.records:
        inside = all(
            mask >> problem.variables[v].values.index(chosen[problem.variables[v].component]) & 1
            for v, mask in masks
            if problem.variables[v].component in chosen
        )
        if inside and needed <= set(record.stack):
            return "validated"
    for variable in problem.variables:
        if variable.component in chosen and chosen[variable.component] in variable.values:
            rows = variable.releases[variable.values.index(chosen[variable.component])]
            if rows:
                found.append(max((r.level for r in rows), key=level_rank))
    for rows_ in problem.tables.tables.values():
        if all(c in chosen for rule in rows_ for c in rule.pairs):
            matching = matching_rows(problem, rows_, chosen)
            found.append(max((r.level for r in matching), key=level_rank) if matching else LEVELS[0])
    return min(found, key=level_rank, default=LEVELS[0])


def matching_rows(problem: Problem, rows: Sequence[Rule], chosen: Mapping[str, str]) -> list[Rule]:
    """The rows of a pairs table that hold for this class and this stack, strongest evidence first."""
    schemes = {v.component: v.scheme for v in problem.variables}

    def fits(wanted: Mapping[str, Range]) -> bool:
        return all(c in chosen and _contains(r, chosen[c], schemes.get(c, "generic")) for c, r in wanted.items())

    found = [
        rule
        for rule in rows
        if holds(rule.when, problem.facts, lenient=True) and fits(rule.pairs) and fits(rule.when.components)
    ]
    return sorted(found, key=lambda rule: -level_rank(rule.level))


def _contains(wanted: Range, version: str, scheme: str) -> bool:
    try:
        return wanted.any or wanted.contains(version, scheme)
    except BadInput:
        return False


def compile_rules(problem: Problem) -> Problem:
    """Fills in what the tables say; policy and wishes are left aside (roads need them not)."""
    groups = [*_rule_groups(problem), *_table_groups(problem), *_record_groups(problem)]
    problem.groups = tuple(g for g in groups if g.constraints or g.impossible)
    return problem
