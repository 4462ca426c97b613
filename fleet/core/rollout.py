"""A plan being carried out: what may be done next. A pure function of a snapshot; a node's own way is fleet.core.task.

Rules of going on: wave after wave, each after the gate of the one before has passed. The canaries (wave 0) speak for
their hardware cell: when one fails, or its gate does, the rest of that cell is held, unless the policy says
`ignore_canary`. What was touched in the canaries and the first wave goes back; what later waves touched is kept. When
more nodes than `max_failures` failed, nothing new begins and the rollout is paused. Nodes that move together begin,
are changed, return to service and go back together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from fleet.core.budget import Limit
from fleet.core.gate import Judgement, sample
from fleet.core.model import Plan
from fleet.core.move import (
    FINISHED,
    STAGES,
    Begin,
    Change,
    Do,
    Finish,
    Halt,
    Judge,
    Move,
    Request,
    RolloutState,
    Snapshot,
    Summary,
    Wait,
    summary,
)  # fmt: skip
from fleet.core.plan import SAFE_PHASES, cell_of
from fleet.core.task import (
    ENDS,
    LIMIT_ENDS,
    OWED,
    REVISIT,
    STATES,
    TRIES,
    WITH,
    Direction,
    NodeTask,
    Outcome,
    Result,
    State,
    advance,
    begin,
    failing,
    held,
    overdue,
    path,
    reopened,
    retried,
    returning,
    step_of,
    touched,
    turn,
    waits_for_person,
)

__all__ = [
    "ENDS", "FINISHED", "LIMIT_ENDS", "OWED", "STAGES", "STATES", "TRIES", "Begin", "Change", "Direction", "Do",
    "Finish", "Halt", "Judge", "Move", "NodeTask", "Outcome", "Request", "Result", "RolloutState", "Snapshot", "State",
    "Summary", "Wait", "advance", "begin", "failing", "failure_limit", "lost_early", "next_moves", "overdue", "path",
    "reopened", "retried", "returning", "step_of", "summary", "touched", "turn", "waits_for_person",
]  # fmt: skip

EARLY = 1  # the canaries and the first wave: what they touched goes back when they fail
REVISITS = 2
REVISIT_S = 1800


def failure_limit(plan: Plan, forgiven: int = 0) -> int:
    """How many nodes may fail before nothing new begins."""
    total = sum(len(wave) for wave in plan.waves)
    return Limit.parse(str(plan.policy.get("max_failures", "13%"))).of(total) + forgiven


def _number(plan: Plan, name: str, default: int) -> int:
    value = plan.policy.get(name, default)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def lost_early(wave: int, said: Judgement) -> bool:
    """Whether that verdict takes the cell back: a person is not asked."""
    return wave <= EARLY and (said.verdict == "fail" or (said.verdict == "no-data" and wave == 0))


def next_moves(snapshot: Snapshot, now: float) -> tuple[Move, ...]:
    """What may be done now, bookkeeping first. Empty = wait for what is running, or for time to pass."""
    return () if snapshot.state in FINISHED else tuple(_Round(snapshot, now).moves())


class _Round:
    """One look at a rollout: the tasks as they become by decisions alone, and what may then be done."""

    def __init__(self, snapshot: Snapshot, now: float) -> None:
        self.snapshot = snapshot
        self.plan = snapshot.plan
        self.now = now
        self.by_node = {task.node: task for task in snapshot.tasks}
        self.cells = [cell_of(group) for group in self.plan.groups]
        self.changed: dict[str, NodeTask] = {}
        self.canaries_count = not self.plan.policy.get("ignore_canary")

    @property
    def tasks(self) -> Iterable[NodeTask]:
        return self.by_node.values()

    def cell(self, task: NodeTask) -> str:
        return self.cells[task.group]

    def moves(self) -> Iterator[Move]:
        for decide in (self._obeyed, self._condemned, self._together, self._worn_out, self._promoted):
            self._apply(decide())
        if self.changed:  # stored first: what follows from it is asked at the next tick, which comes at once
            yield from (Change(task) for task in self.changed.values())
            return
        active = [task for task in self.tasks if task.begun]
        if self.snapshot.request == "kill":
            if not active:
                yield Halt("killed by the operator: what was under way stands where it was cut off")
            return
        barred = self._barred()
        yield from self._chunks(t for t in active if t.node not in self.snapshot.busy and t.node not in barred)
        queued = [task for task in self.tasks if task.queued]
        opened = list(self._opened(queued)) if self.snapshot.state == "running" else []
        yield from opened
        if active or opened:
            return
        yield from self._rest(queued)

    def _apply(self, tasks: Iterable[NodeTask]) -> None:
        for task in list(tasks):
            if task.node not in self.snapshot.busy and task != self.by_node[task.node]:
                self.by_node[task.node] = self.changed[task.node] = task

    # --- decisions on nodes -------------------------------------------------------------------------------------------

    def _obeyed(self) -> Iterator[NodeTask]:
        """What the operator asked for."""
        request = self.snapshot.request
        if request == "kill":
            for task in self.tasks:
                if task.begun:
                    nxt = "fleet rollout resume takes it up where it stands, fleet rollout abort takes it back"
                    cut = held(task, f"ambiguous: killed while {task.state}", nxt, self.now)
                    yield replace(cut, open="intent")
        if request not in ("abort", "rollback"):
            return
        why = "aborted by the operator" if request == "abort" else "rolled back by the operator"
        for task in self.tasks:
            group = self.plan.groups[task.group]
            step = step_of(group, task)
            if waits_for_person(task):
                yield self._given_up(task, why)
            elif task.state == "done" and request == "rollback" and group.back is not None:
                yield returning(group, task, why, self.now)
            elif not task.ended and task.direction == "forward" and (step is None or step.phase != "uncordon"):
                yield turn(group, task, why, self.now, begun=bool(task.open))

    def _given_up(self, task: NodeTask, why: str) -> NodeTask:
        """A node that waited for a person goes back, unless nobody knows whether that can be done blindly."""
        group = self.plan.groups[task.group]
        step = path(group, task.direction)[task.cursor]
        unsure = step.effect == "one_way" and task.reason.startswith("ambiguous:")
        if task.direction == "forward" and not unsure:
            return turn(group, task, f"{why}; before that: {task.reason}", self.now)
        nxt = task.next_action or f"look at {task.node}: fleet probe {task.node}"
        return replace(task, state="failed", open="", since=self.now, limit_s=0, reason=f"{why}; {task.reason}",
                       next_action=nxt)  # fmt: skip

    def _condemned(self) -> Iterator[NodeTask]:
        """Hardware cells whose canary or first wave failed: the rest is held, what was touched goes back."""
        bad = {} if self.snapshot.request in ("abort", "rollback") else self._bad_cells()
        for task in self.tasks:
            why = bad.get(self.cell(task))
            if why is None:
                continue
            reason, first = why
            group = self.plan.groups[task.group]
            if task.queued and task.direction == "forward" and reason:
                nxt = f"see why {first} failed, then fleet upgrade {task.node} again"
                yield held(task, reason, nxt, self.now)
            elif task.state == "done" and task.wave <= EARLY and group.back is not None:
                yield returning(group, task, f"first-wave: {first} failed", self.now)

    def _bad_cells(self) -> dict[str, tuple[str, str]]:
        """Cell -> (why its other nodes are held, or "" when they merely wait; the node or gate that failed)."""
        found: dict[str, tuple[str, str]] = {}
        failed = [task for task in self.tasks if failing(task)]
        if self.canaries_count:
            for task in failed:
                if task.wave == 0:
                    found.setdefault(self.cell(task), (f"canary: {task.node} failed", task.node))
        for wave, judged in self.snapshot.gates.items():
            for cell, said in judged.items():
                counts = wave > 0 or self.canaries_count
                if lost_early(wave, said) and counts and not said.accepted:
                    found.setdefault(cell, (f"gate: wave {wave + 1}: {said.reason}", f"wave {wave + 1}"))
        if len(failed) > failure_limit(self.plan, self.snapshot.forgiven):
            for task in failed:
                if task.wave <= EARLY and self._current() <= EARLY and self.canaries_count:
                    found.setdefault(self.cell(task), ("", task.node))
        return found

    def _together(self) -> Iterator[NodeTask]:
        """When one of the nodes that move together turns, the others do."""
        for unit in self.snapshot.units:
            members = [self.by_node[name] for name in unit if name in self.by_node]
            first = next((m for m in members if self._turned(m)), None)
            if first is None:
                continue
            why = f"{WITH}{first.node}: {first.reason}"
            later = first.reason.startswith(REVISIT)
            for task in members:
                group = self.plan.groups[task.group]
                if task.state == "done" and first.direction == "return" and group.back is not None:
                    yield returning(group, task, why, self.now)
                elif task.direction == "forward" and not task.ended and (task.begun or not later):
                    yield turn(group, task, f"{REVISIT} {why}" if later else why, self.now, begun=bool(task.open))

    def _turned(self, task: NodeTask) -> bool:
        """Whether the node has given up, or was put off. One that merely could not return to service has not."""
        if task.state == "held":
            return not waits_for_person(task)
        if task.direction != "forward":
            return True
        if task.state == "failed":
            return path(self.plan.groups[task.group], "forward")[task.cursor].phase != "uncordon"
        return task.queued and task.revisits > 0

    def _worn_out(self) -> Iterator[NodeTask]:
        """Nodes whose jobs outlasted the drain too often are left to the operator."""
        for task in self.tasks:
            if task.queued and task.direction == "forward" and task.revisits > _number(self.plan, "revisits", REVISITS):
                reason = task.reason if task.reason.startswith(REVISIT) else f"{REVISIT} {task.reason}"
                nxt = task.next_action or f"fleet upgrade {task.node} again once its jobs have ended"
                yield held(task, reason, nxt, self.now)

    def _promoted(self) -> Iterator[NodeTask]:
        """A cell whose canaries ended without having been tried gets the next of its nodes as canary."""
        if not self.canaries_count:
            return
        tried: set[str] = set()
        rest: dict[str, NodeTask] = {}
        for task in self.tasks:
            cell = self.cell(task)
            if task.wave == 0 and (task.state != "held" or waits_for_person(task)):
                tried.add(cell)
            elif task.wave > 0 and (not task.queued or task.direction != "forward"):
                if task.state != "held":
                    tried.add(cell)
            elif task.queued and task.wave > 0:
                best = rest.setdefault(cell, task)
                if (task.wave, task.node) < (best.wave, best.node):
                    rest[cell] = task
        together = {name: unit for unit in self.snapshot.units for name in unit}
        for cell, task in rest.items():
            if cell not in tried:
                for name in together.get(task.node, (task.node,)):
                    if name in self.by_node and self.by_node[name].queued:
                        yield replace(self.by_node[name], wave=0)

    # --- what may be done ---------------------------------------------------------------------------------------------

    def _barred(self) -> set[str]:
        """Nodes that wait for the others of their unit: before the first change, and before the return to service."""
        out: set[str] = set()
        for unit in self.snapshot.units:
            there = [t for t in (self.by_node[name] for name in unit if name in self.by_node)
                     if t.begun or waits_for_person(t)]  # fmt: skip
            if len(there) < 2:
                continue
            slowest = min(self._mark(task) for task in there)
            out |= {task.node for task in there if task.begun and self._mark(task) > slowest and self._at_mark(task)}
        return out

    def _mark(self, task: NodeTask) -> int:
        """0 before the first change, 1 while it is being changed, 2 when only the return to service is owed."""
        if task.queued:
            return 0
        steps = path(self.plan.groups[task.group], task.direction)
        here = steps[min(task.cursor, len(steps) - 1)].phase if steps else "uncordon"
        if here == "uncordon":
            return 2
        before = all(step.phase in SAFE_PHASES for step in steps[: task.cursor])
        return 0 if before and here in SAFE_PHASES and task.direction != "back" else 1

    def _at_mark(self, task: NodeTask) -> bool:
        """Whether the step that the node owes is the first behind a mark."""
        steps = path(self.plan.groups[task.group], task.direction)
        here = steps[task.cursor].phase
        before = all(step.phase in SAFE_PHASES for step in steps[: task.cursor])
        return here == "uncordon" or (before and here not in SAFE_PHASES)

    def _chunks(self, tasks: Iterable[NodeTask]) -> list[Do]:
        """Equal steps of one group in one move: one node for a canary or one card at a time, else up to a chunk."""
        size = _number(self.plan, "chunk", 16)
        rows: dict[tuple[int, Direction, int, int, bool, bool], list[str]] = {}
        for task in tasks:
            alone = task.wave == 0 and task.direction == "forward"
            key = (task.group, task.direction, task.cursor, task.attempt, bool(task.open), alone)
            rows.setdefault(key, []).append(task.node)
        moves = []
        for (group, direction, cursor, attempt, again, alone), names in rows.items():
            step = path(self.plan.groups[group], direction)[cursor]
            many = 1 if alone or step.delivery == "mcu" else max(1, size)
            for first in range(0, len(names), many):
                moves.append(Do(tuple(names[first : first + many]), group, direction, cursor, attempt, step, again))
        return moves

    def _opened(self, queued: Sequence[NodeTask]) -> Iterator[Move]:
        """What may begin, be judged, or must wait for its time."""
        request = self.snapshot.request
        if request == "pause":
            return
        home = {task.node for task in queued if task.direction == "return"}
        if home:
            yield Begin(self._units(home))
        if request or self._bad() > failure_limit(self.plan, self.snapshot.forgiven):
            return
        gate = self._gate()
        if gate is not None:
            yield from gate
            return
        ahead = [task for task in queued if task.direction == "forward"]
        if not ahead:
            return
        current = self._current()
        asked = self._unapproved(current)
        if asked:
            yield Halt(asked)
            return
        parked = self._parked()
        wait_s = _number(self.plan, "revisit_s", REVISIT_S)
        ready = {
            task.node
            for task in sorted(ahead, key=lambda t: (t.wave, t.node))
            if task.wave <= current
            and not (task.wave > 0 and self.cell(task) in parked)
            and (task.revisits == 0 or self.now - task.since >= wait_s)
        }
        units = self._units(ready)
        if units and self.snapshot.shut:
            yield Wait(f"window: {self.snapshot.shut}")
        elif units:
            yield Begin(units)
        elif any(task.revisits for task in ahead) and not any(task.begun for task in self.tasks):
            yield Wait(f"{REVISIT} {sum(task.revisits > 0 for task in ahead)} nodes wait for a later turn")

    def _units(self, names: Iterable[str]) -> tuple[tuple[str, ...], ...]:
        """Those names as units, in plan order; a unit of which a part is not ready waits whole."""
        ready = set(names)
        together = {name: unit for unit in self.snapshot.units for name in unit}
        found: dict[tuple[str, ...], None] = {}
        for name in (task.node for task in sorted(self.tasks, key=lambda t: (t.wave, t.node)) if task.node in ready):
            unit = together.get(name, (name,))
            late = [n for n in unit if n in self.by_node and n not in ready and not self.by_node[n].ended]
            if not late:
                found[tuple(n for n in unit if n in ready)] = None
        return tuple(found)

    def _bad(self) -> int:
        return sum(failing(task) for task in self.tasks)

    def _parked(self) -> set[str]:
        """Cells whose canary waits: for its jobs to end, or for a person."""
        if not self.canaries_count:
            return set()
        return {
            self.cell(task) for task in self.tasks
            if task.wave == 0 and ((task.queued and task.revisits > 0) or waits_for_person(task))
        }  # fmt: skip

    def _current(self) -> int:
        """The wave that is under way, or is the next to begin. Nodes that wait for a later turn do not hold it up."""
        parked = self._parked()
        waves = [
            task.wave for task in self.tasks
            if not task.ended and task.direction != "return" and not (task.queued and task.revisits > 0)
            and not (task.wave > 0 and self.cell(task) in parked)
        ]  # fmt: skip
        return min(waves, default=max((task.wave for task in self.tasks), default=0))

    def _gate(self) -> list[Move] | None:
        """What the gate of an ended wave demands; None = all of them are open, as far as waves have ended."""
        if self.plan.policy.get("gate") is False:
            return None
        current = self._current()
        for wave in sorted({task.wave for task in self.tasks}):
            if wave > current or (wave == current and self._under_way(wave)):
                return None
            judged = self.snapshot.gates.get(wave, {})
            fresh: dict[str, list[NodeTask]] = {}
            for task in self.tasks:
                if task.wave == wave and task.state == "done" and self.cell(task) not in judged:
                    fresh.setdefault(self.cell(task), []).append(task)
            if fresh:
                return self._judged(wave, fresh)
            for said in judged.values():
                if not said.open and not lost_early(wave, said):
                    return [Halt(f"gate: wave {wave + 1}: {said.verdict}: {said.reason}")]
        return None

    def _under_way(self, wave: int) -> bool:
        parked = self._parked()
        return any(
            task.wave == wave and not task.ended and task.direction != "return"
            and not (task.queued and task.revisits > 0) and not (wave > 0 and self.cell(task) in parked)
            for task in self.tasks
        )  # fmt: skip

    def _judged(self, wave: int, fresh: Mapping[str, Sequence[NodeTask]]) -> list[Move]:
        soaked = max(task.since for tasks in fresh.values() for task in tasks) + _number(self.plan, "soak_s", 0)
        if self.now < soaked:
            when = datetime.fromtimestamp(soaked, UTC).strftime("%H:%M:%SZ")
            return [Wait(f"soak: wave {wave + 1} is watched until {when}")]
        if self.snapshot.judging:
            return [Wait(f"gate: wave {wave + 1} is being looked at")]
        untouched: dict[str, list[str]] = {}
        for task in self.tasks:
            if task.queued and task.direction == "forward" and task.attempt == 1:
                untouched.setdefault(self.cell(task), []).append(task.node)
        names = {cell: tuple(task.node for task in tasks) for cell, tasks in fresh.items()}
        control = {cell: sample(untouched.get(cell, []), len(names[cell])) for cell in names}
        return [Judge(wave, names, control)]

    def _unapproved(self, current: int) -> str:
        """Why a person must say yes first, or ""."""
        asked = self.plan.policy.get("approve")
        stage = next(
            (
                stage for stage in (asked if isinstance(asked, list | tuple) else ())
                if stage not in self.snapshot.approved and (stage == "start" or current > 0)
            ),
            None,
        )  # fmt: skip
        if stage is None:
            return ""
        if self.snapshot.refused:
            return f"approval: {self.snapshot.refused}"
        what = "to begin" if stage == "start" else "to go on after the canaries"
        return f"approval: plan {self.plan.id} waits for a yes {what}: fleet rollout approve"

    def _rest(self, queued: Sequence[NodeTask]) -> Iterator[Move]:
        """Nothing is under way, and nothing may begin."""
        if not queued:
            yield self._end()
            return
        bad, limit = self._bad(), failure_limit(self.plan, self.snapshot.forgiven)
        if bad > limit:
            yield Halt(f"{bad} nodes failed, more than the {limit} allowed")
        elif self.snapshot.request == "pause":
            yield Halt("paused by the operator")
        elif any(waits_for_person(task) for task in self.tasks):
            yield self._for_people()

    def _for_people(self) -> Halt:
        people = [task for task in self.tasks if waits_for_person(task)]
        return Halt(f"{len(people)} nodes wait for a person, first {people[0].node}: {people[0].next_action}")

    def _end(self) -> Move:
        request = self.snapshot.request
        if any(waits_for_person(task) for task in self.tasks):
            return self._for_people()
        if request == "abort":
            return Finish("aborted", "aborted by the operator")
        if request == "rollback":
            stay = [task.node for task in self.tasks if task.state == "done"]
            left = f"; {len(stay)} nodes have no way back, first {stay[0]}" if stay else ""
            return Finish("rolled-back" if not stay else "failed", f"rolled back by the operator{left}")
        return Finish("done" if all(task.state == "done" for task in self.tasks) else "failed")
