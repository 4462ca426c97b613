"""The engine on DBOS against the suite, and what only a second store of what is owed can get wrong."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dbos import DBOS

from fleet.core.errors import FleetError
from fleet.engine import Tick, durable
from fleet.engine.durable import DurableEngine, engine_url
from fleet.inventory.rollouts import Rollouts
from tests.engine.contract import EngineContract, Stoppable, Work, until


@pytest.fixture(autouse=True)
def one_at_a_time() -> Iterator[None]:
    """DBOS is one in a process; the next test has another database."""
    yield
    durable.shut()


class TestDurable(EngineContract):
    @staticmethod
    def make(store: Rollouts, tick: Tick, owner: str) -> Stoppable:
        url = engine_url(store.database.url.render_as_string(hide_password=False))
        return DurableEngine(store, tick, url=url, executor="here:test", owner=owner, ttl_s=5.0)

    def test_it_keeps_what_is_owed_and_forgets_what_has_ended(self, store: Rollouts) -> None:
        self.rollout(store, "a")
        work = Work(store, steps=2)
        engine = self.make(store, work.tick, "one")
        assert isinstance(engine, DurableEngine)
        engine.submit("a")
        assert [w.workflow_id.partition("/")[0] for w in DBOS.list_workflows()] == ["a"]
        assert engine.tidy() == [] and len(DBOS.list_workflows()) == 1
        assert engine.tidy(-60.0) == [] and DBOS.list_workflows() == []

    def test_what_dbos_took_up_by_itself_is_joined(self, store: Rollouts) -> None:
        """A workflow that is under way here is not begun again: a second asking waits for its end."""
        name = self.rollout(store, "a")
        work = Work(store, steps=2)
        work.go_on.clear()
        engine = self.make(store, work.tick, "one")
        ended: list[Exception | None] = []
        engine.begin(name, ended.append)
        assert work.reached.wait(20)
        engine.begin(name, ended.append)
        time.sleep(0.5)
        assert ended == []
        work.go_on.set()
        until(lambda: ended == [None, None])
        assert len({fence for _, fence in work.done}) == 1 and len(DBOS.list_workflows()) == 1

    def test_what_is_shut_in_the_midst_stays_owed_and_is_given_back(self, store: Rollouts) -> None:
        name = self.rollout(store, "a")
        work = Work(store, steps=1000, pause_s=600.0)
        self.make(store, work.tick, "one").begin(name, lambda _: None)
        until(lambda: len(work.done) == 1)
        durable.shut()
        assert store.leases()[name].owner == ""
        again = Work(store, steps=1)
        self.make(store, again.tick, "two")  # the same executor: what is owed goes on by itself
        until(lambda: store.rollout(name).state == "done")

    def test_another_database_needs_another_process(self, store: Rollouts, tmp_path: Path) -> None:
        work = Work(store)
        self.make(store, work.tick, "one")
        with pytest.raises(FleetError) as caught:
            DurableEngine(store, work.tick, url=f"sqlite:///{tmp_path}/other.db", executor="here:test")
        assert caught.value.slug == "engine-taken"

    def test_a_database_that_cannot_be_used_is_named_without_its_secret(self, store: Rollouts, tmp_path: Path) -> None:
        (tmp_path / "bad.db").write_bytes(b"no database at all" * 100)
        work = Work(store)
        with pytest.raises(FleetError) as caught:
            DurableEngine(store, work.tick, url=f"sqlite:///{tmp_path}/bad.db", executor="here:test")
        assert caught.value.slug == "engine-database" and "remove it" in caught.value.hint
        self.rollout(store, "a")
        self.make(store, Work(store, steps=1).tick, "two").submit("a")
        assert store.rollout("a").state == "done"


def test_the_engines_rows_lie_beside_the_inventory() -> None:
    assert engine_url("sqlite:////var/lib/fleet/inventory.db") == "sqlite:////var/lib/fleet/inventory-engine.db"
    for scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        assert engine_url(f"{scheme}://me:pw@db/fleet") == "postgresql+psycopg://me:pw@db/fleet"
