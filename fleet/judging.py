"""Looking at the nodes of an ended wave while the rollout goes its way, and storing what the gate said."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future

from fleet import gate
from fleet.act import Hands
from fleet.core.errors import FleetError
from fleet.core.model import Plan
from fleet.core.move import Judge
from fleet.core.plan import cell_of
from fleet.inventory.rollouts import Lease, Rollouts, Stored
from fleet.places import Book
from fleet.telling import Telling, trace


class Judging:
    """The looks of one process. A look that breaks down gives no verdict on any node and is taken again."""

    def __init__(self, store: Rollouts, book: Book, pool: Executor, telling: Telling, again_s: float) -> None:
        self.store = store
        self.book = book
        self.pool = pool
        self.telling = telling
        self.again_s = again_s
        self._looks: dict[str, tuple[Judge, Future[gate.Looked]]] = {}
        self._not_before: dict[str, float] = {}

    def looking(self, rollout: str) -> bool:
        """Whether a look is under way."""
        return rollout in self._looks

    def busy(self, rollout: str, now: float) -> bool:
        """Whether none is to be begun now."""
        return rollout in self._looks or self._not_before.get(rollout, 0.0) > now

    def look(self, hands: Hands, rollout: str, move: Judge, tasks: Mapping[str, Stored]) -> None:
        """Have the nodes of a wave looked at, from another thread: nothing is changed by it."""
        names = gate.names_of(move)
        nodes = {node.name: node for node in self.book.nodes() if node.name in names}
        counts = {name: len(facts.accelerators) for name, facts in self.book.facts(list(nodes)).items()}
        before = {name: tasks[name].prior.get("count") for some in move.treated.values() for name in some}
        counts |= {name: count for name, count in before.items() if isinstance(count, int)}
        self._looks[rollout] = move, self.pool.submit(gate.look, hands, move, nodes, counts)

    def collect(self, rollout: str, lease: Lease, plan: Callable[[], Plan], now: float) -> bool:
        """Store what a look came to, if one has ended; whether one had."""
        if rollout not in self._looks or not self._looks[rollout][1].done():
            return False
        self._passed(rollout, lease, plan(), now, *self._looks.pop(rollout))
        return True

    def _passed(
        self, rollout: str, lease: Lease, plan: Plan, now: float, move: Judge, future: Future[gate.Looked]
    ) -> None:
        error = future.exception()
        if error is not None:
            why = f"gate: wave {move.wave + 1}: the look failed: {error!r}"
            self._not_before[rollout] = now + self.again_s
            if self.store.rollout(rollout).reason != why:
                self.telling.note(rollout, "gate", {"wave": move.wave + 1, "error": trace(error)})
                self.store.set_reason(lease, why)
            self.telling.once(rollout, f"waiting: {why}")
            return
        looked = future.result()
        with contextlib.suppress(FleetError):  # a node that was removed meanwhile
            self.book.record(looked.facts, looked.raw)
        models = {cell_of(group): f"{group.vendor} {group.model}" for group in plan.groups}
        for cell, said in looked.judged.items():
            self.telling.note(rollout, "gate", gate.evidence_of(looked, move, cell))
            text = f"gate: wave {move.wave + 1}, {models.get(cell, cell)}: {said.verdict}: {said.reason}"
            self.telling.say(rollout, "", "", "", "gate", said.verdict, text)
        self.store.set_gate(lease, move.wave, looked.judged)
