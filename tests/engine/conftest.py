"""Engines and the store on both back ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgresql import postgresql_server, postgresql_url

__all__ = ["postgresql_server", "postgresql_url"]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database on each back end."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'engine.db'}"
    found: str = request.getfixturevalue("postgresql_url")
    return found
