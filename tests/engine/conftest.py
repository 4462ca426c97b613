"""Engines and the store on both back ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.contract import sqlite_url
from tests.engine.hosted import Hosted, Making
from tests.postgresql import postgresql_server, postgresql_url

__all__ = ["postgresql_server", "postgresql_url"]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database on each back end."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'engine.db'}"
    found: str = request.getfixturevalue("postgresql_url")
    return found


@pytest.fixture
def making(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Making]:
    """(engine, database) -> a site whose controllers are ended with the test."""
    made: list[Hosted] = []

    def make(engine: str, database: str) -> Hosted:
        url = sqlite_url(tmp_path) if database == "sqlite" else request.getfixturevalue("postgresql_url")
        made.append(Hosted(tmp_path, url, engine))
        return made[-1]

    yield make
    for each in made:
        each.close()
