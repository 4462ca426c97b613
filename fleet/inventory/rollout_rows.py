"""The rows of rollouts as core types, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from fleet.core.errors import Locked
from fleet.core.gate import Judgement, load
from fleet.core.model import Json
from fleet.core.move import FINISHED, Request, RolloutState
from fleet.core.task import Direction, NodeTask, State

_STATES = frozenset(get_args(State))


class Fenced(Locked):
    """Another process has taken over the rollout; nothing was written."""

    slug = "fenced"


@dataclass(frozen=True)
class Lease:
    """The right to drive one rollout. `fence` is higher than that of every earlier holder."""

    name: str
    owner: str
    fence: int
    expires: float = 0.0


@dataclass(frozen=True)
class Rollout:
    """A rollout without its nodes. `at` and `ended_at` are ISO 8601."""

    id: str
    plan: str
    command: str
    state: RolloutState
    request: Request
    forgiven: int
    reason: str
    who: str
    at: str
    ended_at: str
    units: tuple[tuple[str, ...], ...] = ()

    @property
    def finished(self) -> bool:
        """Whether nothing can happen any more."""
        return self.state in FINISHED


@dataclass(frozen=True)
class Wave:
    """One wave of a rollout. Times are seconds since the epoch, 0 = not yet; `gate` is by hardware cell."""

    number: int
    size: int
    began: float
    ended: float
    gate: Mapping[str, Judgement] = field(default_factory=dict)


@dataclass(frozen=True)
class Approval:
    """A person's yes or no to one stage of one rollout of exactly one plan. `at` is ISO 8601."""

    rollout: str
    plan: str
    stage: str
    verdict: str
    who: str
    why: str
    at: str

    @property
    def refusal(self) -> str:
        """Who said no and why, "" for a yes."""
        return "" if self.verdict == "yes" else f"{self.who} said no: {self.why}"


@dataclass(frozen=True)
class Attempt:
    """One attempt at one step of one node; `ended` is 0 while only the intent is known."""

    id: int
    rollout: str
    node: str
    direction: Direction
    cursor: int
    attempt: int
    phase: str
    state: str
    fence: int
    began: float
    ended: float
    detail: str = ""
    evidence: str = ""


@dataclass(frozen=True)
class Stored:
    """A node's task with what only the acting side needs: what the node was before, its boot id, its own states."""

    task: NodeTask
    boot_id: str = ""
    prior: Mapping[str, Json] = field(default_factory=dict)
    given: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Result:
    """The end of one attempt: the node's new task and what was learned on the way. None = leave as it was."""

    attempt: int
    state: str
    task: NodeTask
    detail: str = ""
    evidence: str = ""
    boot_id: str | None = None
    prior: Mapping[str, Json] | None = None
    given: str | None = None


def rollout(row: Any) -> Rollout:
    """A rollout from its row."""
    units = tuple(tuple(unit) for unit in row.units)
    return Rollout(
        row.id, row.plan, row.command, row.state, row.request, row.forgiven, row.reason, row.who, row.at,
        row.ended_at, units,
    )  # fmt: skip


def wave(row: Any) -> Wave:
    """One wave from its row."""
    return Wave(row.number, row.size, row.began, row.ended, load(row.gate))


def stored(row: Any) -> Stored:
    """A node's task from its row; a state that this release does not know is `held`."""
    task = NodeTask(
        node=row.node, group=row.grp, wave=row.wave, state=row.state if row.state in _STATES else "held",
        direction=row.direction, cursor=row.cursor, attempt=row.attempt, tries=row.tries, open=row.open,
        since=row.since, limit_s=row.limit_s, reason=row.reason, owner=row.owner, next_action=row.next_action,
        revisits=row.revisits,
    )  # fmt: skip
    return Stored(task, row.boot_id, json.loads(row.prior), frozenset(json.loads(row.given)))


def values(task: NodeTask) -> dict[str, Any]:
    """The columns that a task changes."""
    return {
        "grp": task.group, "wave": task.wave, "state": task.state, "direction": task.direction, "cursor": task.cursor,
        "attempt": task.attempt, "tries": task.tries, "open": task.open, "since": task.since, "limit_s": task.limit_s,
        "reason": task.reason, "owner": task.owner, "next_action": task.next_action,
        "revisits": task.revisits,
    }  # fmt: skip


def task_row(
    rollout: str, task: NodeTask, prior: Mapping[str, Json], boot_id: str, given: Iterable[str]
) -> dict[str, Any]:
    """The whole row of a node of a rollout."""
    more = {"boot_id": boot_id, "prior": dict(prior), "given": sorted(given)}
    return {"rollout": rollout, "node": task.node, **values(task), **more}
