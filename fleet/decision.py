"""What a person decides about a rollout: to start it, to go on, to try nodes again, to take everything back.

Each is one transaction under the lease and a line in the audit log; the loop of `fleet.upgrade` finds it in the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from fleet.core.model import Json, Plan
from fleet.core.nodeset import fold
from fleet.core.plan import cell_of, same_tables
from fleet.core.task import STAYS, NodeTask, failing, fell_short, reopened, retried, returning
from fleet.core.view import lost_early
from fleet.core.waves import units
from fleet.inventory.rollouts import Lease, Rollout
from fleet.upgrade import Upgrade


def start(upgrade: Upgrade, rollout: str, plan: Plan, command: str, matrix: str) -> Rollout:
    """Store a rollout of that plan. StalePlan when the tables changed; Locked for nodes of another rollout."""
    same_tables(plan, matrix)
    names = [name for wave in plan.waves for name in wave]
    split = plan.policy.get("split") is True
    together = [tuple(n.name for n in unit) for unit in units(upgrade.book.nodes(names)) if len(unit) > 1 and not split]
    at = upgrade.hands.now()
    made = upgrade.store.create(rollout, plan, command, together, upgrade.operator, at)
    detail = {"rollout": rollout, "plan": plan.id, "nodes": fold(names)}
    upgrade.book.audit(upgrade.operator, "rollout start", at, detail)
    upgrade.telling.note(rollout, "start", {"plan": plan.id, "matrix": plan.matrix, "nodes": list(names)})
    return made


def reopen(upgrade: Upgrade, rollout: str, lease: Lease) -> None:
    """Go on. What failed is accepted, and what a gate asked about; nodes that waited for hands owe their step again.

    An abort or a rollback that was under way goes on as such.
    """
    row = upgrade.store.rollout(rollout)
    plan, tasks = upgrade.plan(row.plan), upgrade.store.tasks(rollout)
    now = upgrade.hands.clock()
    changed = [reopened(plan.groups[s.task.group], s.task, now) for s in tasks.values()]
    accepted = {
        wave.number: {cell: replace(j, accepted=not lost_early(wave.number, j)) for cell, j in wave.gate.items()}
        for wave in upgrade.store.waves(rollout)
        if any(not j.open for j in wave.gate.values())
    }
    moved = [task for task in changed if task != tasks[task.node].task]
    upgrade.store.reopen(lease, moved, sum(map(failing, changed)), accepted)
    _told(upgrade, row, "resume")


def retry(upgrade: Upgrade, rollout: str, lease: Lease, names: Iterable[str]) -> list[str]:
    """Once more, for nodes whose part ended without the new stack; all that are tried again, by name.

    Whoever moves together with one of them is tried again too. The gates of their cells are judged anew. Failures of
    other nodes are not accepted by it: they count as they did.
    """
    row = upgrade.store.rollout(rollout)
    tasks = {name: stored.task for name, stored in upgrade.store.tasks(rollout).items()}
    again = triable(row, tasks, names)
    now = upgrade.hands.clock()
    changed = {name: retried(task, now) if name in again else task for name, task in tasks.items()}
    plan = upgrade.plan(row.plan)
    cells = {cell_of(plan.groups[tasks[name].group]) for name in again}
    gates = {
        wave.number: {cell: j for cell, j in wave.gate.items() if cell not in cells}
        for wave in upgrade.store.waves(rollout)
        if cells & set(wave.gate)
    }
    moved = [changed[name] for name in sorted(again)]
    forgiven = min(row.forgiven, sum(map(failing, changed.values())))
    upgrade.store.reopen(lease, moved, forgiven, gates, "")
    _told(upgrade, row, "retry", nodes=fold(again))
    return sorted(again)


def triable(row: Rollout, tasks: Mapping[str, NodeTask], names: Iterable[str]) -> set[str]:
    """Those of the names, and of what moves together with them, whose part ended without the new stack."""
    together = {name: unit for unit in row.units for name in unit}
    wanted = {other for name in names for other in together.get(name, (name,)) if other in tasks}
    return {name for name in wanted if fell_short(tasks[name])}


def roll_back(upgrade: Upgrade, rollout: str, lease: Lease) -> None:
    """All back, by the way back that was planned with the rollout; also when it is over."""
    row = upgrade.store.rollout(rollout)
    plan, now = upgrade.plan(row.plan), upgrade.hands.clock()
    tasks = [stored.task for stored in upgrade.store.tasks(rollout).values()]
    why = "rolled back by the operator"
    again = {
        t.node: returning(plan.groups[t.group], t, why, now) for t in tasks if t.ended and t.reason.startswith(STAYS)
    }
    failures = sum(failing(again.get(task.node, task)) for task in tasks)
    upgrade.store.reopen(lease, again.values(), failures, {}, "rollback")
    _told(upgrade, row, "rollback")


def _told(upgrade: Upgrade, row: Rollout, what: str, **more: Json) -> None:
    detail: dict[str, Json] = {"rollout": row.id, "plan": row.plan, **more}
    upgrade.book.audit(upgrade.operator, f"rollout {what}", upgrade.hands.now(), detail)
    upgrade.telling.note(row.id, what, {"who": upgrade.operator, **more})
