"""The rows of nodes in a rollout, read and written many at a time: what every tick does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Text, bindparam, cast, select, update

from fleet.core.task import NodeTask
from fleet.inventory.database import chunks
from fleet.inventory.rollout_rows import Stored, stored, values
from fleet.inventory.tables import rollouts as tables
from fleet.inventory.tables import table

TASK = table(tables.NodeTaskRow)
ATTEMPT = table(tables.StepAttemptRow)
_JSON = ("prior", "given")  # read as text: compared as they are, and parsed only where they changed
TASK_ROWS = select(
    TASK.c.node,
    *(c for c in TASK.c if c.name not in ("node", *_JSON)),
    *(cast(TASK.c[n], Text).label(n) for n in _JSON),
)


class TaskMemory:
    """The tasks of the rollouts that were read last, so that a row that has not changed is not made anew.

    A tick reads every row of its rollout, and few of them have changed since the one before.
    """

    KEPT = 16  # rollouts

    def __init__(self) -> None:
        self._known: dict[str, dict[str, tuple[tuple[Any, ...], Stored]]] = {}

    def read(self, rollout: str, rows: Iterable[Any]) -> dict[str, Stored]:
        """The tasks of those rows, in their order; `prior` and `given` are JSON text, `node` is the first column."""
        known = self._known.pop(rollout, {})
        fresh: dict[str, tuple[tuple[Any, ...], Stored]] = {}
        for row in rows:
            raw = tuple(row)
            old = known.get(raw[0])
            fresh[raw[0]] = old if old is not None and old[0] == raw else (raw, stored(row))
        while len(self._known) >= self.KEPT:
            self._known.pop(next(iter(self._known)), None)
        self._known[rollout] = fresh
        return {node: pair[1] for node, pair in fresh.items()}


def write(connection: Connection, rollout: str, rows: Iterable[tuple[NodeTask, Mapping[str, Any]]]) -> None:
    """Write tasks with more columns each; rows of the same columns are one statement."""
    alike: dict[frozenset[str], list[dict[str, Any]]] = {}
    for task, more in rows:
        alike.setdefault(frozenset(more), []).append({"of": task.node, **values(task), **more})
    statement = update(TASK).where(TASK.c.rollout == rollout, TASK.c.node == bindparam("of"))
    for some in alike.values():
        for chunk in chunks(some):
            connection.execute(statement, list(chunk))


def last_attempts(connection: Connection, rollout: str, tasks: Iterable[NodeTask]) -> dict[str, tuple[int, str]]:
    """node -> (id, state) of the last attempt at the step that it owes."""
    alike: dict[tuple[str, int, int], list[str]] = {}
    for task in tasks:
        alike.setdefault((task.direction, task.cursor, task.attempt), []).append(task.node)
    found: dict[str, tuple[int, str]] = {}
    for (direction, cursor, attempt), names in alike.items():
        for some in chunks(names):
            query = select(ATTEMPT.c.node, ATTEMPT.c.id, ATTEMPT.c.state).where(
                ATTEMPT.c.rollout == rollout,
                ATTEMPT.c.node.in_(some),
                ATTEMPT.c.direction == direction,
                ATTEMPT.c.cursor == cursor,
                ATTEMPT.c.attempt == attempt,
            )
            for row in connection.execute(query.order_by(ATTEMPT.c.id)):
                found[row.node] = (int(row.id), row.state)
    return found
