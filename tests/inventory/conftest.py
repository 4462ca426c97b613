"""The inventory on both back ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.inventory import Inventory, open_inventory
from tests.postgresql import postgresql_server, postgresql_url

__all__ = ["postgresql_server", "postgresql_url"]

BOTH = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)]


@pytest.fixture(params=BOTH)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database on each back end."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/inventory.db"
    found: str = request.getfixturevalue("postgresql_url")
    return found


@pytest.fixture
def inventory(url: str) -> Iterator[Inventory]:
    """A fresh inventory on each back end."""
    opened = open_inventory(url)
    yield opened
    opened.close()
