"""Rollouts as they are read: by id, by node, by plan; their tasks, waves, attempts, approvals and claims."""

from __future__ import annotations

import json

from sqlalchemy import select

from fleet.core import planfile
from fleet.core.errors import NotFound
from fleet.core.model import Plan
from fleet.core.move import FINISHED
from fleet.inventory import rollout_rows
from fleet.inventory.database import Database
from fleet.inventory.leases import Leases
from fleet.inventory.rollout_rows import Approval, Attempt, Rollout, Stored, Wave
from fleet.inventory.tables import rollouts as tables
from fleet.inventory.tables import table
from fleet.inventory.task_rows import ATTEMPT, TASK, TASK_ROWS, TaskMemory

PLAN = table(tables.PlanRow)
ROLLOUT = table(tables.RolloutRow)
WAVE = table(tables.WaveRow)
CLAIM = table(tables.BudgetClaimRow)
APPROVAL = table(tables.ApprovalRow)


class StoredRollouts(Leases):
    """The rollouts of one database, for readers."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._memory = TaskMemory()

    def rollout(self, rollout: str) -> Rollout:
        """One rollout by its id, or by a beginning of it that is not ambiguous."""
        with self.database.reading() as connection:
            begins = ROLLOUT.c.id.startswith(rollout, autoescape=True)
            query = select(ROLLOUT).where(begins).order_by(ROLLOUT.c.id != rollout).limit(2)
            found = list(connection.execute(query))
        exact = [row for row in found if row.id == rollout]
        if len(exact or found) != 1 or not rollout:
            several = len(found) > 1 and rollout != ""
            what = f"several rollouts begin with {rollout!r}" if several else f"no rollout is called {rollout!r}"
            raise NotFound(what, hint="fleet rollout list --all", slug="unknown-rollout")
        return rollout_rows.rollout((exact or found)[0])

    def rollouts(self, *, unfinished: bool = False) -> list[Rollout]:
        """All rollouts, newest first."""
        query = select(ROLLOUT).order_by(ROLLOUT.c.at.desc(), ROLLOUT.c.id)
        if unfinished:
            query = query.where(ROLLOUT.c.state.not_in(FINISHED))
        with self.database.reading() as connection:
            return [rollout_rows.rollout(row) for row in connection.execute(query)]

    def of_node(self, node: str) -> tuple[Rollout, Stored] | None:
        """The unfinished rollout that has this node, else the one that moved it last; and the node's task there."""
        query = (
            select(TASK.c.rollout)
            .join(ROLLOUT, ROLLOUT.c.id == TASK.c.rollout)
            .where(TASK.c.node == node)
            .order_by(ROLLOUT.c.state.in_(FINISHED), TASK.c.since.desc(), ROLLOUT.c.at.desc(), ROLLOUT.c.id)
            .limit(1)
        )
        with self.database.reading() as connection:
            found = connection.execute(query).scalar()
            if found is None:
                return None
            row = connection.execute(select(ROLLOUT).where(ROLLOUT.c.id == found)).one()
            task = connection.execute(TASK_ROWS.where(TASK.c.rollout == found, TASK.c.node == node)).one()
        return rollout_rows.rollout(row), rollout_rows.stored(task)

    def unfinished(self, command: str = "", plan: str = "") -> Rollout | None:
        """The unfinished rollout that this command, or this plan, began."""
        for rollout in self.rollouts(unfinished=True):
            if (command and rollout.command == command) or (plan and rollout.plan == plan):
                return rollout
        return None

    def plan(self, plan: str) -> Plan:
        """A stored plan by its id."""
        with self.database.reading() as connection:
            body = connection.execute(select(PLAN.c.body).where(PLAN.c.id == plan)).scalar()
        if body is None:
            raise NotFound(f"no plan is called {plan!r}", slug="unknown-plan")
        return planfile.load(json.loads(body), where=f"plan {plan}")

    def tasks(self, rollout: str) -> dict[str, Stored]:
        """The nodes of a rollout, in wave order."""
        query = TASK_ROWS.where(TASK.c.rollout == rollout).order_by(TASK.c.wave, TASK.c.node)
        with self.database.reading() as connection:
            return self._memory.read(rollout, connection.execute(query))

    def waves(self, rollout: str) -> list[Wave]:
        """The waves of a rollout, in order."""
        with self.database.reading() as connection:
            query = select(WAVE).where(WAVE.c.rollout == rollout).order_by(WAVE.c.number)
            return [rollout_rows.wave(row) for row in connection.execute(query)]

    def approvals(self, rollout: Rollout) -> list[Approval]:
        """What people said to the plan of that rollout, oldest first; not to another rollout of the same plan."""
        of = APPROVAL.c
        query = select(of.rollout, of.plan, of.stage, of.verdict, of.who, of.why, of.at).order_by(of.id)
        with self.database.reading() as connection:
            said = connection.execute(query.where(of.rollout == rollout.id, of.plan == rollout.plan))
            return [Approval(*row) for row in said]

    def attempts(self, rollout: str, node: str = "") -> list[Attempt]:
        """The attempts of a rollout, or of one of its nodes, in the order in which they began."""
        query = select(ATTEMPT).where(ATTEMPT.c.rollout == rollout).order_by(ATTEMPT.c.id)
        if node:
            query = query.where(ATTEMPT.c.node == node)
        with self.database.reading() as connection:
            return [Attempt(**row._mapping) for row in connection.execute(query)]

    def claims(self) -> dict[str, str]:
        """node -> the rollout that has taken it out."""
        with self.database.reading() as connection:
            return {row.node: row.rollout for row in connection.execute(select(CLAIM))}
