"""What is to be told to others: events written in the transaction of what they tell of, and sent later, at least once.

An event is a row of `notification`. `next_at` is when it may be sent next, 0 = never again; `delivered` is when it was
taken, 0 = not yet. So a row waits while `delivered = 0` and `next_at > 0`, and was given up when both are 0. Nothing is
written unless somebody has subscribed: see `subscribe`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, func, insert, select, update

from fleet.core.errors import BadInput
from fleet.core.model import Json, canonical, digest
from fleet.core.nodeset import fold
from fleet.core.task import NodeTask, waits_for_person
from fleet.inventory.database import Database
from fleet.inventory.tables import table
from fleet.inventory.tables.rollouts import NotificationRow

NOTIFICATION = table(NotificationRow)
KINDS = (
    "rollout.started", "rollout.paused", "rollout.resumed", "rollout.done", "rollout.failed", "rollout.aborted",
    "rollout.rolled-back",
    "node.failed", "node.held", "node.waiting", "node.overdue", "gate.verdict", "approval.needed",
)  # fmt: skip
KEPT_S = 30 * 86400.0  # what was taken or given up is forgotten after this
_SUBSCRIBED = "fleet_notify"


@dataclass(frozen=True)
class Event:
    """One event as it is to be sent. `id` is the same at every try, and no other event ever has it."""

    number: int
    id: str
    at: float
    rollout: str
    kind: str
    body: Mapping[str, Json]
    tries: int  # this one included


@dataclass(frozen=True)
class Depth:
    """How full the outbox is: events that wait, the age in seconds of the oldest of them, events given up."""

    waiting: int
    oldest_s: float
    given_up: int


def subscribe(database: Database, kinds: Collection[str]) -> None:
    """Have events of those kinds written by the transactions of `database`. `node` stands for all `node.…`.

    No kind means all of them. BadInput for one that is not known.
    """
    families = {kind.partition(".")[0] for kind in KINDS}
    for kind in kinds:
        if kind not in KINDS and kind not in families:
            raise BadInput(
                f"setting 'notify_events' cannot be {kind[:80]!r}", hint=f"it is some of {', '.join(KINDS)}",
                slug="bad-setting",
            )  # fmt: skip
    wanted = frozenset(k for k in KINDS if not kinds or k in kinds or k.partition(".")[0] in kinds)
    database.write_engine.update_execution_options(**{_SUBSCRIBED: wanted})


def subscribed(connection: Connection, kind: str) -> bool:
    """Whether somebody wants to be told of such events."""
    return kind in connection.get_execution_options().get(_SUBSCRIBED, ())


def enqueue(connection: Connection, rollout: str, kind: str, body: Mapping[str, Json], at: float) -> None:
    """Write one event in this transaction, if somebody wants it. `at` is the moment in seconds since the epoch."""
    if subscribed(connection, kind):
        row = {
            "at": at, "rollout": rollout, "kind": kind, "body": canonical(body), "tries": 0, "next_at": at,
            "delivered": 0.0, "error": "",
        }  # fmt: skip
        connection.execute(insert(NOTIFICATION), [row])


def enqueue_endings(connection: Connection, rollout: str, tasks: Iterable[NodeTask], at: float) -> None:
    """Write what nodes that have just ended badly, or wait for a person, have come to; equal ones are one event."""
    alike: dict[tuple[str, ...], list[NodeTask]] = {}
    for task in tasks:
        if (kind := kind_of(task)) and subscribed(connection, kind):
            said = (task.reason.replace(task.node, "NODE"), task.next_action.replace(task.node, "NODE"))
            alike.setdefault((kind, task.state, task.owner, *said), []).append(task)
    for (kind, state, owner, reason, nxt), equal in alike.items():
        if len(equal) == 1:
            reason, nxt = equal[0].reason, equal[0].next_action
        body: dict[str, Json] = {
            "nodes": fold(task.node for task in equal), "count": len(equal), "state": state, "reason": reason,
            "owner": owner, "nextAction": nxt,
        }  # fmt: skip
        enqueue(connection, rollout, kind, body, at)


def kind_of(task: NodeTask) -> str:
    """The kind of event that the end of a node's part is, or "" when it needs no word."""
    if task.state in ("failed", "rolled-back"):
        return "node.failed"
    if task.state != "held":
        return ""
    return "node.waiting" if waits_for_person(task) else "node.held"


