"""What no node can ever reach: releases that fit nowhere, and releases from which no road leads on.

Nodes are taken by kind: models and systems for which the same rows hold count once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from compat_matrix.compile import applies, compile_problem, variables_of
from compat_matrix.document import Problem
from compat_matrix.facts import NodeClass, holds, node_class
from compat_matrix.problem import propagate
from compat_matrix.road import distances
from compat_matrix.row import Release, Row, Rule, Scope
from compat_matrix.table import Matrix, VendorTables
from fleet.core.errors import BadInput
from fleet.core.model import Json, OsFacts, Policy, Request
from fleet.core.version import Range

_ANY = Policy(channel="legacy", min_level="community", strategy="newest")
_SHOWN = 4


def unreachable(matrix: Matrix, tables: VendorTables) -> Iterator[Problem]:
    """Warnings for releases that are in no allowed stack of any model on any system."""
    left: dict[str, dict[str, list[Release]]] = {}
    for component, rows in tables.releases.items():
        for release in rows:
            if component in tables.components:
                left.setdefault(component, {}).setdefault(release.version, []).append(release)
    always = [c for c, row in tables.components.items() if row.choose == "always"]
    said = {(c, v): _statements(tables, c, v, always) for c, versions in left.items() for v in versions}
    plain = list(_requests(matrix, tables))
    flagged = (replace(request, flags=flags) for flags in _flags(tables) for request in plain)
    for request in itertools.chain(plain, flagged):
        facts = node_class(matrix, request)
        if facts is None:
            continue
        for component, versions in left.items():
            if not applies(tables.components[component], facts):
                continue
            exists = [v for v, found in versions.items() if any(holds(r.when, facts, lenient=True) for r in found)]
            if not any(_spoken_of(said[component, v], facts) for v in exists):
                continue
            wish = {} if component in always else {component: "*"}
            for version in _possible(matrix, replace(request, wish=wish), facts, component):
                left[component].pop(version, None)
        if not any(left.values()):
            return
    for component, versions in left.items():
        for version, found in versions.items():
            text = f"{component} {version} is in no allowed stack of any model on any system: nobody can reach it"
            yield _at(found[0], text, "unreachable-release")


def _flags(tables: VendorTables) -> list[dict[str, Json]]:
    """Each value of a flag that a positive statement asks for: other rows only take away."""
    scopes = [rule.when for rule in tables.rules if rule.relation == "pairs"]
    scopes += [rule.needs for rule in tables.rules if rule.relation == "requires"]
    scopes += [r.when for found in tables.releases.values() for r in found]
    scopes += [scope for row in tables.components.values() for scope in row.when]
    found = {(name, value) for scope in scopes for name, r in scope.flags.items() for value in r.versions()}
    return [{name: value} for name, value in sorted(found)]


def _statements(tables: VendorTables, component: str, version: str, always: list[str]) -> list[list[Rule]]:
    """For each pairs table that binds wherever the component is: its rows that speak of this version."""
    row = tables.components[component]
    plain = {component, *(c for c in always if not tables.components[c].when)}
    return [
        [rule for rule in rows if component not in rule.pairs or _in(rule.pairs[component], version, row.scheme)]
        for rows in tables.tables.values()
        if component in rows[0].pairs and set(rows[0].pairs) <= plain
    ]


def _in(wanted: Range, version: str, scheme: str) -> bool:
    try:
        return wanted.contains(version, scheme)
    except BadInput:
        return False


def _spoken_of(statements: list[list[Rule]], facts: NodeClass) -> bool:
    """Whether each table has a row for these facts; False = the version cannot be allowed there."""
    return all(any(holds(rule.when, facts, lenient=True) for rule in rows) for rows in statements)


def _possible(matrix: Matrix, request: Request, facts: NodeClass, component: str) -> set[str]:
    """The versions of a component that its rules leave here, whatever the policy."""
    problem = compile_problem(matrix, request, facts)
    index = problem.index(component)
    groups = [g for g in problem.groups if g.kind not in ("channel", "wish")]
    if index is None or any(g.impossible for g in groups):
        return set()
    reduced = propagate(problem.constraints(groups), problem.domains())
    if reduced is None:
        return set()
    return {v for i, v in enumerate(problem.variables[index].values) if reduced[index] >> i & 1}


def _requests(matrix: Matrix, tables: VendorTables) -> Iterator[Request]:
    """One request for each kind of model on each kind of system."""
    systems: dict[tuple[bool, ...], OsFacts] = {}
    scopes = [rule.when for rule in tables.rules] + [r.when for found in tables.releases.values() for r in found]
    scopes += [scope for row in tables.components.values() for scope in row.when]
    bound = [scope for scope in scopes if scope.os or scope.arch]
    for row in matrix.systems:
        version = row.version.replace(".*", "").replace("*", "")
        for arch in ("x86_64", "aarch64"):
            facts = NodeClass(tables.name, "", "", frozenset(), 1, arch, row.id, version, "")
            kind = tuple(holds(Scope(os=scope.os, arch=scope.arch), facts) for scope in bound)
            systems.setdefault(kind, OsFacts(row.id, version, "", arch))
    systems = systems or {(): OsFacts()}
    models: dict[tuple[bool, ...], str] = {}
    cards = [scope for scope in scopes if scope.model or scope.architecture or scope.tag]
    for model in tables.models:
        for count in (1, 8):
            facts = NodeClass(
                tables.name, model.name, model.architecture, frozenset(model.tags), count, "", "", "", ""
            )  # fmt: skip
            kind = tuple(
                holds(Scope(scope.model, scope.architecture, scope.tag, count=scope.count), facts) for scope in cards
            )
            models.setdefault((*kind, count > 1 and bool(model.flags_from_count)), f"{model.name}\0{count}")
    for entry in models.values():
        name, _, number = entry.partition("\0")
        for system in systems.values():
            yield Request(tables.name, name, int(number), system, policy=_ANY)


def dead_ends(matrix: Matrix, tables: VendorTables) -> Iterator[Problem]:
    """Warnings for releases of a component with restricted hops from which no road leads to its newest one."""
    restricted = {rule.component for rule in tables.rules if rule.relation == "transition"}
    told: set[tuple[str, str]] = set()
    for model in tables.models:
        request = Request(tables.name, model.name, 1, OsFacts(), policy=_ANY)
        facts = node_class(matrix, request)
        if facts is None:
            continue
        for component in sorted(restricted):
            request = replace(request, wish={component: "*"})
            found = variables_of(matrix, tables, request, facts)[0]
            variable = next((v for v in found if v.component == component), None)
            if variable is None or not variable.values:
                continue
            near = distances(tables, facts, variable, variable.values[0])
            stuck = [v for v in variable.values if v not in near]
            first = variable.releases[variable.values.index(stuck[0])] if stuck else ()
            if first and (component, " ".join(stuck)) not in told:
                told.add((component, " ".join(stuck)))
                shown = ", ".join(stuck[:_SHOWN]) + (f" … ({len(stuck)} releases)" if len(stuck) > _SHOWN else "")
                text = f"no road leads from {component} {shown} to {variable.values[0]} for {model.name}: a dead end"
                yield _at(first[0], text, "dead-end")


def _at(row: Row, text: str, slug: str) -> Problem:
    path, _, line = row.at.rpartition(":")
    return Problem(path, int(line), text, slug, "warning")
