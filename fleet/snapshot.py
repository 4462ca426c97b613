"""All that the next moves of a rollout depend on, read from its rows."""

from __future__ import annotations

from collections.abc import Mapping

from fleet.core.model import Plan
from fleet.core.move import Snapshot
from fleet.core.window import shut, windows_of
from fleet.inventory.rollouts import Rollout, Rollouts, Stored


def snapshot_of(
    store: Rollouts, row: Rollout, plan: Plan, tasks: Mapping[str, Stored], busy: frozenset[str], now: float, *,
    judging: bool,
) -> Snapshot:  # fmt: skip
    """The rollout at `now`. `busy` nodes have a step under way here; `judging` = a gate is being looked at."""
    windows, margin_s = windows_of(plan.policy)
    said = store.approvals(row) if plan.policy.get("approve") else []
    last = {approval.stage: approval for approval in said}
    no = next((a for a in last.values() if a.refusal), None)
    return Snapshot(
        plan=plan,
        state=row.state,
        tasks=tuple(stored.task for stored in tasks.values()),
        request=row.request,
        forgiven=row.forgiven,
        busy=busy,
        units=row.units,
        gates={wave.number: wave.gate for wave in store.waves(row.id) if wave.gate},
        judging=judging,
        approved=frozenset(stage for stage, a in last.items() if not a.refusal),
        refused=no.refusal if no is not None else "",
        shut=shut(windows, now, margin_s),
    )