class Outbox:
    """The events of one database, for whoever sends them. `clock` must be the same for all senders."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self.database = database
        self.clock = clock

    def take(self, limit: int, lease_s: float) -> list[Event]:
        """The oldest events that are due, which nobody else gets within `lease_s` seconds."""
        now = self.clock()
        due = (NOTIFICATION.c.delivered == 0, NOTIFICATION.c.next_at > 0, NOTIFICATION.c.next_at <= now)
        with self.database.reading() as connection:  # mostly there are none: then nobody is kept from writing
            if connection.execute(select(NOTIFICATION.c.id).where(*due).limit(1)).first() is None:
                return []
        query = select(NOTIFICATION).where(*due).order_by(NOTIFICATION.c.id).limit(limit)
        with self.database.writing() as connection:
            rows = list(connection.execute(query))
            if rows:
                mine = NOTIFICATION.c.id.in_([row.id for row in rows])
                connection.execute(
                    update(NOTIFICATION).where(mine).values(next_at=now + lease_s, tries=NOTIFICATION.c.tries + 1)
                )
        return [
            Event(
                row.id, digest(canonical([row.id, row.at, row.rollout, row.kind, row.body]))[7:39], row.at,
                row.rollout, row.kind, json.loads(row.body), row.tries + 1,
            )
            for row in rows
        ]  # fmt: skip

    def sent(self, number: int) -> None:
        """The receiver has taken it."""
        self._set(number, delivered=self.clock(), next_at=0.0, error="")

    def later(self, number: int, next_at: float, error: str) -> None:
        """It was not taken; it is due again at `next_at`, 0 = never."""
        self._set(number, next_at=next_at, error=error)

    def depth(self) -> Depth:
        """How full the outbox is."""
        of = NOTIFICATION.c
        waiting = (of.delivered == 0, of.next_at > 0)
        with self.database.reading() as connection:
            number, oldest = connection.execute(select(func.count(), func.min(of.at)).where(*waiting)).one()
            lost = select(func.count()).select_from(NOTIFICATION).where(of.delivered == 0, of.next_at == 0)
            return Depth(
                int(number), max(0.0, self.clock() - oldest) if oldest else 0.0,
                int(connection.execute(lost).scalar_one()),
            )  # fmt: skip

    def forget(self, kept_s: float = KEPT_S) -> int:
        """Remove what was taken or given up long ago; how many rows."""
        old = (NOTIFICATION.c.next_at == 0, NOTIFICATION.c.at < self.clock() - kept_s)
        with self.database.reading() as connection:
            if connection.execute(select(NOTIFICATION.c.id).where(*old).limit(1)).first() is None:
                return 0
        with self.database.writing() as connection:
            return int(connection.execute(delete(NOTIFICATION).where(*old)).rowcount)

    def overdue(self, found: Sequence[tuple[str, Mapping[str, Json]]]) -> int:
        """Write an event for each (rollout, body) of a node past its limit that was not told yet; how many.

        `body` names the node and since when it is in its state: that pair is told once.
        """
        if not found:
            return 0
        at, new = self.clock(), 0
        with self.database.writing() as connection:
            of = NOTIFICATION.c
            rollouts = {rollout for rollout, _ in found}
            query = select(of.rollout, of.body).where(of.kind == "node.overdue", of.rollout.in_(rollouts))
            told = {(row.rollout, b["nodes"], b["since"]) for row in connection.execute(query)
                    if (b := json.loads(row.body))}  # fmt: skip
            for rollout, body in found:
                if (rollout, body["nodes"], body["since"]) not in told:
                    enqueue(connection, rollout, "node.overdue", body, at)
                    new += 1
        return new

    def _set(self, number: int, **values: object) -> None:
        with self.database.writing() as connection:
            connection.execute(update(NOTIFICATION).where(NOTIFICATION.c.id == number).values(**values))
