"""The answer to a request: the best stack with the road to it and back, or the statements that clash."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, replace

from compat_matrix import conflict
from compat_matrix.choose import best, stack_of
from compat_matrix.compile import compile_problem
from compat_matrix.evidence import level_of
from compat_matrix.facts import node_class
from compat_matrix.problem import Problem, tables_source
from compat_matrix.reasons import reasons_for
from compat_matrix.road import DRAINED, floors_hold, no_road, road
from compat_matrix.table import Matrix
from compat_matrix.wishes import wished_kernel
from fleet.core.errors import NotFound
from fleet.core.model import LEVELS, Conflict, Reason, Request, Solution, Stage, digest

__all__ = ["road", "solve"]


def solve(matrix: Matrix, request: Request) -> Solution | Conflict:
    """The best stack for one node class. Equal requests are answered from the matrix's own cache.

    Raises NotFound when the tables have no such vendor.
    """
    if request.vendor not in matrix.tables:
        known = ", ".join(matrix.vendors) or "none"
        raise NotFound(
            f"the tables have no vendor {request.vendor!r}", hint=f"known are: {known}", slug="unknown-vendor"
        )
    signature = digest(asdict(request))
    if signature not in matrix.cache:
        matrix.cache[signature] = _solve(matrix, request)
    answer: Solution | Conflict = matrix.cache[signature]
    return answer


def _solve(matrix: Matrix, request: Request) -> Solution | Conflict:
    kernel = wished_kernel(request)
    asked = replace(request, os=replace(request.os, kernel=kernel)) if kernel else request
    facts = node_class(matrix, asked)
    if facts is None:
        return Conflict((_no_model(matrix, request),), matrix.digest)
    problem = compile_problem(matrix, asked, facts)
    found = best(problem, asked.policy.strategy)
    if found is None:
        return Conflict(conflict.causes(problem, conflict.core(problem)), matrix.digest)
    choice, cost, objective = found
    stack = {**stack_of(problem, choice), **problem.carried}
    stack.pop("gcc", None)
    untouched = {"os", "gcc", "kernel", *problem.left_out}  # facts, and what means nothing on this hardware
    start = {c: v for c, v in request.current.items() if c not in untouched}
    if kernel:
        stack["kernel"] = kernel
        start["kernel"] = request.os.kernel
    there = road(matrix, asked, stack, start)
    if there is None:
        return Conflict(no_road(problem, facts, stack, start), matrix.digest)
    back = _way_back(matrix, request, problem, stack, start, there)
    reasons = reasons_for(problem, stack, objective, cost)
    level = next(name for name in LEVELS if name == level_of(problem, stack))
    return Solution(stack, there, back, reasons, level, matrix.digest)


def _way_back(
    matrix: Matrix, request: Request, problem: Problem, stack: Mapping[str, str], start: Mapping[str, str],
    there: tuple[Stage, ...],
) -> tuple[Stage, ...] | None:  # fmt: skip
    """The stages that undo the road; None when a hop or a floor forbids it. () when nothing is changed."""
    if not there:
        return ()
    before = dict(start)
    for component, version in stack.items():
        row = problem.tables.components.get(component)
        if component not in before and row is not None and not row.removable:
            before[component] = version
    if floors_hold(problem, before) is not None:
        return None
    stages = road(matrix, request, before, stack)
    if stages and not stages[-1].allowed:  # no supported set, but the one that the node served with before
        text = "the tables do not support the set that was there before; it is what the node served with"
        note = Reason(text, tables_source(problem.tables, "rules"))
        kept = tuple(r for r in stages[-1].reasons if r.text != DRAINED)
        stages = (*stages[:-1], replace(stages[-1], allowed=True, reasons=(*kept, note)))
    return stages


def _no_model(matrix: Matrix, request: Request) -> Reason:
    tables = matrix.tables[request.vendor]
    near = difflib.get_close_matches(request.model.upper(), [m.name for m in tables.models], n=3, cutoff=0.4)
    text = f"the tables of {request.vendor} have no model {request.model!r}: unknown is not a yes"
    if near:
        text += f" (near it: {', '.join(near)})"
    return Reason(text, tables_source(tables, "models"))
