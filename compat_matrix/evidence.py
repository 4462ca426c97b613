"""What a stack rests on: the rows of pairs tables that hold for it, and the weakest evidence among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compat_matrix.facts import holds
from compat_matrix.problem import Problem
from compat_matrix.row import Rule, level_rank
from fleet.core.errors import BadInput
from fleet.core.model import LEVELS
from fleet.core.version import Range


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
