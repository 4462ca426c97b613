"""A rollout as it stands, and what may be done next with it: the words between deciding and acting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from fleet.core.gate import Judgement
from fleet.core.model import Plan, Step
from fleet.core.task import STATES, Direction, NodeTask

RolloutState = Literal["running", "paused", "done", "failed", "aborted", "rolled-back"]
FINISHED: tuple[RolloutState, ...] = ("done", "failed", "aborted", "rolled-back")
Request = Literal["", "pause", "abort", "rollback", "pause-rollback", "kill", "kill-abort", "kill-rollback"]
PAUSING: tuple[Request, ...] = ("pause", "pause-rollback")
KILLING: tuple[Request, ...] = ("kill", "kill-abort", "kill-rollback")
ABORTING: tuple[Request, ...] = ("abort", "kill-abort")
GOING_BACK: tuple[Request, ...] = (*ABORTING, "rollback", "pause-rollback", "kill-rollback")
STAGES = ("start", "canary")  # what an approval may be asked for: before anything, and before what follows the canaries


def asked_after(before: Request, what: Request) -> Request:
    """What holds when `what` is asked of a rollout of which `before` was asked.

    Neither a pause nor a kill makes anybody forget that nodes are to be taken back, and a pause does not soften a kill.
    """
    if what == "":
        return going_on(before)
    if what == "pause" and before in KILLING:
        return before
    if what == "pause" and before in GOING_BACK:
        return "abort" if before in ABORTING else "pause-rollback"
    if what == "kill" and before in GOING_BACK:
        return "kill-abort" if before in ABORTING else "kill-rollback"
    return what


def going_on(before: Request) -> Request:
    """What is asked of a rollout that goes on: an abort or a rollback stays one."""
    return "abort" if before in ABORTING else "rollback" if before in GOING_BACK else ""


@dataclass(frozen=True)
class Snapshot:
    """All that the next moves depend on. `busy` nodes have a step running in this process.

    `gates` are judgements by wave and hardware cell; `judging` = one is being made. `approved` are stages that a person
    said yes to, `refused` is why one said no. `shut` = why no maintenance window is open.
    """

    plan: Plan
    state: RolloutState
    tasks: tuple[NodeTask, ...]
    request: Request = ""
    forgiven: int = 0  # failures that a person has accepted by resuming
    busy: frozenset[str] = frozenset()
    units: tuple[tuple[str, ...], ...] = ()  # nodes that move together; a node in none moves alone
    gates: Mapping[int, Mapping[str, Judgement]] = field(default_factory=dict)
    judging: bool = False
    approved: frozenset[str] = frozenset()
    refused: str = ""
    shut: str = ""


@dataclass(frozen=True)
class Begin:
    """Units of nodes that may start now, if the budgets allow."""

    units: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Do:
    """One step on equal nodes. `again` = an attempt was begun before and its result is not known."""

    nodes: tuple[str, ...]
    group: int
    direction: Direction
    cursor: int
    attempt: int
    step: Step
    again: bool = False


@dataclass(frozen=True)
class Judge:
    """The soak of a wave is over: look at its nodes, by hardware cell, beside untouched ones of the same cell."""

    wave: int
    treated: Mapping[str, tuple[str, ...]]
    control: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Change:
    """A node's task becomes this, without anything being done on the node."""

    task: NodeTask


@dataclass(frozen=True)
class Wait:
    """Nothing new begins yet, and time alone will change that."""

    reason: str


@dataclass(frozen=True)
class Halt:
    """Nothing new begins: the rollout is paused."""

    reason: str


@dataclass(frozen=True)
class Finish:
    """Nothing is left to do."""

    state: RolloutState
    reason: str = ""


Move: TypeAlias = Begin | Do | Judge | Change | Wait | Halt | Finish


@dataclass(frozen=True)
class Summary:
    """How many nodes stand where."""

    counts: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return ", ".join(f"{number} {state}" for state, number in self.counts.items()) or "no nodes"


def summary(tasks: Iterable[NodeTask]) -> Summary:
    """Counts by state, in the order of the states."""
    found = [task.state for task in tasks]
    return Summary({state: found.count(state) for state in STATES if state in found})
