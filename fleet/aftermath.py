"""What the end of a step, and of a node's part in a rollout, entails for what is stored."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from fleet import __version__
from fleet.act import Act, Did
from fleet.core.model import Json, Lifecycle
from fleet.core.plan import start_digest
from fleet.core.task import NodeTask
from fleet.inventory.rollouts import Result, Stored


@dataclass
class Running:
    """A step under way: its attempts and the tasks as they were, by node."""

    act: Act
    attempts: Mapping[str, int]
    tasks: Mapping[str, NodeTask]
    future: Future[dict[str, Did]]


def lifecycle(stored: Stored) -> Lifecycle:
    """The lifecycle state that a node has once its part is over."""
    task, prior = stored.task, str(stored.prior.get("lifecycle") or "ready")
    left_alone = task.direction == "leave" and task.cursor > 0  # nothing was touched, and it is back in service
    if task.state == "failed" and not left_alone:
        return "broken"
    if task.state == "done" and prior in ("broken", "maintenance"):
        return "ready"
    return prior  # type: ignore[return-value]  # it was one when it was stored


def anew(stored: Stored, lifecycle: Lifecycle) -> dict[str, Json]:
    """What is kept of a node that begins: what it is now, and which cards it had when it was first looked at."""
    lasting = {key: value for key, value in stored.prior.items() if key not in ("drain", "lifecycle")}
    return {**lasting, "lifecycle": lifecycle}


def result_of(run: Running, name: str, did: Did, task: NodeTask, output: str) -> Result:
    """The end of one attempt, for the tables. `output` = digest of what was said."""
    boot: str | None = None
    given: str | None = None
    if did.probed is not None and did.probed.facts is not None:
        boot = did.probed.facts.boot_id
        given = start_digest(did.probed.facts) if run.act.step.phase in ("verify", "validate") else None
    if run.act.step.phase == "reboot":
        boot = None  # the id before is what proves the restart; the next probe gives the new one
    return Result(
        run.attempts[name], did.outcome.result, task, did.outcome.reason, output, boot, did.prior, given,
    )  # fmt: skip


def evidence_of(act: Act, name: str, did: Did, output: str) -> dict[str, Json]:
    """The body of the record of one step on one node."""
    seen = did.probed
    return {
        "node": name,
        "fleet": __version__,
        "phase": act.step.phase,
        "direction": act.move.direction,
        "cursor": act.move.cursor,
        "step": act.step_id,
        "fence": act.fence,
        "changes": [[c.component, c.old, c.new] for c in act.step.changes],
        "artifacts": list(act.step.artifacts),
        "result": did.outcome.result,
        "reason": did.outcome.reason,
        "output": output,
        "current": dict(seen.facts.current()) if seen is not None and seen.facts is not None else {},
        "probe": seen.outcome if seen is not None else "",
    }
