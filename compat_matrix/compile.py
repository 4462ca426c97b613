"""From rows and a request to a Problem: candidate versions, rules as masks, policy and wishes as groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from compat_matrix.facts import NodeClass, holds
from compat_matrix.problem import (
    CHANNEL_RANK,
    Constraint,
    Group,
    Ladder,
    Problem,
    Variable,
    bits,
    request_source,
    tables_source,
)
from compat_matrix.row import ComponentRow, Release, Rule, Scope, level_rank
from compat_matrix.schema import BASE_SCHEMES
from compat_matrix.table import Matrix, VendorTables
from compat_matrix.wishes import completed, fact_wishes
from fleet.core.model import Reason, Request
from fleet.core.version import Range, key, valid


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


def applies(row: ComponentRow, facts: NodeClass) -> bool:
    """Whether the component means anything on this hardware."""
    return not row.when or any(holds(scope, facts) for scope in row.when)


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
    groups += fact_wishes(request, facts)
    return tuple(found), carried, left_out, groups


def _described(facts: NodeClass) -> str:
    flags = ", ".join(f"{name} {value}" for name, value in sorted(facts.flags.items()))
    return f"{facts.count} cards" + (f", {flags}" if flags else "")


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


def compile_rules(problem: Problem) -> Problem:
    """Fills in what the tables say; policy and wishes are left aside (roads need them not)."""
    groups = [*_rule_groups(problem), *_table_groups(problem), *_record_groups(problem)]
    problem.groups = tuple(g for g in groups if g.constraints or g.impossible)
    return problem
