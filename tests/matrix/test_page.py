"""The page of the tables: a grid that agrees with the solver, and one HTML file that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest

from compat_matrix import Matrix, grid, why_not
from compat_matrix.page import page
from fleet.core.model import OsFacts, Policy, Request
from tests.matrix.conftest import Ran, small

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schema"
VOID = {"meta", "br", "link", "input", "img", "hr"}


class Reader(HTMLParser):
    """Tags in their order; fails where one is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {k: v or "" for k, v in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def read(matrix: Matrix) -> Reader:
    return Reader(page(matrix, list(matrix.vendors)))


def test_it_fetches_nothing(read: Reader) -> None:
    assert {tag for tag, _ in read.tags}.isdisjoint({"script", "link", "img", "iframe", "object", "source", "form"})
    assert all("src" not in attrs and "style" not in attrs for _, attrs in read.tags)
    assert all(not name.startswith("on") for _, attrs in read.tags for name in attrs)
    policy = next(a["content"] for t, a in read.tags if t == "meta" and "http-equiv" in a)
    assert policy.startswith("default-src 'none'")
    addresses = [a["href"] for t, a in read.tags if t == "a"]
    assert all(address.startswith(("#", "https://", "http://")) for address in addresses)


def test_it_can_be_used_by_keyboard(read: Reader) -> None:
    tags = [tag for tag, _ in read.tags]
    assert tags.count("summary") == tags.count("details") > 1000
    assert ("html", {"lang": "en"}) in read.tags
    targets = {a["id"] for _, a in read.tags if "id" in a}
    links = {a["href"][1:] for t, a in read.tags if t == "a" and a["href"].startswith("#")}
    assert links <= targets
    assert all("scope" in a for t, a in read.tags if t == "th")
    assert tags.count("caption") == tags.count("table")
    scrolled = [a for _, a in read.tags if a.get("role") == "region"]
    assert scrolled and all(a["tabindex"] == "0" and a["aria-label"] for a in scrolled)


def test_each_cell_opens_its_rule_and_source(read: Reader) -> None:
    text = " ".join(read.text)
    assert "supported up to branch 580" in text and "compat_matrix/nvidia/rules.yaml:" in text and "seen 20" in text


def test_hostile_words_are_shown_and_not_run() -> None:
    row = 'source: {title: "<script>alert(1)</script>", section: "&", seen: "2026-01-01"}, level: observed'
    matrix = small(
        f"components:\n  - {{component: driver, scheme: dotted, choose: always, activation: reboot, {row}}}\n"
        f'releases:\n  - {{component: driver, version: "1.0", channel: stable, {row}}}\n'
        f'rules:\n  - {{relation: requires, needs: {{driver: ">=1.0"}}, because: "<img src=x onerror=y>", {row}}}\n'
    )
    found = Reader(page(matrix, ["acme"]))
    assert {"script", "img"}.isdisjoint({tag for tag, _ in found.tags})
    assert "<img src=x onerror=y>" in "".join(found.text)


@pytest.mark.parametrize("vendor", ["nvidia", "ascend", "metax"])
def test_what_a_model_is_refused_the_solver_refuses_too(matrix: Matrix, vendor: str) -> None:
    """A driver that the grid shows as refused is never allowed, on a system where another one is."""
    systems = {
        "nvidia": OsFacts("ubuntu", "22.04", "", "x86_64"),
        "ascend": OsFacts("ubuntu", "22.04", "", "aarch64"),
        "metax": OsFacts("ubuntu", "22.04", "", "x86_64"),
    }
    policy = Policy(channel="legacy", min_level="community")
    tried = 0
    for line in grid.models(matrix.tables[vendor])[::6]:
        for cell in list(line.cells.values())[::5]:
            for version in sorted(set(cell.versions) - set(cell.allowed))[:1]:
                found = why_not(
                    matrix, Request(vendor, line.name, 1, systems[vendor], policy=policy), "driver", version
                )
                assert found.verdict in ("forbidden", "unknown"), (line.name, version)
                tried += 1
    assert tried >= (0 if vendor == "metax" else 3)


def test_the_command_writes_one_file(fleet: Callable[..., Ran], tmp_path: Path) -> None:
    file = tmp_path / "matrix.html"
    assert fleet("matrix", "show", "--html", str(file)).code == 0
    assert all(f'<section id="{name}"' in file.read_text() for name in ("nvidia", "ascend", "metax", "biren"))
    assert fleet("matrix", "show", "biren", "--html", str(file)).code == 0
    assert '<section id="nvidia"' not in file.read_text()
    assert fleet("matrix", "show", "--html", str(tmp_path / "none" / "x.html")).code == 2
    assert fleet("matrix", "show", "nobody", "--html", str(file)).code == 2


def test_the_page_in_the_terminal(fleet: Callable[..., Ran]) -> None:
    out = fleet("matrix", "show", "nvidia").out
    line = next(line for line in out.splitlines() if line.startswith("V100-SXM2-32GB"))
    assert "580.178.04" in line and "610" not in line
    assert "community 4" in next(line for line in out.splitlines() if line.startswith("Ubuntu 20.04"))
    assert "vendor 580" in next(line for line in out.splitlines() if line.startswith("Ubuntu 22.04"))
    rows = fleet("matrix", "show", "nvidia", "-o", "json").json["rows"]
    assert any(row["model"] == "H100-SXM5-80GB" for row in rows)


def test_its_documents_follow_their_schemas(fleet: Callable[..., Ran]) -> None:
    for args in ((), ("nvidia",), ("ascend", "--releases")):
        body = fleet("matrix", "show", *args, "-o", "json").json
        schema = json.loads((SCHEMAS / f"{body['kind']}.json").read_text(encoding="utf-8"))
        jsonschema.Draft202012Validator(schema).validate(body)
        assert body["rows"]
