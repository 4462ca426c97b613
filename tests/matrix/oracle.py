"""The same problem for clingo: another engine that must find the same optimum."""

from __future__ import annotations

from collections.abc import Iterator

import clingo

from compat_matrix.choose import Objective
from compat_matrix.problem import Constraint, Domains, Problem, bits

PROGRAM = """
1 { x(V,I) : val(V,I) } 1 :- var(V).
bad(C,R) :- row(C,R), in(C,V), x(V,I), not mask(C,R,V,I).
ok(C) :- row(C,R), not bad(C,R).
:- demand(C), not ok(C).
:~ soft(C,P), not ok(C). [1@P,soft,C]
:~ cost(P,V,I,W), x(V,I). [W@P,cost,V]
weight(P,W) :- most(P,V,I,W), x(V,I).
:~ weight(P,W), step(P,K), W >= K. [1@P,most,K]
reached(K) :- record(R,S), size(K), S >= K, not miss(R).
miss(R) :- record(R,_), of(R,V), x(V,I), not within(R,V,I).
:~ size(K), best(P), not reached(K). [1@P,record,K]
apart(L) :- like(L), on(L,V), x(V,I), not when(L,V,I).
lacks(L) :- like(L), needed(L,V), x(V,I), not need(L,V,I).
:~ like(L), liked(P), not apart(L), lacks(L). [1@P,like,L]
#show x/2.
"""


def program(problem: Problem, objective: Objective) -> str:
    """The facts of a problem, beside PROGRAM. Priorities fall in the order of the strategy."""
    out: list[str] = []
    for v, variable in enumerate(problem.variables):
        out.append(f"var({v}).")
        out += [f"val({v},{i})." for i in range(len(variable.values))]
    for c, constraint in enumerate(problem.constraints()):
        out += [f"demand({c}).", *_constraint(c, constraint)]
    count = len(problem.variables)
    top = len(objective.order) + count
    for place, part in enumerate(objective.order):
        # The versions at the end of the order each have a priority of their own.
        priority = top - place - (count if place > objective.order.index("newness") else 0)
        if part in ("stale", "changes", "rank", "legacy"):
            out += _costs(priority, getattr(objective.weights, part))
        elif part == "newness":
            for v, row in enumerate(objective.weights.newness):
                out += [f"cost({priority - v},{v},{i},{w})." for i, w in enumerate(row) if w]
        elif part == "activation":
            table = objective.weights.activation
            out += [f"most({priority},{v},{i},{w})." for v, row in enumerate(table) for i, w in enumerate(row) if w]
            out += [f"step({priority},{k})." for k in range(1, 5)]
        elif part == "record":
            out.append(f"best({priority}).")
            out += [f"size({k})." for k in range(1, max((s for s, _, _ in problem.records), default=0) + 1)]
            for r, (size, masks, _) in enumerate(problem.records):
                out.append(f"record({r},{size}).")
                out += [f"of({r},{v})." for v, _ in masks]
                out += [f"within({r},{v},{i})." for v, mask in masks for i in bits(mask)]
        elif part == "dislikes":
            out.append(f"liked({priority}).")
            for n, (_, when, needs) in enumerate(problem.likes):
                out.append(f"like({n}).")
                out += [f"on({n},{v})." for v, _ in when] + [f"needed({n},{v})." for v, _ in needs]
                out += [f"when({n},{v},{i})." for v, mask in when for i in bits(mask)]
                out += [f"need({n},{v},{i})." for v, mask in needs for i in bits(mask)]
        if part == "legacy":
            for n, constraint in enumerate(problem.unknown_tables):
                name = 1000 + n
                out += [f"soft({name},{priority}).", *_constraint(name, constraint)]
    return "\n".join(out)


def _constraint(name: int, constraint: Constraint) -> Iterator[str]:
    for v in constraint.variables:
        yield f"in({name},{v})."
    for r, row in enumerate(constraint.rows):
        yield f"row({name},{r})."
        for v, mask in zip(constraint.variables, row, strict=True):
            yield from (f"mask({name},{r},{v},{i})." for i in bits(mask))


def _costs(priority: int, table: tuple[tuple[int, ...], ...]) -> Iterator[str]:
    for v, row in enumerate(table):
        yield from (f"cost({priority},{v},{i},{w})." for i, w in enumerate(row) if w)


def optimum(problem: Problem, objective: Objective) -> Domains | None:
    """The best choice that clingo finds; None when nothing fits."""
    if any(g.impossible for g in problem.groups) or not all(v.values for v in problem.variables):
        return None
    control = clingo.Control(["--opt-mode=opt", "--warn=none"])
    control.add("base", [], PROGRAM + program(problem, objective))
    control.ground([("base", [])])
    found: Domains | None = None
    with control.solve(yield_=True) as models:
        for model in models:
            chosen = dict.fromkeys(range(len(problem.variables)), 0)
            for symbol in model.symbols(shown=True):
                chosen[symbol.arguments[0].number] = 1 << symbol.arguments[1].number
            found = tuple(chosen.values())
    return found
