"""Tables: every error is told with file and line, hostile files are refused, the cache is keyed by content."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from compat_matrix import BadMatrix, Matrix, check, load
from compat_matrix.document import MAX_BYTES, read
from compat_matrix.load import KEPT, digest_of, files, read_tables
from tests.matrix.conftest import HEAD, small, table

GOOD = """
components:
  - {component: driver, scheme: dotted, choose: always, activation: reboot, source: book, level: vendor}
  - {component: firmware, scheme: dotted, activation: power_cycle, removable: false, source: book, level: vendor}
releases:
  - {component: driver, version: "1.0", channel: stable, source: book, level: vendor}
  - {component: driver, version: "2.0", channel: stable, source: book, level: vendor}
  - {component: firmware, version: "1.0", channel: stable, source: book, level: vendor}
"""


def problems_of(text: str, head: str = HEAD + GOOD) -> list[str]:
    lines = head.count("\n")
    found = read_tables([table(head + text)])[1]
    return [f"{p.line - lines}: {p.severity} {p.slug}" for p in found]


def rule(fields: str) -> str:
    return f"rules:\n  - {{{fields}}}\n"


SOURCED = 'because: "so", source: book, level: vendor'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rulez: []\n", ["1: error unknown-section"]),
        (rule(f'relation: needs, {SOURCED}'), ["2: error bad-word", "2: error missing-field"]),
        (rule(f'relation: requires, when: {{}}, needs: {{driver: ">=1.0"}}, colour: red, {SOURCED}'),
         ["2: error unknown-field"]),
        (rule(f"relation: requires, needs: {{driver: 1.0}}, {SOURCED}"), ["2: error unquoted-version"]),
        (rule(f'relation: requires, needs: {{driver: ">=l.0"}}, {SOURCED}'), ["2: error bad-version"]),
        (rule(f'relation: requires, needs: {{driver: "=>1.0"}}, {SOURCED}'), ["2: error bad-range"]),
        (rule(f'relation: requires, needs: {{drivr: ">=1.0"}}, {SOURCED}'),
         ["2: error bad-key", "2: error missing-field"]),
        (rule(f'relation: requires, needs: {{dcgm: ">=1.0"}}, {SOURCED}'), ["2: error no-component-row"]),
        (rule('relation: requires, needs: {driver: ">=1.0"}, source: book, level: vendor'),
         ["2: error missing-because"]),
        (rule('relation: requires, needs: {driver: ">=1.0"}, because: "so", level: vendor'),
         ["2: error missing-source"]),
        (rule('relation: requires, needs: {driver: ">=1.0"}, because: "so", source: book'), ["2: error missing-field"]),
        (rule('relation: requires, needs: {driver: ">=1.0"}, because: "so", source: nowhere, level: observed'),
         ["2: error unknown-source"]),
        (rule('relation: requires, needs: {driver: ">=1.0"}, because: "so", source: hearsay, level: vendor'),
         ["2: error no-url"]),
        (rule('relation: requires, needs: {driver: ">=1.0"}, because: "so", source: {title: "T"}, level: observed'),
         ["2: error missing-seen", "2: error missing-section"]),
        (rule(f'relation: requires, when: {{model: M9}}, needs: {{driver: ">=1.0"}}, {SOURCED}'),
         ["2: error unknown-model"]),
        (rule(f'relation: requires, when: {{architecture: [nine]}}, needs: {{driver: ">=1.0"}}, {SOURCED}'),
         ["2: error unknown-architecture"]),
        (rule(f"relation: equals, components: [driver], {SOURCED}"), ["2: error bad-field"]),
        (rule(f'relation: transition, component: driver, verdict: via, {SOURCED}'), ["2: error missing-field"]),
        (rule(f'relation: pairs, pairs: {{driver: "*"}}, {SOURCED}'), ["2: error missing-field"]),
        ('releases:\n  - {component: driver, version: 3.0, channel: stable, source: book, level: vendor}\n',
         ["1: error duplicate-key", "2: error unquoted-version"]),
        ("models:\n  - {model: M3, architecture: x, pci: [ABCD:1], source: book, level: vendor}\n",
         ["1: error duplicate-key", "2: error bad-pci"]),
        ("rules: {}\n", ["1: error bad-file"]),
        ("rules: [x]\n", ["1: error bad-row"]),
        ("rules: [\n", ["2: error bad-yaml"]),
        ("rules: &r [*r]\n", ["1: error bad-yaml"]),
        ("? [a]\n: b\n", ["1: error bad-key"]),
    ],
)  # fmt: skip
def test_each_error_has_its_line(text: str, expected: list[str]) -> None:
    found = problems_of(text)
    # A file that cannot be read as YAML, or whose section is there twice, makes others miss what it would have told.
    assert [p for p in found if p in expected] == expected
    follow = ("unknown-model", "unknown-source", "no-component-row") if "rule" not in text[:4] else ()
    assert all(p in expected or p.split()[-1] in follow for p in found)


def test_all_errors_come_in_one_run() -> None:
    text = rule("relation: requires, needs: {driver: 1.0}") + "order:\n  - {case: never}\nfoo: 1\n"
    slugs = [p.split()[-1] for p in problems_of(text)]
    assert {"unquoted-version", "missing-source", "missing-because", "bad-word", "unknown-section"} <= set(slugs)


def test_a_release_of_the_wrong_form_and_two_of_the_same() -> None:
    more = GOOD + '  - {component: driver, version: "1.x", channel: stable, source: book, level: vendor}\n'
    assert [p.split()[-1] for p in problems_of("", HEAD + more)] == ["bad-version"]
    more = GOOD + '  - {component: driver, version: "1.0", channel: lts, source: book, level: vendor}\n'
    assert [p.split()[-1] for p in problems_of("", HEAD + more)] == ["duplicate-row"]


def test_two_models_of_one_name() -> None:
    text = HEAD + '  - {model: "M3", architecture: one, aliases: ["m-1 80G"], source: book, level: vendor}\n'
    assert [p.slug for p in read_tables([table(text)])[1]] == ["name-twice"]


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)),
        "[" * 100_000,
        "a: " * 50_000,
        "- " * 100_000 + "x",
        "a: &x 1\nb: [" + "*x, " * 300 + "*x]\n",
        "x" * (MAX_BYTES + 1),
        "a: {<<: {b: 1}}\n",
        "--- 1\n--- 2\n",
        "\x00\x01\x02",
        "a: !!python/object/apply:os.system ['true']\n? {}\n: 1\n",
    ],
)
def test_hostile_yaml_is_refused_quickly(text: str) -> None:
    began = time.process_time()
    root, problems = read(text, "bomb.yaml")
    assert problems and root is None
    assert time.process_time() - began < 2


def test_a_file_of_50_mb_is_not_even_read(folder: Callable[..., str]) -> None:
    site = folder(acme__models=HEAD)
    big = Path(site) / "acme" / "big.yaml"
    with big.open("wb") as out:
        out.truncate(50 * 1024 * 1024)
    began = time.process_time()
    problems = check([site])
    assert [p.slug for p in problems if p.path.endswith("big.yaml")] == ["too-large"]
    assert time.process_time() - began < 5


def test_a_file_that_is_not_utf8(folder: Callable[..., str]) -> None:
    site = folder(acme__models=HEAD)
    (Path(site) / "acme" / "latin.yaml").write_bytes(b"a: \xff\xfe\n")
    assert [p.slug for p in check([site]) if p.path.endswith("latin.yaml")] == ["bad-yaml"]


def test_the_shipped_tables_have_no_error() -> None:
    assert [str(p) for p in check() if (p.severity == "error" and "/nvidia/" in p.path) or "/os/" in p.path] == []


def test_load_tells_all_errors(folder: Callable[..., str], tmp_path: Path) -> None:
    site = folder(acme__models=HEAD + rule("relation: requires, needs: {driver: 1.0}"))
    with pytest.raises(BadMatrix) as caught:
        load([site], env={"XDG_CACHE_HOME": str(tmp_path)})
    assert caught.value.exit_code == 4
    assert len(caught.value.problems) >= 3
    assert f"{site}/acme/models.yaml:" in caught.value.cause


def test_the_cache_is_keyed_by_content(folder: Callable[..., str], tmp_path: Path) -> None:
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    site = folder(acme__models=HEAD, acme__more=GOOD)
    first = load([site], env=env)
    (kept,) = (tmp_path / "cache" / "fleet").glob("matrix-*.json")
    assert json.loads(kept.read_text().partition("\n")[2])["acme"]["models"]
    before = kept.stat().st_mtime_ns
    assert load([site], env=env).digest == first.digest
    assert kept.stat().st_mtime_ns == before
    folder(acme__more=GOOD.replace('"2.0"', '"2.1"'))
    second = load([site], env=env)
    assert second.digest != first.digest
    assert [r.version for r in second.tables["acme"].releases["driver"]] == ["1.0", "2.1"]
    assert second.tables["acme"].components == load([site], env=env).tables["acme"].components


def test_the_cache_does_not_grow_without_end(folder: Callable[..., str], tmp_path: Path) -> None:
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    for number in range(KEPT + 4):
        load([folder(acme__models=HEAD, acme__more=GOOD.replace('"2.0"', f'"2.{number}"'))], env=env)
    assert len(list((tmp_path / "cache" / "fleet").iterdir())) == KEPT


@pytest.mark.parametrize("spoil", ["garbage", "{}", ""])
def test_a_spoiled_or_missing_cache_does_no_harm(folder: Callable[..., str], tmp_path: Path, spoil: str) -> None:
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    site = folder(acme__models=HEAD, acme__more=GOOD)
    good = load([site], env=env)
    for file in (tmp_path / "cache" / "fleet").iterdir():
        file.write_text(spoil)
    assert load([site], env=env).model("acme", "M1") == "M1"
    (tmp_path / "blocked").write_text("a file where the folder should be")
    assert load([site], env={"XDG_CACHE_HOME": str(tmp_path / "blocked")}).digest == good.digest


def test_the_digest_does_not_depend_on_the_place(folder: Callable[..., str], tmp_path: Path) -> None:
    site = Path(folder(acme__models=HEAD))
    one = digest_of(files([str(site)]))
    moved = tmp_path / "elsewhere"
    site.rename(moved)
    assert digest_of(files([str(moved)])) == one


def test_site_rows_replace_shipped_ones(tmp_path: Path) -> None:
    path = tmp_path / "vendors"
    (path / "compat_matrix" / "acme").mkdir(parents=True)
    named = rule(f'id: floor, relation: requires, needs: {{driver: ">=1.0"}}, {SOURCED}')
    (path / "compat_matrix" / "acme" / "tables.yaml").write_text(HEAD + GOOD + named)
    over = "vendor: acme\n" + HEAD.split("models:")[0] + named.replace(">=1.0", ">=2.0")
    site = tmp_path / "site"
    site.mkdir()
    (site / "ours.yaml").write_text(over)
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    (shipped,) = load([], [str(path)], env=env).tables["acme"].rules
    (ours,) = load([str(site)], [str(path)], env=env).tables["acme"].rules
    assert str(shipped.needs.components["driver"]) == ">=1.0"
    assert str(ours.needs.components["driver"]) == ">=2.0"
    assert ours.at.startswith(f"{site}/ours.yaml:")


def test_a_site_file_without_vendor_and_a_missing_site(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text("rules: []\n")
    assert [p.slug for p in check([str(tmp_path)]) if p.path.endswith("ours.yaml")] == ["no-vendor"]
    assert files(["/nonexistent/matrix.d"]) == files()


def test_contradictions_circles_and_dead_rules(folder: Callable[..., str]) -> None:
    text = f"""rules:
  - {{relation: requires, when: {{model: M1}}, needs: {{driver: ">=2.0"}}, {SOURCED}}}
  - {{relation: requires, when: {{architecture: one}}, needs: {{driver: "<2.0"}}, {SOURCED}}}
  - {{relation: requires, needs: {{driver: ">=2.0,<1.5"}}, {SOURCED}}}
  - {{relation: equals, components: [driver, firmware], {SOURCED}}}
  - {{relation: equals, components: [firmware, driver], {SOURCED}}}
  - {{relation: requires, when: {{driver: "==7.0"}}, needs: {{firmware: "1.0"}}, {SOURCED}}}
  - {{relation: forbids, when: {{driver: ">=9"}}, {SOURCED}}}
  - {{relation: forbids, when: {{model: M1, driver: ">=1.5"}}, {SOURCED}}}
  - {{relation: requires, when: {{firmware: "1.0"}}, needs: {{driver: "1.0"}}, {SOURCED}}}
  - {{relation: requires, when: {{firmware: "1.0"}}, needs: {{driver: "2.0"}}, {SOURCED}}}
