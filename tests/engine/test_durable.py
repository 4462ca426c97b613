"""The engine on DBOS against the suite, and what only a second store of what is owed can get wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fleet.engine import Engine, Tick, durable
from fleet.engine.durable import DurableEngine, engine_url
from fleet.inventory.rollouts import Rollouts
from tests.engine.contract import EngineContract


@pytest.fixture(autouse=True)
def one_at_a_time() -> Iterator[None]:
    """DBOS is one in a process; the next test has another database."""
    yield
    durable.shut()


class TestDurable(EngineContract):
    @staticmethod
    def make(store: Rollouts, tick: Tick, owner: str) -> Engine:
        url = engine_url(store.database.url.render_as_string(hide_password=False))
        return DurableEngine(store, tick, url=url, executor="here:test", owner=owner, ttl_s=5.0)
