"""The road from one stack to another: stages between activations, each hop supported, each state allowed or marked.

The number of stages is the least that the hops allow (a component whose direct jump is not supported goes by way of
releases of its own); components that need no waypoint move in the stage that keeps the state between allowed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from compat_matrix.choose import ACTIVATION_RANK, allowed
from compat_matrix.compile import compile_rules, variables_of
from compat_matrix.facts import NodeClass, holds, node_class
from compat_matrix.problem import Domains, Problem, Variable, bits, propagate, tables_source
from compat_matrix.row import Order, Rule
from compat_matrix.table import Matrix, VendorTables
from fleet.core.errors import BadInput
from fleet.core.model import Reason, Request, Stage, VersionChange
from fleet.core.version import Range, key, valid

MAX_STAGES = 6
DRAINED = "the stack after this stage is no supported set: the node stays drained until the next stage"
Reboot = Literal["none", "reload", "reboot", "power_cycle"]
_REBOOTS: tuple[Reboot, ...] = ("none", "reload", "reboot", "power_cycle", "power_cycle")
Stack = Mapping[str, str]


def road(matrix: Matrix, request: Request, target: Stack, start: Stack) -> tuple[Stage, ...] | None:
    """The stages from `start` to `target` (component -> version); () = nothing to do, None = there is no road.

    A component that is in `start` and not in `target` is taken off where the tables say it can be, else left as it is.
    """
    kernel = target.get("kernel") or request.os.kernel
    moved = replace(request, os=replace(request.os, kernel=kernel)) if kernel != request.os.kernel else request
    facts = node_class(matrix, moved)
    if facts is None:
        return None
    return _road(_problem(matrix, moved, facts, start, target), facts, target, start)


def _problem(matrix: Matrix, request: Request, facts: NodeClass, start: Stack, target: Stack) -> Problem:
    """The rules of the class over the versions that a road may touch: its ends, and all where hops are restricted."""
    tables = matrix.tables[request.vendor]
    asked = replace(request, wish={}, current={**start, **target})
    variables, carried, left_out, _ = variables_of(matrix, tables, asked, facts)
    restricted = any(
        rule.relation == "transition" and start.get(rule.component) != target.get(rule.component)
        for rule in tables.rules
    )
    small = []
    for variable in variables:
        ends = [stack[variable.component] for stack in (start, target) if variable.component in stack]
        small.append(variable.only([*variable.values, *ends] if restricted else ends))
    problem = Problem(matrix, tables, asked, facts, tuple(v for v in small if v.values), (), carried, left_out)
    return compile_rules(problem)


def hop(
    tables: VendorTables, facts: NodeClass, component: str, scheme: str, old: str, new: str
) -> tuple[bool, Rule | None]:
    """Whether a component may go from `old` to `new` in one step, and the row that says so (None = no row speaks)."""
    said: Rule | None = None
    for rule in tables.rules:
        if (
            rule.relation == "transition"
            and rule.component == component
            and holds(rule.when, facts)
            and _inside(rule, "from_", old, scheme)
            and _inside(rule, "to", new, scheme)
        ):
            said = rule
    return said is None or said.verdict == "supported", said


def _inside(rule: Rule, side: str, version: str, scheme: str) -> bool:
    wanted = rule.from_ if side == "from_" else rule.to
    try:
        return wanted is None or wanted.any or wanted.contains(version, scheme)
    except BadInput:
        return False


def no_road(problem: Problem, facts: NodeClass, target: Stack, start: Stack) -> tuple[Reason, ...]:
    """Why no road leads from `start` to an allowed `target`: the hops that rows refuse."""
    text = f"the stack {_words(target)} is allowed, and no road leads to it from {_words(start)}"
    out = [Reason(text, tables_source(problem.tables, "transitions"))]
    for variable in problem.variables:
        old, new = start.get(variable.component), target.get(variable.component)
        if old is not None and new is not None and old != new:
            direct, said = hop(problem.tables, facts, variable.component, variable.scheme, old, new)
            if not direct and said is not None:
                out.append(said.reason(f"{variable.component} {old} -> {new}: {said.because}"))
    return tuple(out)


def _words(stack: Stack) -> str:
    return ", ".join(f"{component} {version}" for component, version in stack.items()) or "nothing"


def has_transitions(tables: VendorTables, component: str) -> bool:
    return any(r.relation == "transition" and r.component == component for r in tables.rules)


def distances(tables: VendorTables, facts: NodeClass, variable: Variable, goal: str) -> dict[str, int]:
    """version -> the least number of hops to `goal`, over the values of the variable; those with none are left out."""
    out = {goal: 0}
    frontier = [goal]
    while frontier:
        after: list[str] = []
        for version in variable.values:
            if version not in out and any(
                hop(tables, facts, variable.component, variable.scheme, version, near)[0] for near in frontier
            ):
                after.append(version)
        for version in after:
            out[version] = out[frontier[0]] + 1
        frontier = after
    return out


def _road(problem: Problem, facts: NodeClass, target: Stack, start: Stack) -> tuple[Stage, ...] | None:
    tables = problem.tables
    goal = dict(target)
    for component, version in start.items():
        row = tables.components.get(component)
        if component not in goal and not (row and row.removable and component not in problem.left_out):
            goal[component] = version
    alone = [c for c in goal if (r := tables.components.get(c)) and r.alone and goal.get(c) != start.get(c)]
    main = {c: (start[c] if c in alone and c in start else v) for c, v in goal.items() if c not in alone or c in start}
    states = _states(problem, facts, start, main)
    if states is None:
        return None
    for component in sorted(alone, key=lambda c: list(tables.components).index(c)):
        old = start.get(component)
        variable = next((v for v in problem.variables if v.component == component), None)
        if old is not None and variable is not None:
            steps = _alone_steps(tables, facts, variable, old, goal[component])
            if steps is None:
                return None
        else:
            steps = [goal[component]]
        states += [{**states[-1], component: step} for step in steps]
        for i, step in enumerate(steps[1:], start=len(states) - len(steps) + 1):
            states[i] = {**states[i - 1], component: step}
    stages = []
    for before, after in zip([dict(start), *states], states, strict=False):
        stage = _stage(problem, facts, before, after)
        if stage is not None:
            stages.append(stage)
    return tuple(stages)


def _alone_steps(tables: VendorTables, facts: NodeClass, variable: Variable, old: str, new: str) -> list[str] | None:
    far = distances(tables, facts, variable, new)
    if old not in far:
        return None
    steps: list[str] = []
    here = old
    while here != new:
        here = next(
            v
            for v in variable.values
            if far.get(v, 99) == far[here] - 1 and hop(tables, facts, variable.component, variable.scheme, here, v)[0]
        )
        steps.append(here)
    return steps


def _states(problem: Problem, facts: NodeClass, start: Stack, goal: Stack) -> list[dict[str, str]] | None:
    """The states after each stage, the last one is `goal`; None when some component has no road."""
    far: dict[str, dict[str, int]] = {}
    for variable in problem.variables:
        c = variable.component
        if c in start and c in goal and start[c] != goal[c] and has_transitions(problem.tables, c):
            far[c] = distances(problem.tables, facts, variable, goal[c])
            if start[c] not in far[c]:
                return None
    needed = max((d[start[c]] for c, d in far.items()), default=1)
    if needed > MAX_STAGES:
        return None
    states: list[dict[str, str]] = []
    here = dict(start)
    for left in range(needed - 1, 0, -1):
        here = _between(problem, facts, here, goal, far, left)
        states.append(here)
    return [*states, dict(goal)]


def _between(
    problem: Problem,
    facts: NodeClass,
    here: dict[str, str],
    goal: Stack,
    far: Mapping[str, Mapping[str, int]],
    left: int,
) -> dict[str, str]:
    """A state that is `left` hops away from the goal: an allowed one if there is any, with the fewest waypoints."""
    domains: list[int] = []
    costs: list[dict[int, int]] = []
    for variable in problem.variables:
        c = variable.component
        if c not in here:
            domains.append(0)
            costs.append({})
            continue
        now, end = here[c], goal.get(c, here[c])
        places: dict[int, int] = {}
        for i, version in enumerate(variable.values):
            reach = far.get(c)
            if reach is None:
                fits = version in (now, end) or _free(problem, variable, far)
            else:
                fits = reach.get(version, 99) <= left and (
                    version == now or hop(problem.tables, facts, c, variable.scheme, now, version)[0]
                )
            if fits:
                places[i] = 0 if version == end else 1 if version == now else 2 + i
        domains.append(sum(1 << i for i in places))
        costs.append(places)
    found = _cheapest(problem, tuple(domains), costs)
    after = dict(here)
    for n, variable in enumerate(problem.variables):
        c = variable.component
        if c not in here:
            continue
        if found is not None and found[n]:
            after[c] = variable.values[found[n].bit_length() - 1]
        elif c in far and costs[n]:
            after[c] = variable.values[min(costs[n], key=lambda i: costs[n][i])]
    return after


def _free(problem: Problem, variable: Variable, far: Mapping[str, object]) -> bool:
    """Whether a component may take any version on the way: it must equal one that needs a waypoint."""
    for rule in problem.tables.rules:
        if rule.relation in ("equals", "pairs"):
            together = set(rule.components) | set(rule.pairs)
            if variable.component in together and together & set(far):
                return True
    return False


def _cheapest(problem: Problem, domains: Domains, costs: Sequence[Mapping[int, int]]) -> Domains | None:
    """The cheapest choice within the domains; variables with an empty domain are not there."""
    absent = {i for i, d in enumerate(domains) if not d}
    constraints = [
        c
        for g in problem.groups
        if g.kind not in ("wish", "channel", "level", "hardware")
        for c in g.constraints
        if not absent & set(c.variables)
    ]
    if any(g.impossible for g in problem.groups if g.kind != "hardware"):
        return None
    best: tuple[int, Domains] | None = None

    def bound(state: Domains) -> int:
        return sum(min(costs[i][b] for b in bits(d)) for i, d in enumerate(state) if i not in absent)

    def search(state: Domains) -> None:
        nonlocal best
        reduced = propagate(constraints, tuple(d or 1 for d in state))
        if reduced is None:
            return
        reduced = tuple(0 if i in absent else d for i, d in enumerate(reduced))
        low = bound(reduced)
        if best is not None and low >= best[0]:
            return
        open_ = [(d.bit_count(), i) for i, d in enumerate(reduced) if d.bit_count() > 1]
        if not open_:
            best = (low, reduced)
            return
        _, v = min(open_)
        for b in sorted(bits(reduced[v]), key=lambda b: costs[v][b]):
            search((*reduced[:v], 1 << b, *reduced[v + 1 :]))

    search(domains)
    return best[1] if best else None


def _stage(problem: Problem, facts: NodeClass, before: Mapping[str, str], after: Mapping[str, str]) -> Stage | None:
    names = [c for c in dict.fromkeys((*after, *before)) if before.get(c) != after.get(c)]
    names = [c for c in names if not _same(problem, c, before.get(c), after.get(c))]
    if not names:
        return None
    order = _order(problem.tables, facts, names, before, after)
    changes = tuple(VersionChange(c, before.get(c), after.get(c)) for c in order[0])
    rows = problem.tables.components
    rank = max(ACTIVATION_RANK[rows[c].activation] if c in rows else 2 if c == "kernel" else 0 for c in names)
    fine = allowed(problem, after)
    reasons = []
    if order[1] is not None and len(names) > 1:
        reasons.append(order[1].reason())
    for change in changes:
        if change.old and change.new and change.component in rows:
            said = hop(problem.tables, facts, change.component, rows[change.component].scheme, change.old, change.new)[
                1
            ]
            if said is not None:
                reasons.append(said.reason())
    if not fine:
        reasons.append(Reason(DRAINED, tables_source(problem.tables, "rules")))
    elif _mixed(problem, changes, before):
        text = "between these steps the set on disk is no supported one: the node is drained, and power must stay on"
        reasons.append(Reason(text, tables_source(problem.tables, "rules")))
    return Stage(changes, _REBOOTS[rank], fine, tuple(reasons))


def _same(problem: Problem, component: str, old: str | None, new: str | None) -> bool:
    row = problem.tables.components.get(component)
    if row is None or old is None or new is None or not (valid(old, row.scheme) and valid(new, row.scheme)):
        return False
    return key(old, row.scheme) == key(new, row.scheme)


def _mixed(problem: Problem, changes: Sequence[VersionChange], before: Mapping[str, str]) -> bool:
    """Whether power loss in mid-stage could leave a set that is not allowed. What must be equal moves in one act."""
    state: dict[str, str | None] = dict(before)
    if not allowed(problem, state):
        return False
    tied = [set(rule.components) for rule in problem.tables.rules if rule.relation == "equals"]
    left = list(changes)
    while left:
        act = {left[0].component}
        while more := {c.component for c in left if any(c.component in t and t & act for t in tied)} - act:
            act |= more
        state.update({c.component: c.new for c in left if c.component in act})
        left = [c for c in left if c.component not in act]
        if left and not allowed(problem, state):
            return True
    return False


def _order(
    tables: VendorTables, facts: NodeClass, names: Sequence[str], before: Mapping[str, str], after: Mapping[str, str]
) -> tuple[list[str], Order | None]:
    """The components in the vendor's order and the row that gives it; what is taken off goes first, backwards."""
    found: dict[str, Order] = {}
    for row in tables.order:
        if holds(row.when, facts):
            found[row.case] = row
    sequence = found["first_install"].sequence if "first_install" in found else ()
    first = not any(before.get(c) for c in sequence)
    row_ = found.get("first_install" if first else "upgrade") or found.get("upgrade")
    place = {c: i for i, c in enumerate(row_.sequence)} if row_ else {}
    last = len(place)

    def rank(name: str) -> int:
        return place.get(name, -1 if name == "kernel" else last)

    gone = sorted((c for c in names if after.get(c) is None), key=lambda c: -rank(c))
    return gone + sorted((c for c in names if after.get(c) is not None), key=rank), row_


def floors_hold(problem: Problem, stack: Stack) -> Rule | None:
    """The first rule on a flag of the hardware (a floor in flash) that the stack breaks; None when it breaks none."""
    for rule in problem.tables.rules:
        if rule.relation != "requires" or not rule.when.flags or not holds(rule.when, problem.facts):
            continue
        for component, wanted in rule.needs.components.items():
            version = stack.get(component)
            row = problem.tables.components.get(component)
            if version is None or row is None:
                continue
            if not all(
                c in stack and _meets(tables_scheme(problem.tables, c), r, stack[c])
                for c, r in rule.when.components.items()
            ):
                continue
            if not _meets(row.scheme, wanted, version):
                return rule
    return None


def tables_scheme(tables: VendorTables, component: str) -> str:
    row = tables.components.get(component)
    return row.scheme if row else "generic"


def _meets(scheme: str, wanted: Range, version: str) -> bool:
    try:
        return wanted.contains(version, scheme)
    except BadInput:
        return False
