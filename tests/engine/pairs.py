"""The pairs of engine and database: which cases every run has, and which only the conformance run."""

from __future__ import annotations

from typing import Any

import pytest

PAIRS = [(engine, database) for database in ("sqlite", "postgresql") for engine in ("leases", "dbos")]


def case(*values: str, every_run: bool = False) -> Any:
    """One case; it is part of the conformance run alone, unless told otherwise."""
    marks = [pytest.mark.postgresql] if "postgresql" in values else []
    return pytest.param(*values, marks=marks if every_run else [*marks, pytest.mark.conformance])


def pairs(*every_run: tuple[str, str]) -> list[Any]:
    """All four (engine, database); these in every run."""
    return [case(*each, every_run=each in every_run) for each in PAIRS]
