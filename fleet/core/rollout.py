"""A plan being carried out: what may be done next. A pure function of a snapshot; a node's own way is fleet.core.task.

Rules of going on: wave after wave, each after the gate of the one before has passed. The canaries (wave 0) speak for
their hardware cell: when one fails, or its gate does, the rest of that cell is held, unless the policy says
`ignore_canary`. What was touched in the canaries and the first wave goes back; what later waves touched is kept. When
more nodes than `max_failures` failed, nothing new begins and the rollout is paused. Nodes that move together begin,
are changed, return to service and go back together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from fleet.core.gate import sample
from fleet.core.move import (
    FINISHED,
    GOING_BACK,
    KILLING,
    PAUSING,
    Begin,
    Change,
    Do,
    Finish,
    Halt,
    Judge,
    Move,
    Snapshot,
    Wait,
)
from fleet.core.stages import SAFE_PHASES
from fleet.core.task import REVISIT, Direction, NodeTask, kept, path, waits_for_person
from fleet.core.turning import condemned, obeyed, promoted, together, worn_out
from fleet.core.view import View, failure_limit, lost_early, number

REVISIT_S = 1800


def next_moves(snapshot: Snapshot, now: float) -> tuple[Move, ...]:
    """What may be done now, bookkeeping first. Empty = wait for what is running, or for time to pass."""
    return () if snapshot.state in FINISHED else tuple(_moves(View(snapshot, now)))


def _moves(view: View) -> Iterator[Move]:
    for decide in (obeyed, condemned, together, worn_out, promoted):
        view.settle(decide(view))
    if view.changed:  # stored first: what follows from it is asked at the next tick, which comes at once
        yield from (Change(task) for task in view.changed.values())
        return
    active = [task for task in view.tasks if task.begun]
    if view.snapshot.request in KILLING:
        if not active:
            yield Halt("killed by the operator: what was under way stands where it was cut off")
        return
    barred = _barred(view)
    yield from _chunks(view, [t for t in active if t.node not in view.snapshot.busy and t.node not in barred])
    queued = [task for task in view.tasks if task.queued]
    running = view.snapshot.state == "running" or view.snapshot.request == "abort"
    working = [task for task in active if task.node not in barred]  # the others wait for somebody of their unit
    opened = list(_opened(view, queued)) if running else []
    if working:  # a paused rollout has nothing under way: it is driven by nobody until a person acts
        opened = [Wait(move.reason) if isinstance(move, Halt) else move for move in opened]
    yield from opened
    if not working and not opened:
        yield from _rest(view, queued)


def _barred(view: View) -> set[str]:
    """Nodes that wait for the others of their unit: before the first change, and before the return to service.

    Those on their way there wait for each other, and so do those on their way back.
    """
    out: set[str] = set()
    for unit in view.snapshot.units:
        there = [view.by_node[name] for name in unit if name in view.by_node]
        for forward in (True, False):
            same = [t for t in there if (t.begun or waits_for_person(t)) and (t.direction == "forward") is forward]
            slowest = min((_mark(view, task) for task in same), default=0)
            out |= {t.node for t in same if t.begun and _mark(view, t) > slowest and _at_mark(view, t)}
    return out


def _mark(view: View, task: NodeTask) -> int:
    """0 before the first change, 1 while it is being changed, 2 when only the return to service is owed."""
    if task.queued:
        return 0
    steps = path(view.plan.groups[task.group], task.direction)
    here = steps[min(task.cursor, len(steps) - 1)].phase if steps else "uncordon"
    if here == "uncordon":
        return 2
    before = all(step.phase in SAFE_PHASES for step in steps[: task.cursor])
    return 0 if before and here in SAFE_PHASES and task.direction != "back" else 1


def _at_mark(view: View, task: NodeTask) -> bool:
    """Whether the step that the node owes is the first behind a mark."""
    steps = path(view.plan.groups[task.group], task.direction)
    here = steps[task.cursor].phase
    before = all(step.phase in SAFE_PHASES for step in steps[: task.cursor])
    return here == "uncordon" or (before and here not in SAFE_PHASES)


def _chunks(view: View, tasks: Sequence[NodeTask]) -> list[Do]:
    """Equal steps of one group in one move: one node for a canary or one card at a time, else up to a chunk."""
    size = number(view.plan, "chunk", 16)
    rows: dict[tuple[int, Direction, int, int, bool, bool], list[str]] = {}
    for task in tasks:
        alone = task.wave == 0 and task.direction == "forward"
        key = (task.group, task.direction, task.cursor, task.attempt, bool(task.open), alone)
        rows.setdefault(key, []).append(task.node)
    moves = []
    for (group, direction, cursor, attempt, again, alone), names in rows.items():
        step = path(view.plan.groups[group], direction)[cursor]
        many = 1 if alone or step.delivery == "mcu" else max(1, size)
        for first in range(0, len(names), many):
            moves.append(Do(tuple(names[first : first + many]), group, direction, cursor, attempt, step, again))
    return moves


def _opened(view: View, queued: Sequence[NodeTask]) -> Iterator[Move]:
    """What may begin, be judged, or must wait for its time."""
    request = view.snapshot.request
    if request in PAUSING:
        return
    home = _units(view, {task.node for task in queued if task.direction == "return"})
    if home:  # what goes back goes first: nothing else may pause it before it has begun
        yield Begin(home)
        return
    if request or view.stopped():
        return
    gate = _gate(view)
    if gate is not None:
        yield from gate
        return
    ahead = [task for task in queued if task.direction == "forward"]
    if not ahead:
        return
    current = view.current()
    asked = _unapproved(view, current)
    if asked:
        yield Halt(asked)
        return
    parked = view.parked()
    wait_s = number(view.plan, "revisit_s", REVISIT_S)
    ready = {
        task.node
        for task in sorted(ahead, key=lambda t: (t.wave, t.node))
        if task.wave <= current
        and not (task.wave > 0 and view.cell(task) in parked)
        and (task.revisits == 0 or view.now - task.since >= wait_s)
    }
    units = _units(view, ready)
    if units and view.snapshot.shut:
        yield Wait(f"window: {view.snapshot.shut}")
    elif units:
        yield Begin(units)
    elif any(task.revisits for task in ahead) and not any(task.begun for task in view.tasks):
        yield Wait(f"{REVISIT} {sum(task.revisits > 0 for task in ahead)} nodes wait for a later turn")


def _units(view: View, names: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Those names as units, in plan order; a unit of which a part is not ready waits whole."""
    ready = set(names)
    together = {name: unit for unit in view.snapshot.units for name in unit}
    found: dict[tuple[str, ...], None] = {}
    for name in (task.node for task in sorted(view.tasks, key=lambda t: (t.wave, t.node)) if task.node in ready):
        unit = together.get(name, (name,))
        late = [n for n in unit if n in view.by_node and n not in ready and not view.by_node[n].ended]
        if not late:
            found[tuple(n for n in unit if n in ready)] = None
    return tuple(found)


