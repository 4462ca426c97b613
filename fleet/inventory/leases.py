"""Leases and heartbeats: who drives what, and which controllers are alive.

A lease is on a name: a rollout's id, or a controller's seat. Each taking of it gets a new fence number, by which every
later write, here and on the nodes, tells its holder from one that was stopped and wakes up again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sqlalchemy import delete, extract, func, insert, select, update

from fleet.core.errors import Locked
from fleet.inventory.database import Database, upsert
from fleet.inventory.rollout_rows import Lease
from fleet.inventory.tables import rollouts as tables
from fleet.inventory.tables import table

LEASE = table(tables.LeaseRow)
COUNTER = table(tables.CounterRow)
CONTROLLER = table(tables.ControllerRow)
FORGOTTEN_S = 30 * 86400.0  # every command that drives a rollout is a controller: their rows must not pile up


class Leases:
    """The leases of one database."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def clock(self) -> float:
        """Seconds since the epoch by the one clock that all controllers of this database share: the server's."""
        if self.database.dialect == "sqlite":
            return time.time()
        with self.database.reading() as connection:
            return float(connection.execute(select(extract("epoch", func.clock_timestamp()))).scalar_one())

    def acquire(self, name: str, owner: str, ttl_s: float, now: float, gone: Callable[[str], bool]) -> Lease:
        """The lease on `name` for `ttl_s` seconds. Locked when another owner holds it and `gone(owner)` is false.

        Each taking gets a new fence number, higher than any before, and not below the clock's seconds: so a database
        made anew still outranks what an older one wrote on the nodes.
        """
        with self.database.writing() as connection:
            held = connection.execute(select(LEASE).where(LEASE.c.name == name)).first()
            if held is not None and held.owner not in ("", owner) and held.expires > now and not gone(held.owner):
                raise Locked(
                    f"rollout {name} is being carried out by {held.owner}",
                    hint=f"fleet rollout show {name}",
                    slug="rollout-running",
                )
            last = connection.execute(select(COUNTER.c.value).where(COUNTER.c.name == "fence")).scalar() or 0
            fence = max(int(last) + 1, int(now))
            upsert(connection, COUNTER, [{"name": "fence", "value": fence}], ("name",))
            lease = Lease(name, owner, fence, now + ttl_s)
            row = {"name": name, "owner": owner, "fence": fence, "expires": lease.expires}
            upsert(connection, LEASE, [row], ("name",))
        return lease

    def renew(self, lease: Lease, ttl_s: float, now: float) -> bool:
        """Prolong a lease; False when another holder has taken over."""
        with self.database.writing() as connection:
            done = connection.execute(
                update(LEASE)
                .where(LEASE.c.name == lease.name, LEASE.c.fence == lease.fence)
                .values(expires=now + ttl_s)
            )
        return bool(done.rowcount)

    def holds(self, lease: Lease) -> bool:
        """Whether nobody has taken the lease since."""
        with self.database.reading() as connection:
            return connection.execute(select(LEASE.c.fence).where(LEASE.c.name == lease.name)).scalar() == lease.fence

    def drop(self, lease: Lease) -> None:
        """Give a lease back. The row stays, so that its fence number is never given twice."""
        with self.database.writing() as connection:
            connection.execute(
                update(LEASE)
                .where(LEASE.c.name == lease.name, LEASE.c.fence == lease.fence)
                .values(owner="", expires=0.0)
            )

    def leases(self) -> dict[str, Lease]:
        """Every lease by its name; an empty owner means that nobody holds it."""
        with self.database.reading() as connection:
            return {row.name: Lease(row.name, row.owner, row.fence, row.expires) for row in connection.execute(
                select(LEASE))}  # fmt: skip

    def heartbeat(self, controller: str, version: str, now: float) -> None:
        """Note that a controller is alive. Those that have said nothing for `FORGOTTEN_S` are forgotten."""
        alive = update(CONTROLLER).where(CONTROLLER.c.id == controller).values(heartbeat=now, version=version)
        with self.database.writing() as connection:
            if not connection.execute(alive).rowcount:
                row = {"id": controller, "started": now, "heartbeat": now, "version": version}
                connection.execute(insert(CONTROLLER), [row])
                connection.execute(delete(CONTROLLER).where(CONTROLLER.c.heartbeat < now - FORGOTTEN_S))

    def heartbeats(self) -> dict[str, tuple[float, str]]:
        """The processes that drive rollouts, or did of late: the last heartbeat and the version of each."""
        with self.database.reading() as connection:
            return {row.id: (row.heartbeat, row.version) for row in connection.execute(select(CONTROLLER))}
