"""Releases nobody can reach, roads that dead-end, one id for two sources, words with a suggestion."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from compat_matrix import check
from compat_matrix.load import read_tables
from compat_matrix.reach import dead_ends, unreachable
from tests.matrix.conftest import HEAD, small, table

ROW = "source: book, level: vendor"
DRIVERS = f"""
components:
  - {{component: driver, scheme: dotted, choose: always, activation: reboot, because: "x", {ROW}}}
  - {{component: firmware, scheme: dotted, activation: reboot, because: "x", {ROW}}}
  - {{component: dcgm, scheme: dotted, activation: none, because: "x", when: {{flags: {{vgpu: "true"}}}}, {ROW}}}
releases:
  - {{component: driver, version: "1.0", channel: legacy, {ROW}}}
  - {{component: driver, version: "2.0", channel: stable, when: {{architecture: one}}, {ROW}}}
  - {{component: driver, version: "2.0", channel: stable, when: {{architecture: two}}, {ROW}}}
  - {{component: driver, version: "3.0", channel: developer, {ROW}}}
  - {{component: firmware, version: "7.0", channel: stable, {ROW}}}
  - {{component: firmware, version: "8.0", channel: stable, {ROW}}}
  - {{component: dcgm, version: "1.0", channel: stable, {ROW}}}
"""


def rules(*lines: str) -> str:
    return "rules:\n" + "".join(f'  - {{{line}, because: "so", {ROW}}}\n' for line in lines)


def test_a_release_that_fits_nowhere_is_told_at_its_row() -> None:
    matrix = small(
        DRIVERS
        + rules(
            'relation: pairs, table: driver-os, when: {model: M2}, pairs: {driver: "<3.0"}',
            'relation: pairs, table: driver-os, when: {model: M1}, pairs: {driver: "1.0 || 2.0"}',
            'relation: requires, when: {firmware: "8.0"}, needs: {driver: ">=3.0"}',
        )
    )
    found = list(unreachable(matrix, matrix.tables["acme"]))
    assert [(p.text.split(" is ")[0], p.slug, p.severity) for p in found] == [
        ("driver 3.0", "unreachable-release", "warning"),
        ("firmware 8.0", "unreachable-release", "warning"),
    ]
    assert found[0].line == DRIVERS.count("\n", 0, DRIVERS.index('"3.0", channel: developer')) + 1


def test_a_release_of_a_flag_is_reached_with_it() -> None:
    matrix = small(DRIVERS)
    assert list(unreachable(matrix, matrix.tables["acme"])) == []


def test_a_road_that_dead_ends_is_told() -> None:
    matrix = small(
        DRIVERS
        + rules(
            'relation: transition, component: driver, from: "<2.0", to: ">=2.0", verdict: forbidden',
            'relation: transition, component: firmware, from: "<8.0", to: ">=9.0", verdict: forbidden',
        )
    )
    (found,) = dead_ends(matrix, matrix.tables["acme"])
    assert found.slug == "dead-end" and "from driver 1.0 to 3.0 for M1" in found.text


@pytest.mark.parametrize("other", ["The book", "Another book"])
def test_one_id_for_two_sources_is_an_error(other: str) -> None:
    again = f'sources:\n  book: {{title: "{other}", section: "1", seen: "2026-01-01", url: "https://a.example/"}}\n'
    problems = read_tables([table(HEAD, name="a.yaml"), table(again, name="b.yaml")])[1]
    assert [(p.path, p.line, p.slug) for p in problems] == [("acme/b.yaml", 2, "duplicate-source")]
    assert "acme/a.yaml:3" in problems[0].text


def test_the_sources_of_a_site_do_not_change_what_shipped_rows_cite() -> None:
    site = (
        'sources:\n  book: {title: "Our book", section: "1", seen: "2026-01-01", url: "https://a.example/"}\n'
        f'models:\n  - {{model: "M3", architecture: one, {ROW}}}\n'
    )
    raw, problems = read_tables([table(HEAD, name="a.yaml"), table(site, name="b.yaml", root=1)])
    assert problems == []
    titles = {row["model"]: row["source"]["title"] for row in raw["acme"]["models"]}
    assert titles == {"M1": "The book", "M2": "The book", "M3": "Our book"}
    assert not any("root" in row for row in raw["acme"]["models"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("relases: []\n", "did you mean 'releases'?"),
        (f'releases:\n  - {{component: drivr, version: "1", channel: stable, {ROW}}}\n', "did you mean 'driver'?"),
        (f'releases:\n  - {{component: driver, version: "1", chanel: stable, {ROW}}}\n', "did you mean 'channel'?"),
        (f'releases:\n  - {{component: driver, version: "1", channel: stabel, {ROW}}}\n', "did you mean 'stable'?"),
        ('releases:\n  - {component: driver, version: "1", channel: lts, source: bok, level: vendor}\n', "'book'?"),
        (f'rules:\n  - {{relation: forbids, when: {{drivr: "1"}}, because: "x", {ROW}}}\n', "did you mean 'driver'?"),
        (f'rules:\n  - {{relation: forbids, when: {{model: MM1}}, because: "x", {ROW}}}\n', "did you mean 'M1'?"),
    ],
)
def test_a_typing_error_gets_a_suggestion(text: str, said: str) -> None:
    problems = read_tables([table(HEAD, name="a.yaml"), table(text, name="b.yaml")])[1]
    assert any(said in p.text for p in problems), [str(p) for p in problems]


def test_everything_wrong_is_told_in_one_run(folder: Callable[..., str]) -> None:
    """Each kind of bad input in a file of its own: all of them with their lines, none hides another."""
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{c}: &{c} [*{b},*{b},*{b},*{b},*{b},*{b},*{b},*{b},*{b}]\n"
        for b, c in zip("abcdefgh", "bcdefghi", strict=True)
    )
    site = folder(
        acme__head=HEAD + DRIVERS,
        acme__bomb=bomb,
        acme__typo=f'relases:\n  - {{component: driver, version: "1", channel: stable, {ROW}}}\n',
        acme__bare=f"releases:\n  - {{component: driver, version: 4.0, channel: stable, {ROW}}}\n",
        acme__range=rules('relation: requires, needs: {driver: ">=2.0,=<1"}'),
        acme__impossible=rules('relation: requires, needs: {driver: ">=2.0,<1.0"}'),
        acme__clash=rules(
            'relation: requires, when: {model: M1}, needs: {driver: ">=3.0"}',
            'relation: requires, when: {architecture: one}, needs: {driver: "<3.0"}',
        ),
        acme__circle=rules(
            "relation: equals, components: [driver, firmware]", "relation: equals, components: [firmware, driver]"
        ),
        acme__nosource='releases:\n  - {component: driver, version: "5.0", channel: stable, level: vendor}\n',
    )
    (Path(site) / "acme" / "huge.yaml").write_bytes(b"# " + b"x" * 50_000_000)
    found = {(Path(p.path).name, p.line, p.slug) for p in check([site]) if "/site/" in p.path}
    assert found >= {
        ("bomb.yaml", 5, "yaml-bomb"),
        ("huge.yaml", 1, "too-large"),
        ("typo.yaml", 1, "unknown-section"),
        ("bare.yaml", 2, "unquoted-version"),
        ("range.yaml", 2, "bad-range"),
        ("nosource.yaml", 2, "missing-source"),
        ("impossible.yaml", 2, "empty-range"),
        ("clash.yaml", 3, "contradiction"),
        ("circle.yaml", 3, "equals-cycle"),
    }, found
