"""A rollout as the rules of going on see it: the tasks as they become by decisions alone. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from fleet.core.budget import Limit
from fleet.core.gate import Judgement
from fleet.core.model import Plan
from fleet.core.move import Snapshot
from fleet.core.plan import cell_of
from fleet.core.task import NodeTask, failing, waits_for_person

EARLY = 1  # the canaries and the first wave: what they touched goes back when they fail


def failure_limit(plan: Plan, forgiven: int = 0) -> int:
    """How many nodes may fail before nothing new begins."""
    total = sum(len(wave) for wave in plan.waves)
    return Limit.parse(str(plan.policy.get("max_failures", "13%"))).of(total) + forgiven


def number(plan: Plan, name: str, default: int) -> int:
    """A whole number of the policy."""
    value = plan.policy.get(name, default)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def lost_early(wave: int, said: Judgement) -> bool:
    """Whether that verdict takes the cell back: a person is not asked."""
    return wave <= EARLY and (said.verdict == "fail" or (said.verdict == "no-data" and wave == 0))


class View:
    """One look at a rollout; `settle` is how a decision on a node becomes part of it."""

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
        """The tasks as they are by now."""
        return self.by_node.values()

    def cell(self, task: NodeTask) -> str:
        """The hardware cell of a node."""
        return self.cells[task.group]

    def settle(self, tasks: Iterable[NodeTask]) -> None:
        """These tasks hold from now on; a node with a step under way is decided on when that has ended."""
        for task in list(tasks):
            if task.node not in self.snapshot.busy and task != self.by_node[task.node]:
                self.by_node[task.node] = self.changed[task.node] = task

    def bad(self) -> int:
        """How many nodes failed or are on their way back."""
        return sum(failing(task) for task in self.tasks)

    def stopped(self) -> bool:
        """Whether more nodes failed than may."""
        return self.bad() > failure_limit(self.plan, self.snapshot.forgiven)

    def parked(self) -> set[str]:
        """Cells whose canary waits: for its jobs to end, or for a person."""
        if not self.canaries_count:
            return set()
        return {
            self.cell(task) for task in self.tasks
            if task.wave == 0 and ((task.queued and task.revisits > 0) or waits_for_person(task))
        }  # fmt: skip

    def pending(self) -> set[int]:
        """The waves that have not ended. Nodes that wait for a later turn do not hold up a wave."""
        parked = self.parked()
        return {
            task.wave for task in self.tasks
            if not task.ended and task.direction != "return" and not (task.queued and task.revisits > 0)
            and not (task.wave > 0 and self.cell(task) in parked)
        }  # fmt: skip

    def current(self) -> int:
        """The wave that is under way, or is the next to begin."""
        return min(self.pending(), default=max((task.wave for task in self.tasks), default=0))
