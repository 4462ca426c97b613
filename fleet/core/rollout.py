"""A plan being carried out: what each node owes, what a step's outcome means for it, and what may be done next.

Pure functions of a snapshot. A node's state is named after what is owed: waiting, cordoning, draining, staging,
installing, activating, rebooting, validating, uncordoning; it ends as done, rolled-back, failed or held.

Rules of going on: wave after wave; the canaries (wave 0) speak for their hardware cell: when one fails, the rest of
that cell is held unless the policy says `ignore_canary`. When more nodes than `max_failures` failed, nothing new
begins and the rollout is paused. A node that fails after its software was touched takes the way back by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias, get_args

from fleet.core.budget import Limit
from fleet.core.model import Group, Plan, Step
from fleet.core.plan import SAFE_PHASES, cell_of, flat

State = Literal[
    "waiting", "cordoning", "draining", "staging", "installing", "activating", "rebooting", "validating",
    "uncordoning", "done", "failed", "rolled-back", "held",
]  # fmt: skip
STATES: tuple[State, ...] = get_args(State)
ENDS: tuple[State, ...] = ("done", "failed", "rolled-back", "held")
Direction = Literal["forward", "back", "leave"]
_END: Mapping[Direction, State] = {"forward": "done", "back": "rolled-back", "leave": "failed"}
Result = Literal["done", "already", "failed", "ambiguous", "waiting", "hands", "stale"]
RolloutState = Literal["running", "paused", "done", "failed", "aborted"]
FINISHED: tuple[RolloutState, ...] = ("done", "failed", "aborted")
TRIES = 3  # a step whose outcome is not known is repeated so often before it counts as failed

OWED: Mapping[str, State] = {
    "preflight": "waiting",
    "cordon": "cordoning",
    "drain": "draining",
    "stage": "staging",
    "stop": "installing",
    "remove": "installing",
    "install": "installing",
    "firmware": "installing",
    "activate": "activating",
    "reboot": "rebooting",
    "verify": "validating",
    "validate": "validating",
    "uncordon": "uncordoning",
}


@dataclass(frozen=True)
class NodeTask:
    """One node of a rollout. `cursor` is an index into the steps of its direction, -1 = not begun.

    `open` is the state of the last attempt at this step when it has no final result: intent or ambiguous.
    Times are seconds since the epoch.
    """

    node: str
    group: int
    wave: int
    state: State = "waiting"
    direction: Direction = "forward"
    cursor: int = -1
    attempt: int = 1
    tries: int = 0
    open: Literal["", "intent", "ambiguous"] = ""
    since: float = 0.0
    limit_s: int = 0
    reason: str = ""
    owner: str = ""
    next_action: str = ""

    @property
    def ended(self) -> bool:
        """Whether its part is over, or waits for a person."""
        return self.state in ENDS

    @property
    def begun(self) -> bool:
        """Whether a step is owed now."""
        return self.cursor >= 0 and not self.ended


@dataclass(frozen=True)
class Snapshot:
    """All that the next moves depend on. `busy` nodes have a step running in this process."""

    plan: Plan
    state: RolloutState
    tasks: tuple[NodeTask, ...]
    request: Literal["", "pause", "abort"] = ""
    forgiven: int = 0  # failures that a person has accepted by resuming
    busy: frozenset[str] = frozenset()
    units: tuple[tuple[str, ...], ...] = ()  # nodes that move together; a node in none moves alone


@dataclass(frozen=True)
class Outcome:
    """What came of one step on one node. `owner` and `next_action` say who does what when it went wrong."""

    result: Result
    reason: str = ""
    owner: str = ""
    next_action: str = ""


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
class Change:
    """A node's task becomes this, without anything being done on the node."""

    task: NodeTask


@dataclass(frozen=True)
class Halt:
    """Nothing new begins: the rollout is paused."""

    reason: str