"""
    site = folder(acme__models=HEAD + GOOD, acme__rules=text)
    found = [(p.line, p.severity, p.slug) for p in check([site]) if "/site/" in p.path]
    assert sorted(found) == [
        (3, "error", "contradiction"),
        (4, "error", "empty-range"),
        (6, "error", "equals-cycle"),
        (7, "error", "unknown-version"),
        (8, "warning", "dead-rule"),
        (9, "error", "contradiction"),
        (11, "error", "contradiction"),
    ]


def test_broken_expectations_are_told(tmp_path: Path) -> None:
    case = tmp_path / "cases" / "one"
    case.mkdir(parents=True)
    (case / "request.yaml").write_text("hardware: {vendor: nvidia, model: H100 PCIe}\nos: {id: debian, version: 12}\n")
    (case / "expect.yaml").write_text('kind: Solution\nstack:\n  driver: "1.*"\n')
    found = [p for p in check(expectations=[str(tmp_path)]) if p.slug == "expectation"]
    assert [(p.line, p.severity) for p in found] == [(2, "error")]


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("H100-SXM5-80GB", "H100-SXM5-80GB"), ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
        ("h100 pcie", "H100-PCIE-80GB"),
        ("NVIDIA H100 PCIe", "H100-PCIE-80GB"), ("10de:2330", "H100-SXM5-80GB"), ("10DE:2331", "H100-PCIE-80GB"),
        ("10de:2330/10de:16c1", "H100-SXM5-80GB"), ("Tesla V100-SXM2-32GB", "V100-SXM2-32GB"), ("B200", "B200"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"), ("NVIDIA A100 80GB PCIe", "A100-PCIE-80GB"), ("Tesla T4", "T4"),
        ("NVIDIA GH200 480GB", "GH200-480GB"), ("10de:2342/10de:16eb", "GH200-120GB"), ("NVIDIA L40S", "L40S"),
        ("NVIDIA B300 SXM6 AC", "B300"), ("NVIDIA H200", "H200-SXM5-141GB"), ("NVIDIA H20-3e", "H20-3E-141GB"),
        ("Tesla P100-PCIE-16GB", "P100-PCIE-16GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000-SERVER"),
        ("GeForce RTX 2080", None), ("", None), ("10de:ffff", None), ("H1000", None),
        ("H100 80GB PCI-E", "H100-PCIE-80GB"), ("A100 PCIe 80GB", "A100-PCIE-80GB"),
        ("H100-80GB-HBM3", "H100-SXM5-80GB"), ("80GB HBM3 H100", "H100-SXM5-80GB"),
        ("V100 32GB PCIe", "V100-PCIE-32GB"),
    ],
)  # fmt: skip
def test_names_of_models(matrix: Matrix, name: str, model: str | None) -> None:
    assert matrix.model("nvidia", name) == model


def test_every_name_finds_its_own_row(matrix: Matrix) -> None:
    for vendor, tables in matrix.tables.items():
        for row in tables.models:
            for name in (row.name, *row.aliases, *row.pci):
                assert matrix.model(vendor, name) == row.name, (vendor, name)


def test_an_unknown_vendor_has_no_models(matrix: Matrix) -> None:
    assert matrix.model("nobody", "H100") is None


def test_small_matrices_are_what_they_say() -> None:
    tables = small(GOOD).tables["acme"]
    assert tables.components["firmware"].removable is False
    assert tables.components["driver"].source.url == "https://docs.example.com/book"
    assert tables.components["driver"].at.endswith(":3")


def test_notes_are_told_and_decide_nothing(matrix: Matrix) -> None:
    notes = [note for tables in matrix.tables.values() for note in tables.notes]
    assert len(notes) >= 20
    assert all(note.topic and note.because and note.source.title and note.source.seen for note in notes)
    assert any("10de:1af1" in note.pci for note in notes)
    text = 'notes:\n  - {topic: "t", component: dcgm, pci: ["X"], source: book, level: vendor}\n'
    assert problems_of(text) == ["2: error missing-because"]
    told = text.replace("source:", 'because: "so", source:')
    assert problems_of(told) == ["2: error no-component-row", "2: error bad-pci"]


def test_every_row_says_where_it_is_from(matrix: Matrix) -> None:
    """Title, section and date in each row; no address, at most observed; an address is one of documentation."""
    count = 0
    for tables in matrix.tables.values():
        rows = [
            *tables.models,
            *tables.components.values(),
            *tables.order,
            *tables.rules,
            *tables.records,
            *tables.notes,
        ]
        rows += [release for found in tables.releases.values() for release in found]
        for row in (*rows, *matrix.systems):
            count += 1
            source = row.source
            assert source.title and source.section and source.seen, row.at
            assert source.url or row.level in ("community", "observed"), row.at
            assert "repo" not in source.url.partition("//")[2].partition("/")[0], row.at
    assert count > 900
