"""One node's way through a rollout: the steps of its direction, and what the outcome of a step means for it.

Pure functions of one node's task. A state is named after what is owed: waiting, cordoning, draining, staging,
installing, activating, rebooting, validating, uncordoning; it ends as done, rolled-back, failed or held.

A node that fails after its software was touched takes the way `back` by itself; one that fails before that is merely
put back into service (`leave`). A node whose jobs outlast the drain leaves too, and waits for a later turn. A node that
is done and must give up the new stack after all is taken out of service again and goes back (`return`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

from fleet.core.model import Group, Step
from fleet.core.stages import SAFE_PHASES, flat

State = Literal[
    "waiting", "cordoning", "draining", "staging", "installing", "activating", "rebooting", "validating",
    "uncordoning", "done", "failed", "rolled-back", "held",
]  # fmt: skip
STATES: tuple[State, ...] = get_args(State)
ENDS: tuple[State, ...] = ("done", "failed", "rolled-back", "held")
Direction = Literal["forward", "back", "leave", "return"]
_END: Mapping[Direction, State] = {
    "forward": "done", "back": "rolled-back", "leave": "failed", "return": "rolled-back",
}  # fmt: skip
Result = Literal["done", "already", "failed", "ambiguous", "waiting", "hands", "stale"]
TRIES = 3  # a step whose outcome is not known is repeated so often before it counts as failed
PERSON_S = 8 * 3600  # how long a node may wait for a person before it is overdue: one shift
FOR_PERSON = ("hands:", "ambiguous:", "scheduler:")  # why a held node keeps its place until somebody has acted
STRANGER = ("hands: identity-changed", "hands: key-changed")  # perhaps another machine: nothing is done there blindly
BEFORE = "; before that: "
REVISIT = "revisit:"
WITH = "moves with "
NO_PLACE = "budget:"
AS_LEFT = "it stands as its last try left it"
STAYS = "not taken back: "  # a node that was to go back and serves on with the new stack
DECIDED = ("aborted by", "rolled back by", WITH)  # why a node turns that has done nothing wrong itself

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

LIMIT_ENDS: Mapping[State, str] = {
    "waiting": "it goes on waiting; overdue nodes are shown and told of",
    "cordoning": "the node is given back to service and counts as failed",
    "draining": "the node is given back to service and its turn comes later",
    "staging": "the node is given back to service and counts as failed",
    "installing": "the node takes the way back",
    "activating": "the node takes the way back",
    "rebooting": "the node is failed: somebody looks at its console",
    "validating": "the node takes the way back",
    "uncordoning": "the node is failed: somebody returns it to service",
    "held": "it stays as it is; overdue nodes are shown and told of",
}
"""What happens when a node has been in a state for longer than its limit."""


@dataclass(frozen=True)
class NodeTask:
    """One node of a rollout. `cursor` is an index into the steps of its direction, -1 = not begun.

    `open` is the state of the last attempt at this step when it has no final result: intent or ambiguous. `revisits`
    counts how often its jobs outlasted the drain. Times are seconds since the epoch.
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
    revisits: int = 0

    @property
    def ended(self) -> bool:
        """Whether its part is over, or waits for a person."""
        return self.state in ENDS

    @property
    def begun(self) -> bool:
        """Whether a step is owed now."""
        return self.cursor >= 0 and not self.ended

    @property
    def queued(self) -> bool:
        """Whether it waits for its turn."""
        return self.cursor < 0 and not self.ended


@dataclass(frozen=True)
class Outcome:
    """What came of one step on one node. `owner` and `next_action` say who does what when it went wrong.

    `outage` = the node is not to blame: the scheduler that was asked could not answer.
    """

    result: Result
    reason: str = ""
    owner: str = ""
    next_action: str = ""
    outage: bool = False


def waits_for_person(task: NodeTask) -> bool:
    """Whether the node keeps its place in the budgets until somebody has acted."""
    return task.state == "held" and task.reason.startswith(FOR_PERSON)


def fell_short(task: NodeTask) -> bool:
    """Whether its part is over without the new stack: it may be tried again."""
    return task.ended and task.state != "done" and not waits_for_person(task)


def overdue(task: NodeTask, now: float) -> bool:
    """Whether the node has been in its state for longer than the state's limit."""
    return bool(task.limit_s) and now - task.since > task.limit_s


def path(group: Group, direction: Direction) -> tuple[Step, ...]:
    """The steps of that direction: there, back, merely back into service, or out of service again and back."""
    if direction == "forward":
        return flat(group.stages)
    if direction == "back":
        return flat(group.back or ())
    if direction == "return":
        away = tuple(step for step in flat(group.stages) if step.phase in ("cordon", "drain"))
        return away + flat(group.back or ())
    return tuple(step for step in flat(group.stages) if step.phase == "uncordon")[-1:]


