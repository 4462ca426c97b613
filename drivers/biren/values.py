"""Single values as brsmi prints them."""

from __future__ import annotations

import re

ABSENT = frozenset({"", "-", "N/A", "[N/A]", "NA", "[Not Supported]", "None"})


def value(raw: str) -> str | None:
    """The text of a cell; None when it says "not available"."""
    text = raw.strip()
    return None if text in ABSENT else text


def number(raw: str) -> int | float | None:
    """`12` -> 12, `38.5` -> 38.5; None for anything else."""
    text = raw.strip()
    if not re.fullmatch(r"-?\d{1,18}(?:\.\d{1,18})?", text, re.A):
        return None
    return float(text) if "." in text else int(text)
