"""Every error by its slug, from errors.toml: the one source of `fleet help` and of docs/errors*.md.

The pages are written by `python -m fleet.cli.errors_text docs`; a test holds them, and the slugs in the code, against
the table.
"""

from __future__ import annotations

import sys
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).parent / "errors.toml"


class Text(NamedTuple):
    """English and Chinese: meaning and remedy."""

    meaning: str
    remedy: str
    meaning_zh: str
    remedy_zh: str


@lru_cache
def errors() -> dict[str, Text]:
    """slug -> its text, in alphabetical order."""
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {slug: Text(**row) for slug, row in sorted(rows.items())}


def page(chinese: bool = False) -> str:
    """The text of docs/errors.md, or of docs/errors.zh-CN.md."""
    out = ["# 错误" if chinese else "# Errors"]
    out.append(
        "每条错误末尾的方括号中是它的名称。`fleet help 名称` 显示同样的内容。"
        if chinese
        else "The word in brackets at the end of an error is its name. `fleet help NAME` prints the same."
    )
    for slug, text in errors().items():
        out += [f"## {slug}", *(text[2:] if chinese else text[:2])]
    return "\n\n".join(out) + "\n"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    (folder / "errors.md").write_text(page(), encoding="utf-8")
    (folder / "errors.zh-CN.md").write_text(page(chinese=True), encoding="utf-8")
