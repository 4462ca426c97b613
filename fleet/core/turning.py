"""Decisions on nodes that follow from how a rollout stands: what was asked for, what failed, what moves together. Pure.

Each is a function of a view that yields the tasks as they become; nothing is done on a node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fleet.core.move import GOING_BACK, KILLING
from fleet.core.stages import SAFE_PHASES
from fleet.core.task import (
    BEFORE,
    REVISIT,
    STAYS,
    STRANGER,
    WITH,
    NodeTask,
    asked,
    failing,
    held,
    path,
    returning,
    staying,
    step_of,
    turn,
    waits_for_person,
    why_back,
)
from fleet.core.view import EARLY, View, lost_early, number

REVISITS = 2


def obeyed(view: View) -> Iterator[NodeTask]:
    """What the operator asked for."""
    request = view.snapshot.request
    if request in KILLING:
        for task in view.tasks:
            if task.begun:
                nxt = "fleet rollout resume takes it up where it stands, fleet rollout abort takes it back"
                cut = held(task, asked(task, f"ambiguous: killed while {task.state}"), nxt, view.now)
                yield replace(cut, open="intent")
        return
    if request not in GOING_BACK:
        return
    why = "aborted by the operator" if request == "abort" else "rolled back by the operator"
    for task in view.tasks:
        group = view.plan.groups[task.group]
        step = step_of(group, task)
        if waits_for_person(task):
            yield _given_up(view, task, why)
        elif task.state == "done" and request != "abort" and group.back is not None:
            yield returning(group, task, why, view.now)
        elif request == "abort" and task.queued and task.direction == "return":
            if not any(mate.begun for mate in _mates(view, task)):
                yield staying(group, task, f"{STAYS}{why}; {why_back(task)}", view.now)
        elif not task.ended and task.direction == "forward" and (step is None or step.phase != "uncordon"):
            yield turn(group, task, why, view.now, begun=bool(task.open))


def _mates(view: View, task: NodeTask) -> Iterator[NodeTask]:
    """The nodes that move together with this one, itself too."""
    unit = next((unit for unit in view.snapshot.units if task.node in unit), (task.node,))
    return (view.by_node[name] for name in unit if name in view.by_node)


def _given_up(view: View, task: NodeTask, why: str) -> NodeTask:
    """A node that waited for a person goes back, unless nobody knows whether that can be done blindly."""
    group = view.plan.groups[task.group]
    step = path(group, task.direction)[task.cursor]
    unsure = step.effect == "one_way" and task.reason.startswith("ambiguous:")
    unsure = unsure or task.reason.startswith(STRANGER)
    if task.direction == "forward" and not unsure:
        return turn(group, task, f"{why}{BEFORE}{task.reason}", view.now)
    nxt = task.next_action or f"look at {task.node}: fleet probe {task.node}"
    return replace(task, state="failed", open="", since=view.now, limit_s=0, reason=f"{why}; {task.reason}",
                   next_action=nxt)  # fmt: skip


def condemned(view: View) -> Iterator[NodeTask]:
    """Hardware cells whose canary or first wave failed: the rest is held, what was touched goes back."""
    bad = {} if view.snapshot.request in GOING_BACK else _bad_cells(view)
    for task in view.tasks:
        why = bad.get(view.cell(task))
        if why is None:
            continue
        reason, first = why
        group = view.plan.groups[task.group]
        if task.queued and task.direction == "forward" and reason:
            nxt = f"see why {first} failed, then fleet upgrade {task.node} again"
            yield held(task, reason, nxt, view.now)
        elif task.state == "done" and task.wave <= EARLY and group.back is not None:
            yield returning(group, task, f"first-wave: {first} failed", view.now)


def _bad_cells(view: View) -> dict[str, tuple[str, str]]:
    """Cell -> (why its other nodes are held, or "" when they merely wait; the node or gate that failed)."""
    found: dict[str, tuple[str, str]] = {}
    failed = [task for task in view.tasks if failing(task)]
    if view.canaries_count:
        for task in failed:
            if task.wave == 0:
                found.setdefault(view.cell(task), (f"canary: {task.node} failed", task.node))
    for wave, judged in view.snapshot.gates.items():
        for cell, said in judged.items():
            counts = wave > 0 or view.canaries_count
            if lost_early(wave, said) and counts and not said.accepted:
                found.setdefault(cell, (f"gate: wave {wave + 1}: {said.reason}", f"wave {wave + 1}"))
    if view.canaries_count and view.stopped() and view.current() <= EARLY:
        for task in failed:
            if task.wave <= EARLY:
                found.setdefault(view.cell(task), ("", task.node))
    return found


def together(view: View) -> Iterator[NodeTask]:
    """When one of the nodes that move together turns, the others do."""
    for unit in view.snapshot.units:
        members = [view.by_node[name] for name in unit if name in view.by_node]
        stays = next((m for m in members if m.reason.startswith(STAYS)), None)
        if stays is not None:
            why = f"{STAYS}{WITH}{stays.node}: {stays.reason.removeprefix(STAYS)}"
            yield from (staying(view.plan.groups[m.group], m, why, view.now) for m in members if _could_stay(view, m))
            continue
        first = next((m for m in members if _turned(view, m)), None)
        if first is None:
            continue
        why = f"{WITH}{first.node}: {first.reason}"
        later = first.reason.startswith(REVISIT)
        for task in members:
            group = view.plan.groups[task.group]
            if task.state == "done" and first.direction in ("back", "return") and group.back is not None:
                yield returning(group, task, why, view.now)
            elif task.direction == "forward" and not task.ended and (task.begun or not later):
                yield turn(group, task, f"{REVISIT} {why}" if later else why, view.now, begun=bool(task.open))


def _could_stay(view: View, task: NodeTask) -> bool:
    """Whether the node is to go back, and nothing has been changed on it for that yet."""
    if task.direction != "return" or (task.ended and not waits_for_person(task)):
        return False
    steps = path(view.plan.groups[task.group], "return")[: task.cursor + bool(task.open)]
    return all(step.phase in SAFE_PHASES for step in steps)


def _turned(view: View, task: NodeTask) -> bool:
    """Whether the node has given up, or was put off. One that merely could not return to service has not."""
    if task.state == "held":
        return not waits_for_person(task)
    if task.direction != "forward":
        return True
    if task.state == "failed":
        return path(view.plan.groups[task.group], "forward")[task.cursor].phase != "uncordon"
    return task.queued and task.revisits > 0


def worn_out(view: View) -> Iterator[NodeTask]:
    """Nodes whose jobs outlasted the drain too often are left to the operator."""
    for task in view.tasks:
        if task.queued and task.direction == "forward" and task.revisits > number(view.plan, "revisits", REVISITS):
            reason = task.reason if task.reason.startswith(REVISIT) else f"{REVISIT} {task.reason}"
            nxt = task.next_action or f"fleet upgrade {task.node} again once its jobs have ended"
            yield held(task, reason, nxt, view.now)


def promoted(view: View) -> Iterator[NodeTask]:
    """A cell whose canaries ended without having been tried gets the next of its nodes as canary."""
    if not view.canaries_count:
        return
    tried: set[str] = set()
    rest: dict[str, NodeTask] = {}
    for task in view.tasks:
        cell = view.cell(task)
        if task.wave == 0 and (task.state != "held" or waits_for_person(task)):
            tried.add(cell)
        elif task.wave > 0 and (not task.queued or task.direction != "forward"):
            if task.state != "held":
                tried.add(cell)
        elif task.queued and task.wave > 0:
            best = rest.setdefault(cell, task)
            if (task.wave, task.node) < (best.wave, best.node):
                rest[cell] = task
    together = {name: unit for unit in view.snapshot.units for name in unit}
    for cell, task in rest.items():
        if cell not in tried:
            for name in together.get(task.node, (task.node,)):
                if name in view.by_node and view.by_node[name].queued:
                    yield replace(view.by_node[name], wave=0)