@dataclass(frozen=True)
class Finish:
    """Nothing is left to do."""

    state: RolloutState
    reason: str = ""


Move: TypeAlias = Begin | Do | Change | Halt | Finish


def path(group: Group, direction: Direction) -> tuple[Step, ...]:
    """The steps of that direction: there, back, or merely back into service."""
    if direction == "forward":
        return flat(group.stages)
    if direction == "back":
        return flat(group.back or ())
    return tuple(step for step in flat(group.stages) if step.phase == "uncordon")[-1:]


def step_of(group: Group, task: NodeTask) -> Step | None:
    """The step that the node owes, None when it has ended or not begun."""
    steps = path(group, task.direction)
    return steps[task.cursor] if task.begun and task.cursor < len(steps) else None


def _at(group: Group, task: NodeTask, direction: Direction, cursor: int, now: float) -> NodeTask:
    steps = path(group, direction)
    if cursor >= len(steps):
        return replace(
            task, state=_END[direction], direction=direction, cursor=cursor, open="", tries=0, attempt=1, since=now,
            limit_s=0, reason="" if direction == "forward" else task.reason,
        )  # fmt: skip
    step = steps[cursor]
    return replace(
        task, state=OWED[step.phase], direction=direction, cursor=cursor, open="", tries=0, attempt=1, since=now,
        limit_s=step.limit_s,
    )  # fmt: skip


def begin(group: Group, task: NodeTask, now: float) -> NodeTask:
    """The node's first step is owed."""
    return replace(_at(group, task, "forward", 0, now), reason="")


def _fail(task: NodeTask, reason: str, owner: str, next_action: str, now: float) -> NodeTask:
    return replace(
        task, state="failed", open="", tries=0, since=now, limit_s=0, reason=reason, owner=owner or "operator",
        next_action=next_action or f"look at {task.node}: fleet probe {task.node}",
    )  # fmt: skip


def touched(group: Group, task: NodeTask) -> bool:
    """Whether the software of the node may have been changed: a step outside the safe phases was begun."""
    steps = path(group, "forward")
    return any(step.phase not in SAFE_PHASES for step in steps[: task.cursor + 1])


def _way_back(group: Group, cursor: int) -> int:
    """Where the way back starts for a node that failed at that step: stages never begun need no undoing."""
    back = group.back or ()
    if len(back) != len(group.stages):
        return 0
    seen = 0
    for number, stage in enumerate(group.stages):
        seen += len(stage)
        if cursor < seen:
            return sum(len(body) for body in back[: len(back) - 1 - number])
    return 0


def turn(group: Group, task: NodeTask, reason: str, now: float, owner: str = "", next_action: str = "") -> NodeTask:
    """The node gives up going forward: back to the old stack, or merely out of the rollout when nothing was touched."""
    named = replace(task, reason=reason, owner=owner or "operator", next_action=next_action)
    if task.cursor < 0:
        return replace(named, state="held", since=now, next_action=next_action or f"fleet plan {task.node}")
    if not touched(group, task):
        done = path(group, "forward")[: task.cursor + 1]
        cordoned = any(step.phase in ("cordon", "drain") for step in done)
        named = replace(named, next_action=next_action or f"mend it, then fleet upgrade {task.node} again")
        return _at(group, named, "leave", 0 if cordoned else len(path(group, "leave")), now)
    if group.back is None:
        return _fail(task, f"{reason}; there is no way back", owner, next_action, now)
    return _at(group, named, "back", _way_back(group, task.cursor), now)


def _because(task: NodeTask, outcome: Outcome) -> str:
    """On the way back the reason stays the one for which the node turned."""
    return outcome.reason if task.direction == "forward" else task.reason