def step_of(group: Group, task: NodeTask) -> Step | None:
    """The step that the node owes, None when it has ended or not begun."""
    steps = path(group, task.direction)
    return steps[task.cursor] if task.begun and task.cursor < len(steps) else None


def _at(group: Group, task: NodeTask, direction: Direction, cursor: int, now: float) -> NodeTask:
    steps = path(group, direction)
    clear = replace(task, direction=direction, cursor=cursor, open="", tries=0, since=now, limit_s=0)
    if cursor < len(steps):
        return replace(clear, state=OWED[steps[cursor].phase], limit_s=steps[cursor].limit_s)
    if direction == "leave" and task.reason.startswith(REVISIT):
        return queued_again(replace(clear, revisits=task.revisits + 1), now)
    if direction == "leave" and task.reason.startswith(DECIDED):
        return replace(clear, state="held")  # skipped, not failed
    return replace(clear, state=_END[direction], reason="" if direction == "forward" else task.reason)


def begin(group: Group, task: NodeTask, now: float) -> NodeTask:
    """The node's first step is owed."""
    begun = _at(group, task, task.direction, 0, now)
    if task.direction == "return":
        return replace(begun, reason=why_back(task), next_action="")
    return replace(begun, reason="", owner="", next_action="")


def why_back(task: NodeTask) -> str:
    """Why a node goes back, though it may wait for a place just now."""
    return task.reason.partition(BEFORE)[2] if task.reason.startswith(NO_PLACE) else task.reason


def no_place(task: NodeTask, reason: str, next_action: str) -> NodeTask:
    """The node waits for a place in a budget, which `reason` says. One that goes back keeps its own reason too."""
    back = f"{BEFORE}{why_back(task)}" if task.direction == "return" else ""
    return replace(task, reason=f"{reason}{back}", next_action=next_action)


def queued_again(task: NodeTask, now: float) -> NodeTask:
    """The node waits for a new turn from the first step on; what it did before is another attempt."""
    return replace(
        task, state="waiting", direction="forward", cursor=-1, attempt=task.attempt + 1, tries=0, open="", since=now,
        limit_s=0,
    )  # fmt: skip


def retried(task: NodeTask, now: float) -> NodeTask:
    """What `fleet rollout retry` makes of a node whose part ended without the new stack."""
    return replace(queued_again(task, now), reason="", owner="", next_action="", revisits=0)


def returning(group: Group, task: NodeTask, reason: str, now: float) -> NodeTask:
    """The node is done, and must go back: it waits for a place in the budgets. Unchanged where there is no way back."""
    if group.back is None:
        return replace(task, reason=f"{reason}; there is no way back", owner="operator")
    return replace(
        task, state="waiting", direction="return", cursor=-1, attempt=task.attempt + 1, tries=0, open="", since=now,
        limit_s=0, reason=reason, owner="operator", next_action="",
    )  # fmt: skip


def staying(group: Group, task: NodeTask, reason: str, now: float) -> NodeTask:
    """The node was to go back and does not: it returns to service as it is. Only where the way back was not begun."""
    if task.cursor < 0:
        return _fail(task, reason, task.owner, task.next_action, now)
    return _at(group, replace(task, reason=reason), "leave", 0, now)


def kept(task: NodeTask) -> bool:
    """Whether its part is over and the node may still have the new stack, or parts of it."""
    left_alone = task.direction == "leave" and not task.reason.startswith(STAYS)
    return task.state == "done" or (task.state == "failed" and not left_alone)


def held(task: NodeTask, reason: str, next_action: str, now: float, owner: str = "") -> NodeTask:
    """The node's part ends without anything being done to it, or it waits for a person."""
    limit = PERSON_S if reason.startswith(FOR_PERSON) else 0
    if task.queued and task.direction == "forward" and _unseen(task):
        reason, next_action = f"{reason}; {AS_LEFT}", f"look at {task.node}: fleet probe {task.node}"
    return replace(
        task, state="held", since=now, limit_s=limit, reason=reason, owner=owner or "operator", next_action=next_action,
    )  # fmt: skip


def _unseen(task: NodeTask) -> bool:
    """Whether it is to be tried again after it ended: how it stands is known once its preflight has passed."""
    return task.attempt > 1 and not task.revisits


def _fail(task: NodeTask, reason: str, owner: str, next_action: str, now: float) -> NodeTask:
    return replace(
        task, state="failed", open="", tries=0, since=now, limit_s=0, reason=reason, owner=owner or "operator",
        next_action=next_action or f"look at {task.node}: fleet probe {task.node}",
    )  # fmt: skip


