"""Why this version: for each component of a stack, sentences with the rows they rest on."""

from __future__ import annotations

from collections.abc import Mapping

from compat_matrix.choose import Cost, Objective
from compat_matrix.evidence import matching_rows
from compat_matrix.facts import holds
from compat_matrix.problem import Problem, Variable, bits, request_source, tables_source
from fleet.core.errors import BadInput
from fleet.core.model import Reason
from fleet.core.version import Range

_MATCHES = 2  # rows of one table shown


def reasons_for(
    problem: Problem, stack: Mapping[str, str], objective: Objective, cost: Cost
) -> dict[str, tuple[Reason, ...]]:
    """component -> sentences, the deciding one first. Components left out have theirs too."""
    out: dict[str, tuple[Reason, ...]] = {}
    for variable in problem.variables:
        if variable.component in stack:
            out[variable.component] = tuple(_component(problem, variable, stack, objective))
    for component, version in problem.carried.items():
        text = f"{component} {version} is kept as found: the tables say nothing of it"
        out[component] = (Reason(text, tables_source(problem.tables, "releases")),)
    for component, reason in problem.left_out.items():
        out[component] = (reason,)
    if "kernel" in stack:
        text = f"you wish kernel {stack['kernel']}"
        out["kernel"] = (Reason(text, request_source("wish.kernel")),)
    for tested in problem.tested:
        if all(_all(problem, {c: Range.parse(f"=={v}")}, stack) for c, v in tested.stack.items()):
            for component in tested.stack:
                out[component] += (tested.reason(tested.because or "this very set is shipped or tested together"),)
    for size, masks, record in problem.records:
        indices = dict(masks)
        if -size == objective.named(cost)["record"][0] and all(
            mask & 1 << problem.variables[v].values.index(stack[problem.variables[v].component])
            for v, mask in indices.items()
        ):
            said = record.reason(f"this very set passed validation ({', '.join(record.evidence)})")
            for v in indices:
                out[problem.variables[v].component] += (said,)
            break
    return out


def _component(problem: Problem, variable: Variable, stack: Mapping[str, str], objective: Objective) -> list[Reason]:
    name, version = variable.component, stack[variable.component]
    out = [_choice(problem, variable, version)]
    index = variable.values.index(version)
    for release in variable.releases[index][:1]:
        if not (variable.row and variable.row.prefer):
            dates = f", released {release.released}" if release.released else ""
            dates += f", supported until {release.eol}" if release.eol else ""
            out.append(release.reason(f"{name} {version} is a {release.channel} release{dates}."))
    if not variable.releases[index]:
        text = f"{name} {version} is in no row of the tables: nothing is known of it"
        out.append(Reason(text, tables_source(problem.tables, "releases")))
    if variable.row is not None and variable.row.because:
        out.append(variable.row.reason())
    out += _rules(problem, name, stack)
    for rule, when, needs in problem.likes:
        involved = {problem.variables[v].component for v, _ in (*when, *needs)}
        if name in involved and _within(problem, when, stack) and not _within(problem, needs, stack):
            out.append(rule.reason(f"{rule.because} This stack does without."))
    del objective
    seen: set[tuple[str, str]] = set()
    kept = []
    for reason in out:
        mark = (reason.text, reason.source.at if reason.source else "")
        if mark not in seen:
            seen.add(mark)
            kept.append(reason)
    return kept


def _choice(problem: Problem, variable: Variable, version: str) -> Reason:
    name = variable.component
    request = problem.request
    if name in request.wish:
        return Reason(f"you wish {name} {request.wish[name]}", request_source(f"wish.{name}"))
    if variable.current is not None and variable.values[variable.current] == version:
        return Reason(f"{name} {version} is there now, and nothing asks for another", request_source("current"))
    index = variable.values.index(version)
    newer = [variable.values[i] for i in bits(variable.admitted & ((1 << index) - 1))]
    channel = request.policy.channel
    policy = request_source("policy.channel")
    if variable.row is not None and variable.row.prefer:
        return Reason(f"{name} {version} is the first in the order of liking that fits", policy)
    if variable.row is not None and variable.row.releases_of and not newer:
        return Reason(f"{name} {version} goes with {variable.row.releases_of} {version}", policy)
    if not newer:
        return Reason(f"{name} {version} is the newest that channel {channel} admits", policy)
    shown = ", ".join(newer[:3]) + (" …" if len(newer) > 3 else "")
    text = f"{name} {version} is the best that fits; newer ones in channel {channel} ({shown}) do not, or rank lower"
    return Reason(text, policy)


def _rules(problem: Problem, name: str, stack: Mapping[str, str]) -> list[Reason]:
    out: list[Reason] = []
    facts = problem.facts
    for rows in problem.tables.tables.values():
        concerned = any(name in rule.pairs for rule in rows)
        if not concerned or not all(c in stack for rule in rows for c in rule.pairs):
            continue
        matching = matching_rows(problem, rows, stack)
        out += [rule.reason() for rule in matching[:_MATCHES] if rule.level == matching[0].level]
        if matching and matching[0].when.kernel is not None and not facts.kernel:
            text = f"the kernel is not told, so whether it fits was not checked (row wants {matching[0].when.kernel})"
            out.append(Reason(text, matching[0].source))
        if not matching:
            text = f"no row of table {rows[0].table} speaks of this set: allowed only because the policy allows unknown"
            out.append(Reason(text, request_source("policy.allow_unknown")))
    for rule in problem.tables.rules:
        if rule.relation == "requires" and name in rule.needs.components and holds(rule.when, facts):
            if _all(problem, rule.when.components, stack):
                out.append(rule.reason())
        elif rule.relation == "equals" and name in rule.components and holds(rule.when, facts):
            if sum(c in stack for c in rule.components) > 1:
                out.append(rule.reason())
        elif rule.relation == "unit" and name in rule.components and rule.flag in facts.flags:
            out.append(rule.reason(f"{rule.because} ({rule.flag} {facts.flags[rule.flag]})"))
    out += [
        note.reason()
        for note in problem.tables.notes
        if note.component == name and holds(note.when, facts) and _all(problem, note.when.components, stack)
    ]
    row = problem.tables.components.get(name)
    if row is not None and any(flag in facts.assumed for scope in row.when for flag in scope.flags):
        model = problem.matrix.find(facts.vendor, facts.model)
        flags = ", ".join(f for scope in row.when for f in scope.flags)
        text = (
            f"{flags} is assumed: {facts.count} cards of {facts.model} come on such a board, and the probe said nothing"
        )
        out.append(Reason(text, model.source if model else None))
    return out


def _all(problem: Problem, wanted: Mapping[str, Range], stack: Mapping[str, str]) -> bool:
    schemes = {v.component: v.scheme for v in problem.variables}
    for component, range_ in wanted.items():
        try:
            if component not in stack or not range_.contains(stack[component], schemes.get(component, "generic")):
                return False
        except BadInput:
            return False
    return True


def _within(problem: Problem, masks: tuple[tuple[int, int], ...], stack: Mapping[str, str]) -> bool:
    for v, mask in masks:
        variable = problem.variables[v]
        if variable.component not in stack or not mask & 1 << variable.values.index(stack[variable.component]):
            return False
    return True