def advance(group: Group, task: NodeTask, outcome: Outcome, now: float) -> NodeTask:
    """The node's task after that outcome of the step it owed."""
    step = step_of(group, task)
    if step is None:
        return task
    owner, nxt = outcome.owner, outcome.next_action
    match outcome.result:
        case "done" | "already":
            return _at(group, task, task.direction, task.cursor + 1, now)
        case "stale":
            return replace(
                task, state="held", open="", since=now, limit_s=0, reason=f"stale: {outcome.reason}", owner="operator",
                next_action=nxt or f"fleet plan {task.node}",
            )  # fmt: skip
        case "hands":
            return replace(
                task, state="held", since=now, limit_s=0, reason=f"hands: {outcome.reason}", owner=owner or "operator",
                next_action=nxt,
            )  # fmt: skip
        case "waiting":
            if step.limit_s and now - task.since > step.limit_s:
                late = f"{step.phase} did not end within {step.limit_s} s: {outcome.reason}"
                return advance(group, task, Outcome("failed", late, owner, nxt), now)
            return replace(task, reason=_because(task, outcome), open="")
        case "ambiguous":
            if step.effect == "one_way":
                return replace(
                    task, state="held", open="ambiguous", since=now, limit_s=0,
                    reason=f"ambiguous: {outcome.reason}", owner=owner or "operator",
                    next_action=nxt or f"look at {task.node}, then fleet rollout resume",
                )  # fmt: skip
            if task.tries + 1 < TRIES:
                return replace(task, open="ambiguous", tries=task.tries + 1, reason=_because(task, outcome))
            return advance(group, replace(task, tries=0), Outcome("failed", outcome.reason, owner, nxt), now)
    if task.direction == "forward" and step.phase != "uncordon":
        return turn(group, task, outcome.reason, now, owner, nxt)
    if task.direction == "back":
        return _fail(task, f"{task.reason}; the way back failed too: {outcome.reason}", owner, nxt, now)
    if task.direction == "leave":
        return _fail(task, f"{task.reason}; and {outcome.reason}", owner, nxt, now)
    return _fail(task, outcome.reason, owner, nxt or f"return {task.node} to service by hand", now)


def reopened(group: Group, task: NodeTask, now: float) -> NodeTask:
    """What `resume` makes of a held node that waited for a person; others stay as they are."""
    if task.state != "held" or not task.reason.startswith(("hands:", "ambiguous:")):
        return task
    steps = path(group, task.direction)
    return replace(
        task, state=OWED[steps[task.cursor].phase], since=now, limit_s=steps[task.cursor].limit_s, tries=0,
        open="intent", owner="", next_action="",
    )  # fmt: skip


def failing(task: NodeTask) -> bool:
    """Whether the node counts as a failure: it ended badly, or is on its way there."""
    return task.state in ("failed", "rolled-back") or (task.begun and task.direction != "forward")


def failure_limit(plan: Plan, forgiven: int = 0) -> int:
    """How many nodes may fail before nothing new begins."""
    total = sum(len(wave) for wave in plan.waves)
    return Limit.parse(str(plan.policy.get("max_failures", "13%"))).of(total) + forgiven


def _chunks(tasks: Iterable[NodeTask], plan: Plan) -> list[Do]:
    """Equal steps of one group in one move: one node for a canary or a card at a time, else up to the chunk size."""
    size = int(str(plan.policy.get("chunk", 16)))
    rows: dict[tuple[int, Direction, int, int, bool, int], list[str]] = {}
    for task in tasks:
        key = (task.group, task.direction, task.cursor, task.attempt, bool(task.open), min(task.wave, 1))
        rows.setdefault(key, []).append(task.node)
    moves = []
    for (group, direction, cursor, attempt, again, wave), names in rows.items():
        step = path(plan.groups[group], direction)[cursor]
        many = 1 if wave == 0 or step.delivery == "mcu" else max(1, size)
        for first in range(0, len(names), many):
            moves.append(Do(tuple(names[first : first + many]), group, direction, cursor, attempt, step, again))
    return moves


