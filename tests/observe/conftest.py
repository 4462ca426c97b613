"""The inventory on both back ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.inventory import Inventory, open_inventory
from tests.postgresql import postgresql_server, postgresql_url

__all__ = ["postgresql_server", "postgresql_url"]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def inventory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Inventory]:
    """A fresh inventory on each back end."""
    sqlite = request.param == "sqlite"
    opened = open_inventory(f"sqlite:///{tmp_path}/x.db" if sqlite else request.getfixturevalue("postgresql_url"))
    yield opened
    opened.close()
