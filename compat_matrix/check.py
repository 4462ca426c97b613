"""What can be wrong in well-formed tables: contradictions, dead rules, versions nobody knows, broken promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from compat_matrix.case import cases, requests_of, run_case
from compat_matrix.document import Problem
from compat_matrix.facts import NodeClass, holds
from compat_matrix.load import digest_of, files, read_tables
from compat_matrix.moves import check_answers, parse_answers
from compat_matrix.reach import dead_ends, unreachable
from compat_matrix.row import Row, Rule, Scope
from compat_matrix.schema import Raw
from compat_matrix.table import Matrix, VendorTables
from fleet.core.errors import BadInput
from fleet.core.version import Range, key


def check(
    paths: Sequence[str] = (),
    vendor_path: Sequence[str] = (),
    expectations: Sequence[str] = (),
    stored: tuple[str, str] | None = None,
) -> list[Problem]:
    """Every problem of the tables, errors and warnings, in the order of files and lines.

    `expectations` are folders of cases (compat_matrix.case) that the tables must answer; `stored` is (path, text) of
    the stacks they had (compat_matrix.moves): one that moved is an error. Reads the tables anew.
    """
    tables = files(paths, vendor_path)
    raw, problems = read_tables(tables)
    if any(p.severity == "error" for p in problems):
        problems += _beside(raw, problems)
    else:
        matrix = Matrix.of(digest_of(tables), raw)
        for vendor in matrix.tables.values():
            found = list(_vendor(vendor))
            if not any(p.severity == "error" for p in found):  # where rules clash, everything is out of reach
                found += [*unreachable(matrix, vendor), *dead_ends(matrix, vendor)]
            problems += found
        for folder in expectations:
            for case in cases(Path(folder)):
                problems += run_case(matrix, case)
        if stored is not None:
            path, text = stored
            problems += check_answers(matrix, parse_answers(text, path), requests_of(expectations), path)
    return sorted(problems, key=lambda p: (p.path, p.line, p.slug))


_ALONE = ("empty-range", "equals-cycle", "cycle", "contradiction")  # true whatever the rows with errors would say


def _beside(raw: Mapping[str, Mapping[str, list[Raw]]], problems: Sequence[Problem]) -> list[Problem]:
    """What is wrong among the rows that could be read, so that one run tells everything."""
    wrong = {f"{p.path}:{p.line}" for p in problems if p.severity == "error"}
    out: list[Problem] = []
    for vendor, sections in raw.items():
        if vendor == "os":
            continue
        kept = {name: [row for row in rows if row["at"] not in wrong] for name, rows in sections.items()}
        try:
            out += [p for p in _vendor(VendorTables.of(vendor, kept)) if p.slug in _ALONE]
        except (BadInput, KeyError):
            continue  # a row leans on one that has errors: those are told
    return out


def _at(row: Row, text: str, slug: str, severity: str = "error") -> Problem:
    path, _, line = row.at.rpartition(":")
    return Problem(path, int(line), text, slug, severity)


def _vendor(tables: VendorTables) -> Iterator[Problem]:
    yield from _ranges(tables)
    yield from _equal_cycles(tables)
    yield from _contradictions(tables)
    for row in tables.components.values():
        seen = {row.component}
        other = row.releases_of
        while other:
            if other in seen:
                yield _at(row, f"releases_of leads round in a circle: {row.component} -> {row.releases_of}", "cycle")
                break
            seen.add(other)
            other = tables.components[other].releases_of if other in tables.components else ""
        if row.choose == "always" and not tables.releases.get(row.releases_of or row.component):
            yield _at(row, f"{row.component} is always chosen, and no release of it is in the tables", "no-releases")


def _scopes(rule: Rule) -> Iterator[tuple[str, Range]]:
    for scope in (rule.when, rule.needs):
        yield from scope.components.items()
        if scope.kernel is not None:
            yield "kernel", scope.kernel
    yield from rule.pairs.items()
    for wanted in (rule.from_, rule.to, rule.via):
        if wanted is not None:
            yield rule.component, wanted


def _ranges(tables: VendorTables) -> Iterator[Problem]:
    """Ranges that no version can be in, versions that no release has, rules that catch no release."""
    for rule in tables.rules:
        for component, wanted in _scopes(rule):
            row = tables.components.get(component)
            scheme = row.scheme if row else "kernel" if component == "kernel" else "generic"
            if _empty(wanted, scheme):
                yield _at(rule, f"{component} {wanted} is a range that no version can be in", "empty-range")
                continue
            releases = tables.releases.get((row.releases_of or component) if row else component, ())
            if not releases or row is None:
                continue
            known = {key(r.version, scheme) for r in releases}
            names = [v for v in wanted.versions() if not any(_equal(wanted, v, r.version, scheme) for r in releases)]
            for version in names:
                if key(version, scheme) not in known:
                    text = f"{component} {version} is named in a rule and in no row of releases"
                    others = len(names) < len(wanted.versions()) or any(
                        _inside(wanted, r.version, scheme) for r in releases
                    )
                    yield _at(rule, text, "unknown-version", "warning" if others else "error")
            if not names and not any(_inside(wanted, r.version, scheme) for r in releases):
                text = f"no release of {component} is in {wanted}: the rule catches nothing yet"
                yield _at(rule, text, "dead-rule", "warning")


def _equal(wanted: Range, named: str, version: str, scheme: str) -> bool:
    del wanted
    return _inside(Range.parse(f"=={named}"), version, scheme)


def _inside(wanted: Range, version: str, scheme: str) -> bool:
    try:
        return wanted.contains(version, scheme)
    except BadInput:
        return False


def _empty(wanted: Range, scheme: str) -> bool:
    """Whether each alternative has a lower bound above its upper one."""
    for terms in wanted.alternatives:
        lows = [t for t in terms if t.op in (">", ">=", "==")]
        highs = [t for t in terms if t.op in ("<", "<=", "==")]
        if not any(_crossed(low.values[0], low.op, high.values[0], high.op, scheme) for low in lows for high in highs):
            return False
    return True


def _crossed(low: str, low_op: str, high: str, high_op: str, scheme: str) -> bool:
    del scheme  # bounds may be shorter than a version of the scheme: the generic order fits all of them
    try:
        a, b = key(low, "generic"), key(high, "generic")
    except BadInput:
        return False
    return a > b or (a == b and (low_op == ">" or high_op == "<"))


def _equal_cycles(tables: VendorTables) -> Iterator[Problem]:
    """Equalities that lead round in a circle: one of them is said twice, and an override of one would not be seen."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    for rule in tables.rules:
        if rule.relation != "equals":
            continue
        first, *rest = rule.components
        for other in rest:
            a, b = root(first), root(other)
            if a == b:
                text = f"{first} = {other} follows from equalities before it: a circle of equals"
                yield _at(rule, text, "equals-cycle")
            parent[a] = b


