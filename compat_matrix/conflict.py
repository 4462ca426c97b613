"""Why nothing fits: a minimal set of statements that clash, in sentences with their sources.

QuickXplain (Junker 2004) over the groups of a problem with "does anything fit?" as the oracle: leaving out any one of
the answer makes the rest satisfiable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compat_matrix.facts import NodeClass, holds, known_system
from compat_matrix.problem import Group, Problem, bits, feasible, request_source, tables_source
from compat_matrix.row import Release, Rule, level_rank
from fleet.core.model import Reason

_LIMIT = 4  # rows of one table shown


def core(problem: Problem) -> list[Group]:
    """A minimal set of groups that cannot hold together; [] when the problem has a solution."""
    alone = [g for g in problem.groups if g.impossible]
    if alone:
        return alone[:1]
    if feasible(problem, problem.groups):
        return []
    # What a person can change comes last: it is kept in the core only where it is needed.
    rank = {"hardware": 0, "requires": 0, "forbids": 0, "equals": 0, "record": 0, "pairs": 1, "level": 2, "channel": 3}
    ordered = sorted(problem.groups, key=lambda g: rank.get(g.kind, 4))
    return _explain(problem, [], [], ordered)


def _explain(problem: Problem, background: list[Group], delta: list[Group], groups: list[Group]) -> list[Group]:
    if delta and not feasible(problem, background):
        return []
    if len(groups) == 1:
        return groups
    half = len(groups) // 2
    first, second = groups[:half], groups[half:]
    right = _explain(problem, background + first, first, second)
    left = _explain(problem, background + right, right, first)
    return left + right


def causes(problem: Problem, groups: Sequence[Group]) -> tuple[Reason, ...]:
    """The sentences of a core, wishes first, each once."""
    rank = {"wish": 0, "hardware": 0, "requires": 1, "forbids": 1, "equals": 2, "record": 2, "pairs": 3, "channel": 4}
    out: list[Reason] = []
    for group in sorted(groups, key=lambda g: rank.get(g.kind, 5)):
        for reason in _sentences(problem, group, groups):
            if all(reason.text != other.text for other in out):
                out.append(reason)
    return tuple(out)


def _sentences(problem: Problem, group: Group, core_: Sequence[Group]) -> list[Reason]:
    if group.kind == "pairs":
        return _table(problem, group, core_)
    if group.kind == "level":
        return _level(problem, group)
    if group.kind == "channel":
        return [_channel(problem, group, core_)]
    if group.kind == "wish":
        return [_wish(problem, group, len(core_) == 1)]
    return list(group.reasons)


def _wish(problem: Problem, group: Group, alone: bool) -> Reason:
    component = group.name.partition(":")[2]
    index = problem.index(component)
    text = group.reasons[0].text
    if index is not None and alone:
        variable = problem.variables[index]
        span = f"{variable.values[-1]} to {variable.values[0]}" if variable.values else "none"
        text += f", and no such release is in the tables for {problem.facts.model} (they know {span})"
    return Reason(text, group.reasons[0].source)


def _table(problem: Problem, group: Group, core_: Sequence[Group]) -> list[Reason]:
    name = group.name.rpartition(":")[2]
    facts = problem.facts
    rows = [r for r in group.rows if isinstance(r, Rule) and holds(r.when, facts, lenient=True)]
    if not rows:
        said = [Reason(_nothing_said(problem, name, group, facts), tables_source(problem.tables, f"table {name}"))]
        return said + _near(group, facts)
    near = {r.at: _agreement(problem, group, r, core_) for r in rows}
    rows.sort(key=lambda r: (-near[r.at], -level_rank(r.level), _width(problem, r)))
    closest = [r for r in rows if near[r.at]] or rows  # what speaks of the versions in question, if any does
    shown = closest[:_LIMIT]
    said = [r.reason(f"{r.because} [{name}: {_pairs(r)}]") for r in shown]
    pinned = [g for g in core_ if g.kind == "wish"]
    if pinned and not any(near.values()):
        asked = " and ".join(g.reasons[0].text.removeprefix("you wish ") for g in pinned)
        text = f"no row of table {name} speaks of {asked}: unknown is not a yes; it knows:"
        said.insert(0, Reason(text, tables_source(problem.tables, f"table {name}")))
    if len(rows) > len(shown):
        text = f"… and {len(rows) - len(shown)} more rows of table {name} for this class"
        said.append(Reason(text, tables_source(problem.tables, f"table {name}")))
    return said


def _width(problem: Problem, rule: Rule) -> int:
    """How many values a row allows: the fewer, the more it says of them."""
    return sum(
        problem.variables[index].mask(wanted).bit_count()
        for component, wanted in rule.pairs.items()
        if (index := problem.index(component)) is not None
    )


def _agreement(problem: Problem, group: Group, rule: Rule, core_: Sequence[Group]) -> int:
    """On how many components a row agrees with what the other statements of the core leave of them."""
    left: dict[int, int] = {}
    for other in core_:
        for constraint in other.constraints:
            if other is not group and len(constraint.variables) == 1:
                (v,) = constraint.variables
                left[v] = left.get(v, problem.variables[v].full) & sum(row[0] for row in constraint.rows[:1])
    return sum(
        bool(left[index] & problem.variables[index].mask(wanted))
        for component, wanted in rule.pairs.items()
        if (index := problem.index(component)) is not None and index in left
    )


def _pairs(rule: Rule) -> str:
    return ", ".join(f"{component} {wanted}" for component, wanted in rule.pairs.items())


def _nothing_said(problem: Problem, name: str, group: Group, facts: NodeClass) -> str:
    components = sorted({c for r in group.rows if isinstance(r, Rule) for c in r.pairs})
    where = f"{facts.model} on {facts.system}, kernel {facts.kernel or 'not known'}"
    if facts.arch:
        where += f", {facts.arch}"
    text = f"no row of table {name} speaks of {' and '.join(components)} for {where}: unknown is not a yes"
    if any(isinstance(r, Rule) and r.when.os for r in group.rows) and known_system(problem.matrix, facts) is None:
        text += f"; the tables do not know the system {facts.system} at all"
    return text


def _near(group: Group, facts: NodeClass) -> list[Reason]:
    """The rows that would speak of this class but for its kernel."""
    rows = [r for r in group.rows if isinstance(r, Rule) and r.when.kernel is not None]
    near = [r for r in rows if holds(replace(r.when, kernel=None), facts, lenient=True)]
    return [r.reason(f"{r.because} [kernel {r.when.kernel}]") for r in near[:_LIMIT]]


def _level(problem: Problem, group: Group) -> list[Reason]:
    demanded = problem.request.policy.min_level
    policy = request_source("policy.min_level")
    if group.name == "level:records":
        where = tables_source(problem.tables, "records")
        text = f"no validation record of ours holds for {problem.facts.model} and this choice"
        return [Reason(text, where), Reason("the policy demands evidence of level validated", policy)]
    if group.name.startswith("level:table:"):
        name = group.name.rpartition(":")[2]
        minimum = level_rank(demanded)
        rows = [r for r in group.rows if isinstance(r, Rule) and holds(r.when, problem.facts, lenient=True)]
        weak = [r for r in rows if level_rank(r.level) < minimum]
        strong = [r for r in rows if level_rank(r.level) >= minimum]
        said = [r.reason(f"{r.because} [{name}: {_pairs(r)}]") for r in strong[:_LIMIT]]
        said += [r.reason(f"{r.because} This is of level {r.level}.") for r in weak[:2]]
        said.append(Reason(f"the policy demands evidence of level {demanded} or stronger", policy))
        if not rows:
            where = tables_source(problem.tables, f"table {name}")
            said.insert(0, Reason(_nothing_said(problem, name, group, problem.facts), where))
        return said
    component = group.name.partition(":")[2]
    found = [r for r in group.rows if isinstance(r, Release)]
    shown = ", ".join(r.version for r in found[:3])
    text = f"the policy demands level {demanded}; {component} {shown} {'is' if len(found) == 1 else 'are'} weaker"
    return [Reason(text, found[0].source if found else policy)]


def _channel(problem: Problem, group: Group, core_: Sequence[Group]) -> Reason:
    component = group.name.partition(":")[2]
    index = problem.index(component)
    assert index is not None
    variable = problem.variables[index]
    outside: dict[str, list[str]] = {}
    meant = variable.full  # what the other statements of the core leave of it by themselves
    for other in core_:
        for constraint in other.constraints:
            if other is not group and constraint.variables == (index,):
                meant &= sum(row[0] for row in constraint.rows[:1])
    for i in bits((variable.full & ~variable.admitted & meant) or variable.full & ~variable.admitted):
        for release in variable.releases[i][:1]:
            outside.setdefault(release.channel, []).append(release.version)
    shown = "; ".join(f"{channel}: {_few(versions)}" for channel, versions in sorted(outside.items()))
    channel = problem.request.policy.channel
    text = f"the policy admits channel {channel} and stabler ones of {component}, which leaves out {shown}"
    if "legacy" in outside:
        text += " (legacy is past its end of life and is taken only when the wish names it)"
    return Reason(text, request_source("policy.channel"))


def _few(versions: list[str]) -> str:
    return ", ".join(versions) if len(versions) <= 3 else f"{versions[0]} … {versions[-1]} ({len(versions)} releases)"
