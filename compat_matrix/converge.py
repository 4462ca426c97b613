"""Few stacks for a whole fleet: a greedy cover over what each class may take.

The best stack of each class by itself scatters a fleet over many sets. Here each class may also take a stack that is
best for another one, when it is allowed there and as good on what counts most: no more releases past their end, no
smaller validation record, no staler, no weaker evidence. The sets that serve most nodes win.

    targets = converge(matrix, {"a": request_a, "b": request_b}, {"a": 400, "b": 12})
    targets["b"].wish          # component -> exact version: a wish that leads `solve` to that stack
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from compat_matrix.choose import Objective
from compat_matrix.compile import compile_problem
from compat_matrix.facts import node_class
from compat_matrix.problem import propagate, request_source
from compat_matrix.row import level_rank
from compat_matrix.solve import solve
from compat_matrix.table import Matrix
from compat_matrix.wishes import completed
from fleet.core.errors import BadInput, FleetError
from fleet.core.model import Conflict, Reason, Request, Solution
from fleet.core.version import Range


@dataclass(frozen=True)
class Target:
    """What one class is to have: the wish that leads there, its solution, and the set's place (0 = serves most)."""

    wish: Mapping[str, str]
    solution: Solution
    rank: int


def converge(
    matrix: Matrix, requests: Mapping[str, Request], nodes: Mapping[str, int] | None = None, *, also: int = 12
) -> dict[str, Target]:
    """name of a class -> its target; classes for which nothing fits are left out.

    `nodes` weighs the classes (default 1 each); `also` is how many foreign stacks are tried for each class. A foreign
    stack is taken only when the class's own request, with it as a wish, has a solution as good as said above.
    Deterministic: ties go to the set that is the best one for most nodes by itself, then to the first by its text.
    """
    own: dict[str, Solution] = {}
    for name, request in requests.items():
        found = _try(matrix, request)
        if found is not None:
            own[name] = found
    wanted = {name: (requests[name].vendor, _chosen(matrix, requests[name], s)) for name, s in own.items()}
    pool: dict[tuple[str, tuple[tuple[str, str], ...]], int] = {}
    for name, mark in wanted.items():
        pool[mark] = pool.get(mark, 0) + (nodes or {}).get(name, 1)
    # For each class: the sets it could take, and the solution with each.
    options: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], Solution]] = {}
    for name, solution in own.items():
        mine = wanted[name]
        options[name] = {mine: solution}
        components = {component for component, _ in mine[1]}
        foreign = [
            mark
            for mark in sorted(pool, key=lambda m: (-pool[m], m))
            if mark != mine and mark[0] == mine[0] and {component for component, _ in mark[1]} == components
        ]
        for mark in foreign[:also]:
            request = requests[name]
            wish = {**request.wish, **dict(mark[1])}
            if any(c in request.wish for c, _ in mark[1]) and not _agrees(matrix, request, dict(mark[1])):
                continue
            other = _try(matrix, replace(request, wish=wish))
            if other is not None and _as_good(matrix, request, other, solution):
                options[name][mark] = _told(request, mark[1], other)
    out: dict[str, Target] = {}
    left = set(options)
    rank = 0
    while left:
        gain: dict[tuple[str, tuple[tuple[str, str], ...]], int] = {}
        for name in left:
            for mark in options[name]:
                gain[mark] = gain.get(mark, 0) + (nodes or {}).get(name, 1)
        best = min(gain, key=lambda mark: (-gain[mark], -pool[mark], mark))
        for name in sorted(left):
            if best in options[name]:
                out[name] = Target(dict(best[1]), options[name][best], rank)
        left -= set(out)
        rank += 1
    return {name: out[name] for name in requests if name in out}


def _try(matrix: Matrix, request: Request) -> Solution | None:
    try:
        found = solve(matrix, request)
    except FleetError:
        return None
    return None if isinstance(found, Conflict) else found


def _chosen(matrix: Matrix, request: Request, solution: Solution) -> tuple[tuple[str, str], ...]:
    """The part of a stack that a set is made of: components with releases, the kernel and such aside."""
    tables = matrix.tables[request.vendor]
    return tuple(
        sorted(
            (component, version)
            for component, version in solution.stack.items()
            if component in tables.components
            and tables.releases.get(tables.components[component].releases_of or component)
        )
    )


def _told(request: Request, versions: Iterable[tuple[str, str]], solution: Solution) -> Solution:
    """The solution with sentences that say what was wished for and what is merely shared."""
    reasons = dict(solution.reasons)
    for component, version in versions:
        if component in reasons:
            wish = request.wish.get(component)
            text = f"you wish {component} {wish}, and " if wish else ""
            text += f"{component} {version} lets more nodes have the same stack"
            others = [reason for reason in reasons[component] if not reason.text.startswith(f"you wish {component} ")]
            reasons[component] = (Reason(text, request_source("converge")), *others)
    return replace(solution, reasons=reasons)


def _agrees(matrix: Matrix, request: Request, versions: Mapping[str, str]) -> bool:
    """Whether exact versions are within what the request wishes already."""
    tables = matrix.tables[request.vendor]
    for component, wish in request.wish.items():
        if component in versions and component in tables.components:
            wanted = Range.parse(completed(tables, component, wish))
            try:
                if not wanted.contains(versions[component], tables.components[component].scheme):
                    return False
            except BadInput:
                return False
    return True


_COUNTS = ("legacy", "record", "stale")


def _as_good(matrix: Matrix, request: Request, other: Solution, own: Solution) -> bool:
    """Whether another stack is no worse than the best one for this class on evidence and on what is ranked first."""
    facts = node_class(matrix, request)
    if facts is None or level_rank(other.level) < level_rank(own.level):
        return False
    problem = compile_problem(matrix, request, facts)
    unary = propagate([c for c in problem.constraints() if len(c.variables) == 1], problem.domains())
    objective = Objective(problem, unary or problem.domains(), request.policy.strategy)
    costs = []
    for solution in (other, own):
        choice = []
        for variable in problem.variables:
            version = solution.stack.get(variable.component, variable.values[0])
            if version not in variable.values:
                return False
            choice.append(1 << variable.values.index(version))
        costs.append(objective.named(objective.bound(tuple(choice))))
    return all(costs[0][part] <= costs[1][part] for part in _COUNTS)
