"""A database that the release before gates has made, with a rollout under way in it, is taken up by this one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import MetaData, Table, insert, inspect, select, text

from fleet import decision
from fleet.core.plan import sealed
from fleet.inventory.database import Database, revisions
from fleet.inventory.rollouts import Approval
from fleet.inventory.tables import metadata
from tests.upgrade.simfleet import plan
from tests.upgrade.site import Site

NAMES = [f"n{i}" for i in range(6)]
OLD_POLICY = {"wish", "limits", "max_failures", "ignore_canary", "no_return", "drained", "chunk", "delivery"}


def as_before(source: Database, url: str, revision: str) -> None:
    """The rows of `source` in a new database of that revision, without the columns and tables that came later."""
    target = Database(url)
    target.upgrade(revision)
    old = MetaData()
    with target.writing() as new, source.reading() as rows:
        old.reflect(new)
        later = [table for table in metadata().sorted_tables if table.name in old.tables]
        for table in later:
            columns = [c for c in table.columns if c.name in old.tables[table.name].columns]
            found: list[dict[str, Any]] = [dict(row._mapping) for row in rows.execute(select(*columns))]
            if found:
                new.execute(insert(Table(table.name, MetaData(), *[_alone(c) for c in columns])), found)
        if target.dialect == "postgresql":
            for name, of in old.tables.items():
                if "id" in of.columns and inspect(new).get_columns(name)[0].get("default"):
                    new.execute(text(f"SELECT setval(pg_get_serial_sequence('{name}','id'), max(id)) FROM {name}"))
    assert target.version() == revision
    target.upgrade()
    assert target.version() == revisions()[-1]
    target.close()


def _alone(column: Any) -> Any:
    return column._copy(autoincrement=False)


def test_a_rollout_that_the_release_before_began_goes_on(tmp_path: Path, database_url: str) -> None:
    before = Site(tmp_path)
    nodes = before.nodes(*NAMES)
    made = plan(before.fleet, nodes[1:])
    made = sealed(replace(made, policy={k: v for k, v in made.policy.items() if k in OLD_POLICY}))
    decision.start(before.upgrade, "r-1", made, "command", "sha256:m")
    over = plan(before.fleet, nodes[:1])
    decision.start(before.upgrade, "r-0", over, "another command", "sha256:m")
    before.engine.submit("r-0")
    lease = before.store.acquire("r-1", before.engine.owner, 1e9, 0.0, lambda _: True)
    for _ in range(300):
        before.upgrade.tick("r-1", lease, False)
        if before.states()["n2"] == "rebooting":
            break
    assert before.states()["n1"] == "done" and before.states()["n2"] == "rebooting"
    before.store.drop(lease)
    before.store.approve(Approval("r-1", made.id, "start", "yes", "li", "", "2031-05-01T08:00:00Z"))
    before.upgrade.close()
    with before.inventory.database.reading() as connection:
        filled = {t.name for t in metadata().sorted_tables if connection.execute(select(t).limit(1)).first()}
    assert {"plan", "rollout", "wave", "node_task", "step_attempt", "node_owner", "budget_claim", "lease", "counter",
            "controller", "audit_log"} <= filled  # fmt: skip
    as_before(before.inventory.database, database_url, "0002")
    before.inventory.close()

    site = Site(tmp_path, url=database_url)
    try:
        site.fleet.clock = before.fleet.clock
        assert site.store.rollout("r-0").state == "done" and len(site.inventory.audit_log()) > 0
        (yes,) = site.store.approvals(site.store.rollout("r-1"))
        assert (yes.rollout, yes.stage, yes.who) == ("r-1", "start", "li")
        site.engine.submit("r-1")
        assert set(site.states().values()) == {"done"} and site.store.rollout("r-1").state == "done"
        assert all(site.fleet.state(name)["boots"] == 1 for name in NAMES)
        assert all(wave.gate for wave in site.store.waves("r-1"))
        lease = site.store.acquire("r-0", site.engine.owner, 30, site.engine.clock(), lambda _: True)
        decision.roll_back(site.upgrade, "r-0", lease)
        site.engine.submit("r-0")
        assert site.states("r-0") == {"n0": "rolled-back"}
    finally:
        site.close()
