"""A fleet settles on few sets: each allowed where it is taken, none worse in evidence, and never more than apart."""

from __future__ import annotations

import dataclasses

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compat_matrix import Matrix, converge, solve
from compat_matrix.choose import allowed
from compat_matrix.row import level_rank
from fleet.core.model import Conflict, OsFacts, Policy, Request
from tests.matrix.test_solve_law import compiled, matrices, requests

SYSTEM = OsFacts("ubuntu", "22.04", "6.8.0-87-generic", "x86_64")


def test_nodes_that_lag_behind_differently_end_in_one_set(matrix: Matrix) -> None:
    versions = ["580.178.04", "595.71.05", "595.80", "595.91.07"]
    asked = {
        v: Request("nvidia", "L40S", 4, SYSTEM, {"driver": v, "driver_flavour": "open"}, flags={"nvswitch": False})
        for v in versions
    }
    apart = {s.stack["driver"] for s in (solve(matrix, r) for r in asked.values()) if not isinstance(s, Conflict)}
    targets = converge(matrix, asked, {"595.91.07": 900})
    together = {t.solution.stack["driver"] for t in targets.values()}
    assert len(apart) > 1 and len(together) == 1 and set(targets) == set(versions)
    for name, target in targets.items():
        again = solve(matrix, dataclasses.replace(asked[name], wish=target.wish))
        assert not isinstance(again, Conflict) and again.stack == target.solution.stack and target.rank == 0
        told = [reason.text for reason in target.solution.reasons["driver"]]
        assert not any(text.startswith("you wish") for text in told)


def test_a_wish_of_a_class_is_not_overruled(matrix: Matrix) -> None:
    one = Request("nvidia", "L40S", 4, SYSTEM, {"driver": "580.95.05"}, {"driver": "580.95.05"})
    many = Request("nvidia", "L40S", 4, SYSTEM, {"driver": "595.91.07"})
    targets = converge(matrix, {"one": one, "many": many}, {"many": 1000})
    assert targets["one"].solution.stack["driver"] == "580.95.05"
    assert targets["many"].solution.stack["driver"] == "595.91.07"


def test_nobody_is_dragged_down_by_a_few(matrix: Matrix) -> None:
    """One class is pinned to an old driver: the others do not follow, however many they are."""
    pinned = Request("nvidia", "L40S", 4, SYSTEM, {"driver": "535.309.01"}, {"driver": "535.309.01"})
    free = Request("nvidia", "L40S", 4, SYSTEM, {"driver": "535.309.01"})
    targets = converge(matrix, {"pinned": pinned, "free": free}, {"pinned": 1000})
    assert targets["free"].solution.stack["driver"] == "595.91.07"


def test_a_class_without_a_stack_is_left_out(matrix: Matrix) -> None:
    good = Request("nvidia", "L40S", 4, SYSTEM)
    assert set(converge(matrix, {"good": good, "bad": Request("nvidia", "X9", 1, SYSTEM)})) == {"good"}
    assert converge(matrix, {}) == {}


@given(matrices(), st.lists(requests(), min_size=1, max_size=4))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_each_target_is_allowed_and_no_worse_in_evidence(matrix: Matrix, asked: list[Request]) -> None:
    named = {str(i): request for i, request in enumerate(asked)}
    answers = {name: solve(matrix, request) for name, request in named.items()}
    targets = converge(matrix, named)
    assert set(targets) == {name for name, a in answers.items() if not isinstance(a, Conflict)}
    for name, target in targets.items():
        assert allowed(compiled(matrix, dataclasses.replace(named[name], policy=_open(named[name].policy))),
                       target.solution.stack)  # fmt: skip
        answer = answers[name]
        assert not isinstance(answer, Conflict)
        assert level_rank(target.solution.level) >= level_rank(answer.level)
    apart = {str(sorted(a.stack.items())) for a in answers.values() if not isinstance(a, Conflict)}
    assert len({str(sorted(t.solution.stack.items())) for t in targets.values()}) <= len(apart)
    assert targets == converge(matrix, named)


def _open(policy: Policy) -> Policy:
    return dataclasses.replace(policy, channel="legacy")