def _failed_canaries(snapshot: Snapshot, cells: Sequence[str]) -> dict[str, str]:
    """Hardware cell -> its first canary that failed. `cells` are those of the plan's groups."""
    failed: dict[str, str] = {}
    for task in snapshot.tasks:
        if task.wave == 0 and failing(task):
            failed.setdefault(cells[task.group], task.node)
    return failed


def next_moves(snapshot: Snapshot, now: float) -> tuple[Move, ...]:
    """What may be done now, bookkeeping first. Empty = wait for what is running."""
    plan = snapshot.plan
    if snapshot.state in FINISHED:
        return ()
    moves: list[Move] = []
    tasks = list(snapshot.tasks)
    if snapshot.request == "abort":
        tasks, changed = _abort(snapshot, now)
        moves += changed
    active = [task for task in tasks if task.begun]
    waiting = [task for task in tasks if not task.ended and task.cursor < 0]
    moves += _chunks([t for t in active if t.node not in snapshot.busy], plan)
    bad = sum(failing(task) for task in tasks)
    limit = failure_limit(plan, snapshot.forgiven)
    if not active and not waiting:
        return (*moves, _end(snapshot, tasks))
    stopped = bad > limit
    if waiting and not stopped and not snapshot.request and snapshot.state == "running":
        moves += _open(snapshot, waiting, tasks, now)
    if not active and waiting and not any(isinstance(m, Begin | Change) for m in moves):
        if stopped:
            moves.append(Halt(f"{bad} nodes failed, more than the {limit} allowed"))
        elif snapshot.request == "pause":
            moves.append(Halt("paused by the operator"))
    return tuple(moves)


def _abort(snapshot: Snapshot, now: float) -> tuple[list[NodeTask], list[Move]]:
    tasks: list[NodeTask] = []
    moves: list[Move] = []
    for task in snapshot.tasks:
        group = snapshot.plan.groups[task.group]
        step = step_of(group, task)
        late = step is not None and step.phase == "uncordon"
        if task.ended or task.node in snapshot.busy or task.direction != "forward" or late:
            tasks.append(task)
            continue
        tasks.append(turn(group, task, "aborted by the operator", now))
        moves.append(Change(tasks[-1]))
    return tasks, moves


def _open(snapshot: Snapshot, waiting: list[NodeTask], tasks: list[NodeTask], now: float) -> list[Move]:
    """Begin the nodes of the current wave; hold those whose canary failed."""
    moves: list[Move] = []
    current = min(task.wave for task in tasks if not task.ended)
    cells = [cell_of(group) for group in snapshot.plan.groups]
    canaries = {} if snapshot.plan.policy.get("ignore_canary") else _failed_canaries(snapshot, cells)
    ready: dict[str, None] = {}
    for task in sorted(waiting, key=lambda t: (t.wave, t.node)):
        if task.wave != current:
            continue
        failed = canaries.get(cells[task.group])
        if failed is not None and task.wave > 0:
            held = replace(task, state="held", since=now, reason=f"canary: {failed} failed", owner="operator")
            moves.append(
                Change(replace(held, next_action=f"see why {failed} failed, then fleet upgrade {task.node} again"))
            )
        else:
            ready[task.node] = None
    together = {name: unit for unit in snapshot.units for name in unit}
    units = dict.fromkeys(tuple(n for n in together.get(name, (name,)) if n in ready) for name in ready)
    if units:
        moves.append(Begin(tuple(units)))
    return moves


def _end(snapshot: Snapshot, tasks: list[NodeTask]) -> Move:
    people = [task for task in tasks if task.state == "held" and task.reason.startswith(("hands:", "ambiguous:"))]
    if people and snapshot.request != "abort":
        return Halt(f"{len(people)} nodes wait for a person, first {people[0].node}: {people[0].next_action}")
    if snapshot.request == "abort":
        return Finish("aborted", "aborted by the operator")
    return Finish("done" if all(task.state == "done" for task in tasks) else "failed")


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
