"""Plans being carried out: the truth that any engine only executes.

Moments are seconds since the epoch where they are compared with a clock (`since`, leases, heartbeats), ISO 8601 text
where they are only shown. A row that a rollout writes is written under its lease: see `fleet.inventory.rollouts`.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, String, Text
from sqlmodel import Field, SQLModel

from fleet.inventory.tables import json_type


def _rollout_column(**more: Any) -> Any:
    return Field(sa_column=Column(String, ForeignKey("rollout.id", ondelete="CASCADE"), nullable=False, **more))


class PlanRow(SQLModel, table=True):
    """A plan, immutable; `body` is the document of `fleet.core.planfile`."""

    __tablename__ = "plan"
    id: str = Field(primary_key=True)
    body: str = Field(sa_column=Column(Text, nullable=False))
    at: str
    who: str


class RolloutRow(SQLModel, table=True):
    """A plan being carried out. `command` is a digest of what was asked, so that the same command finds it again."""

    __tablename__ = "rollout"
    id: str = Field(primary_key=True)
    plan: str = Field(sa_column=Column(String, ForeignKey("plan.id"), nullable=False, index=True))
    command: str = Field(index=True)
    state: str = Field(index=True)
    request: str
    forgiven: int
    reason: str
    who: str
    at: str
    ended_at: str
    units: list[list[str]] = Field(sa_column=Column(json_type(), nullable=False))


class WaveRow(SQLModel, table=True):
    """One wave of a rollout: when its first node began and its last one ended."""

    __tablename__ = "wave"
    rollout: str = _rollout_column(primary_key=True)
    number: int = Field(primary_key=True)
    size: int
    began: float
    ended: float
    gate: dict[str, Any] = Field(sa_column=Column(json_type(), nullable=False, server_default="{}"))


class NodeTaskRow(SQLModel, table=True):
    """One node of a rollout: what it owes. `prior` is what it was before, to be given back to it."""

    __tablename__ = "node_task"
    __table_args__ = (Index("ix_node_task_node", "node"),)
    rollout: str = _rollout_column(primary_key=True)
    node: str = Field(primary_key=True)
    grp: int
    wave: int
    state: str
    direction: str
    cursor: int
    attempt: int
    tries: int
    open: str
    since: float
    limit_s: int
    reason: str
    owner: str
    next_action: str
    boot_id: str  # as last seen; a reboot is proven by another one
    prior: dict[str, Any] = Field(sa_column=Column(json_type(), nullable=False))
    given: list[str] = Field(sa_column=Column(json_type(), nullable=False))  # digests of states this rollout gave it
    revisits: int = Field(sa_column=Column(Integer, nullable=False, server_default="0"))


class NodeOwnerRow(SQLModel, table=True):
    """The one unfinished rollout that a node belongs to."""

    __tablename__ = "node_owner"
    node: str = Field(primary_key=True)
    rollout: str = _rollout_column(index=True)


class StepAttemptRow(SQLModel, table=True):
    """One attempt at one step: written as `intent` before anything is done, then given its result."""

    __tablename__ = "step_attempt"
    __table_args__ = (Index("ix_step_attempt_rollout_node", "rollout", "node"),)
    id: int | None = Field(default=None, primary_key=True)
    rollout: str = _rollout_column()
    node: str
    direction: str
    cursor: int
    attempt: int
    phase: str
    state: str  # intent, already, done, failed, ambiguous, waiting, hands, stale
    fence: int = Field(sa_column=Column(BigInteger, nullable=False))
    began: float
    ended: float
    detail: str
    evidence: str  # digest of the output


class BudgetClaimRow(SQLModel, table=True):
    """A node that a rollout has taken out of service."""

    __tablename__ = "budget_claim"
    node: str = Field(primary_key=True)
    rollout: str = _rollout_column(primary_key=True)
    at: float


class LeaseRow(SQLModel, table=True):
    """Who drives a rollout, until when, with which fence number. A later holder has a higher number."""

    __tablename__ = "lease"
    name: str = Field(primary_key=True)
    owner: str
    fence: int = Field(sa_column=Column(BigInteger, nullable=False))
    expires: float


class CounterRow(SQLModel, table=True):
    """Numbers that only rise, such as the last fence given out."""

    __tablename__ = "counter"
    name: str = Field(primary_key=True)
    value: int = Field(sa_column=Column(BigInteger, nullable=False))


class ControllerRow(SQLModel, table=True):
    """A process that carries out rollouts, and when it was last alive."""

    __tablename__ = "controller"
    id: str = Field(primary_key=True)
    started: float
    heartbeat: float
    version: str


class ApprovalRow(SQLModel, table=True):
    """A person's yes or no to one stage of exactly one plan, as one rollout carries it out."""

    __tablename__ = "approval"
    id: int | None = Field(default=None, primary_key=True)
    plan: str = Field(sa_column=Column(String, ForeignKey("plan.id"), nullable=False, index=True))
    verdict: str
    who: str
    why: str
    at: str
    stage: str = Field(sa_column=Column(String, nullable=False, server_default="start"))  # see core.move.STAGES
    rollout: str = Field(sa_column=Column(String, nullable=False, server_default="", index=True))


class NotificationRow(SQLModel, table=True):
    """Something that a webhook is still owed, or was told: written together with what it tells of."""

    __tablename__ = "notification"
    __table_args__ = (Index("ix_notification_delivered_next_at", "delivered", "next_at"),)
    id: int | None = Field(default=None, primary_key=True)
    at: float
    rollout: str
    kind: str
    body: str = Field(sa_column=Column(Text, nullable=False))
    tries: int
    next_at: float
    delivered: float  # 0 = not yet
    error: str
