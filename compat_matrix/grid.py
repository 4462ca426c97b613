"""The tables as grids to look at: models and systems against the lines of the driver, each cell with its rows.

A grid tells what the rows say of the driver alone; the whole answer for a node is `solve`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from compat_matrix.facts import NodeClass, holds
from compat_matrix.row import Release, Row, Rule, level_rank
from compat_matrix.table import Matrix, VendorTables
from fleet.core.errors import BadInput
from fleet.core.version import Range, key, valid

State = Literal["yes", "part", "no", "unknown"]
_MANY = 30  # versions above which they are grouped by their first number


@dataclass(frozen=True)
class Cell:
    """What the rows say of some versions: all, some or none allowed, or no row speaks."""

    state: State
    versions: tuple[str, ...]  # those that exist here
    allowed: tuple[str, ...]
    rows: tuple[Row, ...]
    levels: Mapping[str, str] = field(default_factory=dict)  # allowed version -> the weakest table's strongest row


@dataclass(frozen=True)
class Line:
    """One row of a grid: a model or a system, and its cells by line of the driver."""

    name: str
    kind: str  # architecture, or the id of the system
    row: Row
    cells: Mapping[str, Cell]

    @property
    def allowed(self) -> list[str]:
        return [version for cell in self.cells.values() for version in cell.allowed]

    def by_level(self) -> dict[str, list[str]]:
        """evidence, strongest first -> the versions that rest on it."""
        out: dict[str, list[str]] = {}
        for cell in self.cells.values():
            for version, level in cell.levels.items():
                out.setdefault(level, []).append(version)
        return dict(sorted(out.items(), key=lambda item: -level_rank(item[0])))


def driver_lines(tables: VendorTables) -> dict[str, tuple[Release, ...]]:
    """line -> its releases, newest first: branches where there are many versions, else the versions."""
    row = tables.components.get("driver")
    scheme = row.scheme if row else "generic"
    found = [r for r in tables.releases.get("driver", ()) if valid(r.version, scheme)]
    found.sort(key=lambda r: key(r.version, scheme), reverse=True)
    many = len({r.version for r in found}) > _MANY
    out: dict[str, list[Release]] = {}
    for release in found:
        name = release.version.partition(".")[0] if many else release.version
        out.setdefault(name, []).append(release)
    return {name: tuple(rows) for name, rows in out.items()}


def models(tables: VendorTables) -> list[Line]:
    """Each model against the driver, by the rows that ask for no system."""
    lines = driver_lines(tables)
    of_systems = {rule.table for rule in tables.rules if rule.relation == "pairs" and not _plain(rule)}
    out = []
    for model in tables.models:
        facts = NodeClass(tables.name, model.name, model.architecture, frozenset(model.tags), 1, "", "", "", "")
        rules = [r for r in tables.rules if r.table not in of_systems and _plain(r) and holds(r.when, facts)]
        out.append(Line(model.name, model.architecture, model, _cells(tables, lines, facts, rules)))
    return out


def systems(matrix: Matrix, tables: VendorTables) -> list[Line]:
    """Each operating system that some row of the vendor names, against the driver."""
    lines = driver_lines(tables)
    out = []
    for system in matrix.systems:
        version = system.version.replace(".*", "").replace("*", "")
        facts = NodeClass(tables.name, "", "", frozenset(), 1, "", system.id, version, "")
        rules = [
            rule
            for rule in tables.rules
            if (rule.when.os or rule.when.kernel)
            and not rule.when.flags
            and (
                holds(replace(rule.when, model=(), architecture=(), tag=(), arch=()), facts, lenient=True)
                if rule.relation == "pairs"
                else holds(rule.when, facts)
            )
        ]
        if rules:
            out.append(Line(system.name or f"{system.id} {system.version}", system.id, system,
                            _cells(tables, lines, facts, rules, any_model=True)))  # fmt: skip
    return out


def _plain(rule: Rule) -> bool:
    """Whether a rule asks for no system, kernel or flag."""
    return not (rule.when.os or rule.when.kernel or rule.when.flags)


def _cells(
    tables: VendorTables,
    lines: Mapping[str, Sequence[Release]],
    facts: NodeClass,
    rules: Sequence[Rule],
    any_model: bool = False,
) -> dict[str, Cell]:
    scheme = tables.components["driver"].scheme if "driver" in tables.components else "generic"
    pairs: dict[str, list[Rule]] = {}
    always = {c for c, row in tables.components.items() if row.choose == "always" and not row.when}
    for rule in rules:  # tables of components that are not always there bind only where they are
        if rule.relation == "pairs" and "driver" in rule.pairs and set(rule.pairs) <= always:
            pairs.setdefault(rule.table, []).append(rule)
    demands = [
        r for r in rules if r.relation == "requires" and "driver" in r.needs.components and not r.when.components
    ]
    refusals = [r for r in rules if r.relation == "forbids" and set(r.when.components) == {"driver"}]
    out: dict[str, Cell] = {}
    for name, releases in lines.items():
        here = [r for r in releases if any_model or holds(r.when, facts, lenient=True)]
        if not here:
            continue
        versions = tuple(dict.fromkeys(r.version for r in here))
        said: dict[str, Row] = {}
        allowed: list[str] = []
        levels: dict[str, str] = {}
        for version in versions:
            fits = True
            evidence: list[str] = []
            for rows in pairs.values():
                matching = [r for r in rows if _in(r.pairs["driver"], version, scheme)]
                for row in matching:
                    said.setdefault(row.at, row)
                evidence += [max((row.level for row in matching), key=level_rank)] if matching else []
                fits = fits and bool(matching)
            for rule in demands:
                if not _in(rule.needs.components["driver"], version, scheme):
                    fits = False
                    said.setdefault(rule.at, rule)
            for rule in refusals:
                if _in(rule.when.components["driver"], version, scheme):
                    fits = False
                    said.setdefault(rule.at, rule)
            if fits and pairs:
                allowed.append(version)
                levels[version] = min(evidence, key=level_rank)
        state: State = "yes" if len(allowed) == len(versions) else "part" if allowed else "no" if said else "unknown"
        if not allowed and not said:  # closed world: the rows that would allow other versions
            nearest = [row for rows in pairs.values() for row in rows][:3]
            said = {row.at: row for row in nearest}
            state = "no" if nearest else "unknown"
        rows_ = (*said.values(), *here[:1])
        out[name] = Cell(state, versions, tuple(allowed), rows_, levels)
    return out


def _in(wanted: Range, version: str, scheme: str) -> bool:
    try:
        return wanted.contains(version, scheme)
    except BadInput:
        return False


def span(versions: Iterable[str], scheme: str = "generic") -> str:
    """`525.85.05 … 610.57.04 (143)` of versions."""
    found = sorted(set(versions), key=lambda v: key(v, scheme))
    if not found:
        return "none"
    return found[0] if len(found) == 1 else f"{found[0]} … {found[-1]} ({len(found)})"