def _gate(view: View) -> list[Move] | None:
    """What the gate of an ended wave demands; None = all of them are open, as far as waves have ended."""
    if view.plan.policy.get("gate") is False:
        return None
    current, pending = view.current(), view.pending()
    for wave in sorted({task.wave for task in view.tasks}):
        if wave > current or wave in pending:
            return None
        judged = view.snapshot.gates.get(wave, {})
        fresh: dict[str, list[NodeTask]] = {}
        for task in view.tasks:
            if task.wave == wave and task.state == "done" and view.cell(task) not in judged:
                fresh.setdefault(view.cell(task), []).append(task)
        if fresh:
            return _judged(view, wave, fresh)
        for said in judged.values():
            if not said.open and not lost_early(wave, said):
                return [Halt(f"gate: wave {wave + 1}: {said.verdict}: {said.reason}")]
    return None


def _judged(view: View, wave: int, fresh: Mapping[str, Sequence[NodeTask]]) -> list[Move]:
    soaked = max(task.since for tasks in fresh.values() for task in tasks) + number(view.plan, "soak_s", 0)
    if view.now < soaked:
        when = datetime.fromtimestamp(soaked, UTC).strftime("%H:%M:%SZ")
        return [Wait(f"soak: wave {wave + 1} is watched until {when}")]
    if view.snapshot.judging:
        return [Wait(f"gate: wave {wave + 1} is being looked at")]
    untouched: dict[str, list[str]] = {}
    for task in view.tasks:
        if task.queued and task.direction == "forward" and task.attempt == 1:
            untouched.setdefault(view.cell(task), []).append(task.node)
    names = {cell: tuple(task.node for task in tasks) for cell, tasks in fresh.items()}
    control = {cell: sample(untouched.get(cell, []), len(names[cell])) for cell in names}
    return [Judge(wave, names, control)]


def _unapproved(view: View, current: int) -> str:
    """Why a person must say yes first, or ""."""
    asked = view.plan.policy.get("approve")
    stage = next(
        (
            stage for stage in (asked if isinstance(asked, list | tuple) else ())
            if stage not in view.snapshot.approved and (stage == "start" or current > 0)
        ),
        None,
    )  # fmt: skip
    if stage is None:
        return ""
    if view.snapshot.refused:
        return f"approval: {view.snapshot.refused}"
    what = "to begin" if stage == "start" else "to go on after the canaries"
    return f"approval: plan {view.plan.id} waits for a yes {what}: fleet rollout approve ROLLOUT --stage {stage}"


def _rest(view: View, queued: Sequence[NodeTask]) -> Iterator[Move]:
    """Nothing is under way, and nothing may begin."""
    if not queued:
        yield _end(view)
        return
    bad, limit = view.bad(), failure_limit(view.plan, view.snapshot.forgiven)
    if bad > limit:
        yield Halt(f"{bad} nodes failed, more than the {limit} allowed")
    elif view.snapshot.request in PAUSING:
        yield Halt("paused by the operator")
    elif any(waits_for_person(task) for task in view.tasks):
        yield _for_people(view)


def _for_people(view: View) -> Halt:
    people = [task for task in view.tasks if waits_for_person(task)]
    return Halt(f"{len(people)} nodes wait for a person, first {people[0].node}: {people[0].next_action}")


def _end(view: View) -> Move:
    request = view.snapshot.request
    if any(waits_for_person(task) for task in view.tasks):
        return _for_people(view)
    if request == "abort":
        return Finish("aborted", "aborted by the operator")
    if request in GOING_BACK:
        stay = [task for task in view.tasks if kept(task)]
        why = f" ({stay[0].reason or 'there is no way back'})" if stay else ""
        left = f"; {len(stay)} nodes have not gone back, first {stay[0].node}{why}" if stay else ""
        return Finish("rolled-back" if not stay else "failed", f"rolled back by the operator{left}")
    return Finish("done" if all(task.state == "done" for task in view.tasks) else "failed")
