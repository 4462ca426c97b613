"""A site for a rollout: a simulated fleet, an inventory on SQLite, evidence, and the loop over them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.upgrade.person import Person
from tests.upgrade.site import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)
