"""Every error has its text, in the program and on both pages."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from fleet.cli.errors_text import errors, page

ROOT = Path(__file__).parents[2]


def slugs_in_code() -> dict[str, str]:
    """slug -> a place that raises it: `slug="…"` of a call, `slug = "…"` of an error class, `FLEET: …` of a role."""
    found: dict[str, str] = {}
    for room in ("fleet", "drivers", "compat_matrix", "pxe"):
        for file in sorted((ROOT / room).rglob("*.py")):
            if "emulate" in file.parts:
                continue  # they run on lab nodes and speak as the vendors' tools do
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                values: list[ast.expr] = []
                if isinstance(node, ast.Call):
                    values = [word.value for word in node.keywords if word.arg == "slug"]
                elif isinstance(node, ast.Assign) and any(
                    isinstance(t, ast.Name) and t.id == "slug" for t in node.targets
                ):
                    values = [node.value]
                for value in values:
                    for part in (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,):
                        if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value:
                            found.setdefault(part.value, f"{file.relative_to(ROOT)}:{part.lineno}")
    for file in sorted(path for path in (ROOT / "playbooks").rglob("*") if path.suffix in (".yml", ".sh", ".j2")):
        for slug in re.findall(r"FLEET: ([a-z0-9-]+):", file.read_text(encoding="utf-8")):
            found.setdefault(slug, str(file.relative_to(ROOT)))
    return found


def test_every_slug_in_the_code_has_a_text() -> None:
    missing = {slug: where for slug, where in slugs_in_code().items() if slug not in errors()}
    assert missing == {}, "add them to fleet/cli/errors.toml, then: python -m fleet.cli.errors_text docs"


def test_the_code_is_really_read() -> None:
    assert {"bad-selector", "database-newer", "usage", "disk-full"} <= set(slugs_in_code())


@pytest.mark.parametrize(("name", "chinese"), [("errors.md", False), ("errors.zh-CN.md", True)])
def test_the_pages_are_written_from_the_table(name: str, chinese: bool) -> None:
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page(chinese)


def test_both_languages_are_full() -> None:
    for slug, text in errors().items():
        assert all(text), slug
        assert re.search(r"[\u4e00-\u9fff]", text.meaning_zh) and re.search(r"[\u4e00-\u9fff]", text.remedy_zh), slug
        assert not re.search(r"[\u4e00-\u9fff]", text.meaning + text.remedy), slug
