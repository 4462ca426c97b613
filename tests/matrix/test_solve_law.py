"""The solver equals brute force on small matrices; its conflicts are minimal; its roads keep the rules."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compat_matrix import Matrix, solve
from compat_matrix.choose import ORDER, Objective, best, stack_of
from compat_matrix.compile import compile_problem
from compat_matrix.conflict import core
from compat_matrix.facts import node_class
from compat_matrix.problem import Group, Problem, feasible, propagate
from compat_matrix.road import hop, road
from fleet.core.model import Conflict, OsFacts, Policy, Request, Solution
from tests.matrix.conftest import small

COMPONENTS = ("driver", "firmware", "toolkit", "dcgm")
VERSIONS = ("1.0", "2.0", "3.0", "4.0")
ROW = "source: book, level: vendor"


@st.composite
def ranges(draw: st.DrawFn) -> str:
    op = draw(st.sampled_from([">=", "<", "<=", ">", "==", "!="]))
    return op + draw(st.sampled_from(VERSIONS))


@st.composite
def rules(draw: st.DrawFn) -> str:
    kind = draw(st.sampled_from(["requires", "forbids", "pairs", "pairs", "prefers", "equals"]))
    a, b = draw(st.permutations(COMPONENTS))[:2]
    when = draw(st.sampled_from(["{}", "{model: M1}", "{architecture: two}", '{flags: {nvswitch: "true"}}']))
    head = f'  - relation: {kind}\n    because: "{kind} of {a} and {b}"\n    source: book\n'
    level = f"    level: {draw(st.sampled_from(['vendor', 'observed', 'community']))}\n"
    if kind in ("requires", "prefers"):
        scope = f'{{{a}: "{draw(ranges())}"}}' if draw(st.booleans()) else when
        return head + level + f'    when: {scope}\n    needs: {{{b}: "{draw(ranges())}"}}\n'
    if kind == "forbids":
        return head + level + f'    when: {{{a}: "{draw(ranges())}", {b}: "{draw(ranges())}"}}\n'
    if kind == "equals":
        return head + level + f'    components: [{a}, {b}]\n    when: {{model: M2, {a}: "{draw(ranges())}"}}\n'
    x, y = sorted((a, b))
    return (
        head + level + f"    table: {x}-{y}\n    when: {when}\n"
        f"    pairs: {{{x}: \"{draw(ranges())}\", {y}: \"{draw(ranges())}\"}}\n"
    )  # fmt: skip


@st.composite
def matrices(draw: st.DrawFn) -> Matrix:
    parts = ["components:\n"]
    for c in COMPONENTS:
        choose = "always" if c in ("driver", "firmware") else draw(st.sampled_from(["always", "keep"]))
        act = draw(st.sampled_from(["none", "reload", "reboot", "power_cycle"]))
        parts.append(
            f'  - {{component: {c}, scheme: dotted, choose: {choose}, activation: {act}, because: "x", {ROW}}}\n'
        )
    parts.append("releases:\n")
    for c in COMPONENTS:
        for v in draw(st.lists(st.sampled_from(VERSIONS), min_size=1, max_size=4, unique=True)):
            channel = draw(st.sampled_from(["lts", "stable", "stable", "candidate", "legacy"]))
            parts.append(f'  - {{component: {c}, version: "{v}", channel: {channel}, {ROW}}}\n')
    found = draw(st.lists(rules(), max_size=6))
    parts += ["rules:\n", *found] if found else []
    if draw(st.booleans()):
        parts.append(
            f'records:\n  - stack: {{driver: "{draw(st.sampled_from(VERSIONS))}"}}\n    result: pass\n'
            f"    evidence: [e1]\n    source: book\n    level: validated\n"
        )
    return small("".join(parts))


@st.composite
def requests(draw: st.DrawFn) -> Request:
    some = st.dictionaries(st.sampled_from(COMPONENTS), st.sampled_from([*VERSIONS, "9.9"]), max_size=4)
    return Request(
        vendor="acme",
        model=draw(st.sampled_from(["M1", "M2"])),
        count=draw(st.sampled_from([1, 8])),
        os=OsFacts("ubuntu", "22.04", "5.15.0-1-generic", "x86_64"),
        current=draw(some),
        wish=draw(st.dictionaries(st.sampled_from(COMPONENTS), ranges(), max_size=2)),
        policy=Policy(
            channel=draw(st.sampled_from(["lts", "stable", "candidate", "legacy"])),
            min_level=draw(st.sampled_from(["community", "observed", "vendor"])),
            strategy=draw(st.sampled_from(["validated", "newest", "minimal"])),
            allow_unknown=draw(st.booleans()),
        ),
    )


def compiled(matrix: Matrix, request: Request) -> Problem:
    facts = node_class(matrix, request)
    assert facts is not None
    return compile_problem(matrix, request, facts)


def satisfies(group: Group, choice: tuple[int, ...]) -> bool:
    return not group.impossible and all(
        any(all(choice[v] & m for v, m in zip(c.variables, row, strict=True)) for row in c.rows)
        for c in group.constraints
    )


def every_choice(problem: Problem) -> Iterator[tuple[int, ...]]:
    return itertools.product(*([1 << i for i in range(len(v.values))] for v in problem.variables))


LAW = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(matrices(), requests())
@LAW
def test_the_optimum_equals_brute_force(matrix: Matrix, request: Request) -> None:
    problem = compiled(matrix, request)
    found = best(problem, request.policy.strategy)
    fitting = [c for c in every_choice(problem) if all(satisfies(g, c) for g in problem.groups)]
    if not fitting:
        assert found is None
        return
    assert found is not None
    choice, cost, objective = found
    costs = sorted((objective.bound(c), c) for c in fitting)
    assert (cost, choice) == costs[0]
    assert len(costs) == 1 or costs[0][0] < costs[1][0], "the optimum must be unique"


@given(matrices(), requests())
@LAW
def test_bounds_are_below_every_choice_within(matrix: Matrix, request: Request) -> None:
    problem = compiled(matrix, request)
    if any(not v.values for v in problem.variables):
        return
    for strategy in ORDER:
        objective = Objective(problem, problem.domains(), strategy)
        lower = objective.bound(problem.domains())
        assert all(lower <= objective.bound(c) for c in itertools.islice(every_choice(problem), 64))


@given(matrices(), requests())
@LAW
def test_propagation_loses_no_solution(matrix: Matrix, request: Request) -> None:
    problem = compiled(matrix, request)
    reduced = propagate(problem.constraints(), problem.domains())
    fitting = [c for c in every_choice(problem) if all(satisfies(g, c) for g in problem.groups)]
    for choice in fitting:
        assert reduced is not None
        assert all(c & d for c, d in zip(choice, reduced, strict=True))


@given(matrices(), requests())
@LAW
def test_a_conflict_is_minimal_and_told(matrix: Matrix, request: Request) -> None:
    problem = compiled(matrix, request)
    clash = core(problem)
    if not clash:
        assert feasible(problem, problem.groups)
        return
    assert not feasible(problem, clash)
    for left_out in clash:
        assert feasible(problem, [g for g in clash if g is not left_out])
    answer = solve(matrix, request)
    assert isinstance(answer, Conflict)
    assert answer.causes
    assert all(reason.text and reason.source for reason in answer.causes)


@given(matrices(), requests())
@LAW
def test_a_solution_breaks_no_rule_and_is_explained(matrix: Matrix, request: Request) -> None:
    answer = solve(matrix, request)
    assert answer == solve(matrix, request)
    if isinstance(answer, Conflict):
        return
    problem = compiled(matrix, request)
    values = {v.component: 1 << v.values.index(answer.stack[v.component]) for v in problem.variables}
    choice = tuple(values[v.component] for v in problem.variables)
    assert all(satisfies(g, choice) for g in problem.groups)
    assert stack_of(problem, choice).items() <= dict(answer.stack).items()
    for component in answer.stack:
        assert answer.reasons[component]
        assert all(reason.source for reason in answer.reasons[component])
    walk(answer, request.current)


def walk(answer: Solution, start: Mapping[str, str], fixed: Collection[str] = ()) -> None:
    """The road leads from the start to the stack, and the way back to where it began; `fixed` cannot be taken off."""
    state = dict(start)
    for stage in answer.road:
        for change in stage.changes:
            assert state.get(change.component) == change.old
            assert change.new != change.old
            if change.new is None:
                del state[change.component]
            else:
                state[change.component] = change.new
    assert {c: state.get(c) for c in answer.stack} == dict(answer.stack)
    if answer.back is not None:
        for stage in answer.back:
            for change in stage.changes:
                assert state.get(change.component) == change.old
                if change.new is None:
                    del state[change.component]
                else:
                    state[change.component] = change.new
        assert {c: v for c, v in state.items() if c in start or c not in fixed} == dict(start)


TRANSITIONS = st.lists(
    st.tuples(
        st.sampled_from(["driver", "firmware"]), ranges(), ranges(), st.sampled_from(["forbidden", "via", "supported"])
    ),
    max_size=4,
)


@given(TRANSITIONS, st.permutations(VERSIONS), st.permutations(VERSIONS))
@settings(max_examples=200, deadline=None)
def test_a_road_has_the_fewest_stages_and_only_supported_hops(
    transitions: list[tuple[str, str, str, str]], drivers: list[str], firmwares: list[str]
) -> None:
    text = "components:\n"
    for c in ("driver", "firmware"):
        text += f'  - {{component: {c}, scheme: dotted, choose: always, activation: reboot, because: "x", {ROW}}}\n'
    text += "releases:\n" + "".join(
        f'  - {{component: {c}, version: "{v}", channel: stable, {ROW}}}\n'
        for c in ("driver", "firmware")
        for v in VERSIONS
    )
    if transitions:
        text += "rules:\n"
    for c, old, new, verdict in transitions:
        text += f'  - {{relation: transition, component: {c}, from: "{old}", to: "{new}", verdict: {verdict}, '
        text += 'via: "2.0", ' if verdict == "via" else ""
        text += f'because: "so", {ROW}}}\n'
    matrix = small(text)
    request = Request("acme", "M1", 1, OsFacts("ubuntu", "22.04", "5.15", "x86_64"))
    facts = node_class(matrix, request)
    assert facts is not None
    start = {"driver": drivers[0], "firmware": firmwares[0]}
    target = {"driver": drivers[1], "firmware": firmwares[1]}
    needed: dict[str, int | None] = {}
    for c in start:  # exhaustive: breadth first over all versions
        seen, frontier, steps = {start[c]}, {start[c]}, 0
        while target[c] not in seen and frontier:
            frontier = {
                v
                for v in VERSIONS
                for u in frontier
                if v not in seen and hop(matrix.tables["acme"], facts, c, "dotted", u, v)[0]
            }
            seen |= frontier
            steps += 1
        needed[c] = steps if target[c] in seen else None
    found = road(matrix, request, target, start)
    if None in needed.values():
        assert found is None
        return
    assert found is not None
    assert len(found) == max(n for n in needed.values() if n is not None)
    state = dict(start)
    for stage in found:
        for change in stage.changes:
            assert change.old == state[change.component] and change.new is not None
            assert hop(matrix.tables["acme"], facts, change.component, "dotted", change.old, change.new)[0]
            state[change.component] = change.new
    assert state == target
