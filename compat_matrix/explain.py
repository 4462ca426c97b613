"""Why not that version: what forbids it, or on which criterion it comes second.

    why_not(matrix, request, "driver", "570.211.01")    # Explanation

The version is held against the request as it stands (its wishes, policy, facts). It is `chosen` when it is the answer,
`allowed` when it fits but another stack ranks higher, `forbidden` when something clashes with it, and `unknown` when no
row of the tables lists it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from compat_matrix import conflict
from compat_matrix.choose import Objective, best, stack_of
from compat_matrix.compile import compile_problem
from compat_matrix.facts import node_class
from compat_matrix.problem import (
    Constraint,
    Domains,
    Group,
    Problem,
    bits,
    propagate,
    request_source,
    tables_source,
)
from compat_matrix.road import no_road, road
from compat_matrix.solve import solve
from compat_matrix.table import Matrix
from fleet.core.errors import UsageError
from fleet.core.model import COMPONENTS, Conflict, Reason, Request
from fleet.core.version import Range

ExplanationVerdict = Literal["chosen", "allowed", "forbidden", "unknown"]
FACTS = ("os", "kernel", "gcc")  # of the node: held against what is there


@dataclass(frozen=True)
class Explanation:
    """The answer to `why not component version`. `stack` is what is chosen now, `instead` the best stack with the
    version asked for; {} where there is none. `criterion` is the part of the cost that decided an `allowed` one."""

    component: str
    version: str
    verdict: ExplanationVerdict
    reasons: tuple[Reason, ...]
    stack: Mapping[str, str] = field(default_factory=dict)
    instead: Mapping[str, str] = field(default_factory=dict)
    criterion: str = ""
    matrix: str = ""


def why_not(matrix: Matrix, request: Request, component: str, version: str) -> Explanation:
    """Holds `component version` (a version or a range) against the best answer to the request.

    Raises UsageError for a component that is none, BadInput for a range that is none, NotFound for a vendor that the
    tables do not have.
    """
    if component not in COMPONENTS:
        raise UsageError(f"{component!r} is not a component", hint=f"one of {', '.join(COMPONENTS)}")
    Range.parse(version)
    answer = solve(matrix, request)
    base: Mapping[str, str] = {} if isinstance(answer, Conflict) else answer.stack
    facts = node_class(matrix, request)
    if facts is None:
        assert isinstance(answer, Conflict)  # no row has the model
        return Explanation(component, version, "unknown", answer.causes, matrix=matrix.digest)
    problem = compile_problem(matrix, request, facts)
    index = problem.index(component)
    if isinstance(answer, Conflict):
        text = f"nothing fits here even without asking for {component} {version}"
        first = Reason(text, request_source("as a whole"))
        return Explanation(component, version, "forbidden", (first, *answer.causes), matrix=matrix.digest)
    if index is None or component in FACTS:
        return _absent(matrix, request, component, version, answer.stack)
    pinned, meant = _pin(problem, index, component, version)
    wanted = problem.variables[index].mask(meant)
    if component in base and wanted >> problem.variables[index].values.index(base[component]) & 1:
        reasons = answer.reasons.get(component, ())
        return Explanation(component, version, "chosen", reasons, base, base, "", matrix.digest)
    objective = _objective(problem)
    found = best(pinned, request.policy.strategy, objective)
    if found is None:
        verdict: ExplanationVerdict = "forbidden" if wanted else "unknown"
        causes = conflict.causes(pinned, conflict.core(pinned))
        return Explanation(component, version, verdict, causes, base, _if_wished(matrix, request, component, version),
                           "", matrix.digest)  # fmt: skip
    instead = {**stack_of(pinned, found[0]), **pinned.carried}
    instead.pop("gcc", None)
    untouched = {*FACTS, *problem.left_out}
    start = {c: v for c, v in request.current.items() if c not in untouched}
    if road(matrix, request, instead, start) is None:
        reasons = no_road(problem, facts, instead, start)
        return Explanation(component, version, "forbidden", reasons, base, {}, "", matrix.digest)
    mine = _choice_of(problem, base)
    criterion, reasons = _second(problem, objective, mine, found[0], component)
    return Explanation(component, version, "allowed", reasons, base, instead, criterion, matrix.digest)


def _pin(problem: Problem, index: int, component: str, version: str) -> tuple[Problem, Range]:
    """The problem with the version demanded, and what was meant by it (`580` = all that begin so)."""
    from compat_matrix.wishes import completed

    meant = Range.parse(completed(problem.tables, component, version))
    mask = problem.variables[index].mask(meant)
    asked = Reason(f"you ask for {component} {version}", request_source(f"why-not {component}"))
    group = Group(f"wish:{component}", "wish", (Constraint((index,), ((mask,),) if mask else ()),), (), (asked,))
    return replace(problem, groups=(*problem.groups, group)), meant


def _objective(problem: Problem) -> Objective:
    unary = propagate([c for c in problem.constraints() if len(c.variables) == 1], problem.domains())
    return Objective(problem, unary or problem.domains(), problem.request.policy.strategy)


def _choice_of(problem: Problem, stack: Mapping[str, str]) -> Domains:
    return tuple(1 << v.values.index(stack.get(v.component, v.values[0])) for v in problem.variables)


def _if_wished(matrix: Matrix, request: Request, component: str, version: str) -> Mapping[str, str]:
    """The stack that a wish for the version would get: a wish admits what a policy alone does not."""
    answer = solve(matrix, replace(request, wish={**request.wish, component: version}))
    return {} if isinstance(answer, Conflict) else answer.stack


def _absent(
    matrix: Matrix, request: Request, component: str, version: str, base: Mapping[str, str]
) -> Explanation:  # fmt: skip
    """A component that is not chosen here: nothing asks for it, it means nothing here, or it is a fact of the node."""
    answer = solve(matrix, replace(request, wish={**request.wish, component: version}))
    if isinstance(answer, Conflict):
        known = any(
            r.version for r in matrix.tables[request.vendor].releases.get(component, ())
        ) or component in FACTS  # fmt: skip
        verdict: ExplanationVerdict = "forbidden" if known else "unknown"
        return Explanation(component, version, verdict, answer.causes, base, {}, "", matrix.digest)
    if component in FACTS:
        text = f"{component} is a fact of the node; {version} fits the chosen stack when the node has it"
        return Explanation(
            component, version, "allowed", (Reason(text, request_source("os")),), base, answer.stack, "fact",
            matrix.digest,
        )  # fmt: skip
    row = matrix.tables[request.vendor].components.get(component)
    text = f"nothing asks for {component}: it is not there now and not wished, so it is not part of the stack"
    source = row.source if row is not None else tables_source(matrix.tables[request.vendor], "components")
    return Explanation(
        component, version, "allowed", (Reason(text, source),), base, answer.stack, "not wished", matrix.digest
    )


_WORDS = {
    "legacy": "releases past their end of life, or in no row",
    "record": "components that one passing validation record covers",
    "stale": "staleness (0 = at most one behind the head of its channel, 1 = within six, 2 = older)",
    "changes": "components that change",
    "activation": "weight of the activation (none, reload, reboot, power cycle, hands)",
    "dislikes": "preferences of the vendor that are not met",
    "rank": "place in the vendor's order of liking",
    "newness": "newness",
}


def _second(
    problem: Problem, objective: Objective, mine: Domains, other: Domains, component: str
) -> tuple[str, tuple[Reason, ...]]:
    """The first part of the cost in which the two stacks differ, in sentences."""
    ours, theirs = objective.named(objective.bound(mine)), objective.named(objective.bound(other))
    name = next((part for part in objective.order if ours[part] != theirs[part]), "newness")
    strategy = problem.request.policy.strategy
    policy = request_source(f"policy.strategy {strategy}")
    a, b = (abs(cost[name][0]) for cost in (ours, theirs))
    text = f"it fits, and comes second on {_WORDS[name]}"
    if name == "newness":
        return name, (Reason(f"{text}: {_versions(problem, mine, other, objective)}", policy),)
    out = [Reason(f"{text}: {b} with it, {a} without", policy)]
    table: tuple[tuple[int, ...], ...] = getattr(objective.weights, name, ())
    for i, variable in enumerate(problem.variables):
        if not table:
            break
        left, right = mine[i].bit_length() - 1, other[i].bit_length() - 1
        if table[i][left] != table[i][right]:
            said = f"{variable.component}: {variable.values[right]} with it, {variable.values[left]} without"
            rows = variable.releases[left] or variable.releases[right]
            source = rows[0].source if rows else variable.row.source if variable.row is not None else policy
            out.append(Reason(said, source))
    if name == "dislikes":
        for rule, when, needs in problem.likes:
            broken = all(not other[v] & ~m for v, m in when) and any(not other[v] & m for v, m in needs)
            kept = not (all(not mine[v] & ~m for v, m in when) and any(not mine[v] & m for v, m in needs))
            if broken and kept:
                out.append(rule.reason())
    if name == "record":
        for size, masks, record in problem.records:
            if size == a and all(mine[v] & m for v, m in masks):
                out.append(record.reason(f"this set passed validation ({', '.join(record.evidence)})"))
                break
    del component
    return name, tuple(out)


def _versions(problem: Problem, mine: Domains, other: Domains, objective: Objective) -> str:
    for i, variable in enumerate(problem.variables):
        left, right = next(bits(mine[i])), next(bits(other[i]))
        if objective.weights.newness[i][left] != objective.weights.newness[i][right]:
            return f"{variable.component} {variable.values[left]} is newer than {variable.values[right]}"
    return "the two stacks are equal in versions"