def _contradictions(tables: VendorTables) -> Iterator[Problem]:
    """Two demands on one component that no release can meet together, for some model whatever else is chosen."""
    told: set[tuple[str, str]] = set()
    for model in tables.models:
        facts = NodeClass(tables.name, model.name, model.architecture, frozenset(model.tags), 1, "", "", "", "")
        demands: dict[tuple[str, str], list[tuple[Rule, str, set[str]]]] = {}
        for rule in tables.rules:
            if holds(replace(rule.when, os=(), kernel=None, flags={}, arch=()), facts):
                for component, under, said, versions in _demands(tables, rule):
                    demands.setdefault((component, under), []).append((rule, said, versions))
        for (component, _), found in demands.items():
            for i, (first, a, one) in enumerate(found):
                for second, b, other in found[i + 1 :]:
                    if one and other and not one & other and (first.at, second.at) not in told:
                        told.add((first.at, second.at))
                        text = f"{component} {b} contradicts {component} {a} of {first.at} for {model.name}"
                        yield _at(second, text, "contradiction")


def _demands(tables: VendorTables, rule: Rule) -> Iterator[tuple[str, str, str, set[str]]]:
    """(component, the condition under which, what is demanded in words, the releases that meet it)."""

    def fitting(component: str, wanted: Range, inside: bool) -> set[str]:
        row = tables.components.get(component)
        if row is None:
            return set()
        releases = tables.releases.get(row.releases_of or component, ())
        return {r.version for r in releases if _inside(wanted, r.version, row.scheme) is inside}

    facts = repr((rule.when.os, rule.when.kernel, sorted(rule.when.flags.items(), key=str), rule.when.arch))
    if rule.relation == "requires" and _facts_free(rule.needs):
        under = facts + repr(sorted(rule.when.components.items(), key=str))
        for component, wanted in rule.needs.components.items():
            yield component, under, str(wanted), fitting(component, wanted, True)
    elif rule.relation == "forbids" and len(rule.when.components) == 1:
        for component, wanted in rule.when.components.items():
            yield component, facts + "[]", f"outside {wanted}", fitting(component, wanted, False)


def _facts_free(scope: Scope) -> bool:
    return not (scope.model or scope.architecture or scope.tag or scope.arch or scope.os or scope.kernel)
