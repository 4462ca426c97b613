"""The law of why-not: its verdict agrees with trying every stack."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from compat_matrix import Matrix, solve, why_not
from compat_matrix.choose import Objective, allowed, stack_of
from compat_matrix.problem import propagate
from fleet.core.model import Conflict, Request
from tests.matrix.conftest import small
from tests.matrix.test_solve_law import LAW, VERSIONS, compiled, every_choice, matrices, requests, satisfies


@given(matrices(), requests(), st.sampled_from(("driver", "firmware", "toolkit")), st.sampled_from(VERSIONS))
@LAW
def test_the_verdict_is_that_of_brute_force(matrix: Matrix, request: Request, component: str, version: str) -> None:
    found = why_not(matrix, request, component, f"=={version}")
    assert found.reasons and all(reason.text and reason.source for reason in found.reasons)
    answer = solve(matrix, request)
    problem = compiled(matrix, request)
    index = problem.index(component)
    if isinstance(answer, Conflict) or index is None:
        return
    variable = problem.variables[index]
    fitting = [
        c
        for c in every_choice(problem)
        if all(satisfies(g, c) for g in problem.groups) and variable.values[c[index].bit_length() - 1] == version
    ]
    if not fitting:
        assert found.verdict == ("forbidden" if version in variable.values else "unknown")
        return
    assert found.verdict == ("chosen" if answer.stack[component] == version else "allowed")
    if found.verdict == "allowed":
        unary = propagate([c for c in problem.constraints() if len(c.variables) == 1], problem.domains())
        assert unary is not None
        objective = Objective(problem, unary, request.policy.strategy)
        cheapest = min(fitting, key=objective.bound)
        assert stack_of(problem, cheapest).items() <= dict(found.instead).items()
        assert allowed(problem, found.instead)
        assert found.criterion


def test_a_road_that_is_forbidden_is_named() -> None:
    row = "source: book, level: vendor"
    matrix = small(
        "components:\n"
        f'  - {{component: driver, scheme: dotted, choose: always, activation: reboot, because: "x", {row}}}\n'
        "releases:\n"
        f'  - {{component: driver, version: "1.0", channel: stable, {row}}}\n'
        f'  - {{component: driver, version: "2.0", channel: stable, {row}}}\n'
        f'  - {{component: driver, version: "3.0", channel: stable, {row}}}\n'
        "rules:\n"
        '  - {relation: transition, component: driver, from: ">=2.0", to: "<2.0", verdict: forbidden, '
        f'because: "There is no way down from 2.0.", {row}}}\n'
    )
    from fleet.core.model import OsFacts

    request = Request("acme", "M1", 1, OsFacts("ubuntu", "22.04", "5.15", "x86_64"), {"driver": "2.0"})
    found = why_not(matrix, request, "driver", "1.0")
    assert found.verdict == "forbidden"
    assert any("There is no way down from 2.0." in reason.text for reason in found.reasons)
