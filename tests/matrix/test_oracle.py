"""Another engine (clingo) finds the same optimum: on random small matrices, and on the shipped tables' cases."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from compat_matrix import Matrix, parse_request
from compat_matrix.case import cases
from compat_matrix.choose import Objective, best
from compat_matrix.compile import compile_problem
from compat_matrix.facts import node_class
from compat_matrix.problem import Problem, propagate
from fleet.core.model import Request
from tests.matrix.oracle import optimum
from tests.matrix.test_solve_law import compiled, matrices, requests, satisfies

FOLDER = Path(__file__).resolve().parents[1] / "cases" / "matrix"
SOME = cases(FOLDER)[::8]


def agree(problem: Problem, strategy: str) -> bool:
    """Holds both engines against each other; whether there was a stack at all."""
    found = best(problem, strategy)
    if found is not None:
        objective = found[2]
    else:
        unary = propagate([c for c in problem.constraints() if len(c.variables) == 1], problem.domains())
        objective = Objective(problem, unary or problem.domains(), strategy)
    other = optimum(problem, objective)
    assert (found is None) == (other is None)
    if found is None or other is None:
        return False
    assert all(satisfies(group, other) for group in problem.groups)
    assert objective.bound(other) == found[1]
    return True


@given(matrices(), requests())
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_clingo_finds_the_same_optimum(matrix: Matrix, request: Request) -> None:
    agree(compiled(matrix, request), request.policy.strategy)


@pytest.mark.parametrize("case", SOME, ids=[c.name for c in SOME])
@pytest.mark.parametrize("strategy", ["validated", "newest", "minimal"])
def test_and_on_the_shipped_tables(matrix: Matrix, case: Path, strategy: str) -> None:
    request = parse_request((case / "request.yaml").read_text(), str(case))
    facts = node_class(matrix, request)
    if facts is not None:
        agree(compile_problem(matrix, request, facts), strategy)