def touched(group: Group, task: NodeTask, *, begun: bool = True) -> bool:
    """Whether the software of the node may have been changed: a step outside the safe phases was begun.

    `begun` = the step that is owed was; else only those before it count.
    """
    steps = path(group, "forward")
    return any(step.phase not in SAFE_PHASES for step in steps[: task.cursor + begun])


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


def turn(
    group: Group, task: NodeTask, reason: str, now: float, owner: str = "", next_action: str = "", *, begun: bool = True
) -> NodeTask:
    """The node gives up going forward: back to the old stack, or merely out of the rollout when nothing was touched.

    `begun` = the step that it owes was begun.
    """
    named = replace(task, reason=reason, owner=owner or "operator", next_action=next_action)
    if task.cursor < 0:
        return held(task, reason, next_action or f"fleet plan {task.node}", now, owner)
    if not touched(group, task, begun=begun):
        done = path(group, "forward")[: task.cursor + 1]
        cordoned = any(step.phase in ("cordon", "drain") for step in done)
        named = replace(named, next_action=next_action or f"mend it, then fleet upgrade {task.node} again")
        if not cordoned and _unseen(task):
            named = replace(named, reason=f"{reason}; {AS_LEFT}")
        return _at(group, named, "leave", 0 if cordoned else len(path(group, "leave")), now)
    if group.back is None:
        return _fail(task, f"{reason}; there is no way back", owner, next_action, now)
    return _at(group, named, "back", _way_back(group, task.cursor), now)


def asked(task: NodeTask, reason: str) -> str:
    """Why a person is asked; and, on the way back, why the node turned: that stays its reason in the end."""
    return reason if task.direction == "forward" else f"{reason}{BEFORE}{task.reason}"


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
                held(task, f"stale: {outcome.reason}", nxt or f"fleet plan {task.node}", now, "operator"), open=""
            )
        case "hands":
            return held(task, asked(task, f"hands: {outcome.reason}"), nxt, now, owner)
        case "waiting" if outcome.outage and step.limit_s and now - task.since > step.limit_s:
            return replace(
                held(
                    task,
                    asked(task, f"scheduler: {outcome.reason}"),
                    nxt or "mend it, then fleet rollout resume",
                    now,
                    owner,
                ),
                open="intent",
            )
        case "waiting":
            if step.limit_s and now - task.since > step.limit_s:
                late = f"{step.phase} did not end within {step.limit_s} s: {outcome.reason}"
                late = f"{REVISIT} {late}" if step.phase == "drain" and task.direction == "forward" else late
                return advance(group, task, Outcome("failed", late, owner, nxt), now)
            return replace(task, reason=_because(task, outcome), open="")
        case "ambiguous":
            if step.effect == "one_way":
                action = nxt or f"look at {task.node}, then fleet rollout resume"
                return replace(
                    held(task, asked(task, f"ambiguous: {outcome.reason}"), action, now, owner), open="ambiguous"
                )
            if task.tries + 1 < TRIES:
                return replace(task, open="ambiguous", tries=task.tries + 1, reason=_because(task, outcome))
            return advance(group, replace(task, tries=0), Outcome("failed", outcome.reason, owner, nxt), now)
    if task.direction == "forward" and step.phase != "uncordon":
        return turn(group, task, outcome.reason, now, owner, nxt)
    if task.direction == "return" and step.phase in ("cordon", "drain"):  # nothing is touched: it serves as it is
        left = replace(task, owner=owner or "operator", next_action=nxt)
        return staying(group, left, f"{STAYS}{outcome.reason}; {task.reason}", now)
    if task.direction in ("back", "return"):
        return _fail(task, f"{task.reason}; the way back failed too: {outcome.reason}", owner, nxt, now)
    if task.direction == "leave":
        return _fail(task, f"{task.reason}; and {outcome.reason}", owner, nxt, now)
    return _fail(task, outcome.reason, owner, nxt or f"return {task.node} to service by hand", now)


def reopened(group: Group, task: NodeTask, now: float) -> NodeTask:
    """What `resume` makes of a held node that waited for a person; others stay as they are."""
    if not waits_for_person(task):
        return task
    steps = path(group, task.direction)
    there = task.direction == "forward"
    return replace(
        task, state=OWED[steps[task.cursor].phase], since=now, limit_s=steps[task.cursor].limit_s, tries=0,
        open="intent", reason="" if there else task.reason.partition(BEFORE)[2] or task.reason,
        owner="" if there else "operator", next_action="",
    )  # fmt: skip


def failing(task: NodeTask) -> bool:
    """Whether the node counts as a failure: it ended badly by itself, or is on its way there.

    Jobs that outlast a drain, and a way back that a person or a whole cell decided on, are no failures of the node.
    """
    if task.state == "failed":
        return True
    if task.reason.startswith((REVISIT, *DECIDED)) or task.direction == "return":
        return False
    return task.state == "rolled-back" or (task.begun and task.direction != "forward")
