"""Places in the budgets: who serves nothing just now, and claims on what is left."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from fleet.act import Hands
from fleet.core.budget import Limit, Verdict, unavailable
from fleet.core.errors import NotFound
from fleet.core.model import Facts, Json, Lifecycle, Node
from fleet.core.task import NO_PLACE
from fleet.drain import Census
from fleet.inventory.rollouts import Lease, Rollouts


class Book(Protocol):
    """What the loop needs of the inventory: see `fleet.inventory.Inventory`. Raises NotFound for unknown names."""

    def nodes(self, names: Iterable[str] | None = None) -> list[Node]:
        """The nodes of these names, or all."""
        ...

    def facts(self, names: Iterable[str] | None = None) -> dict[str, Facts]:
        """node -> what it said last; of these names, or all."""
        ...

    def sick(self) -> set[str]:
        """Names of the nodes with an accelerator that is critical or lost."""
        ...

    def record(self, facts: Iterable[Facts], raw: Mapping[str, bytes] | None = None) -> int:
        """Store what nodes said, and raw outputs by digest."""
        ...

    def set_lifecycle(self, names: Iterable[str], state: Lifecycle) -> None:
        """Set the lifecycle state of nodes."""
        ...

    def audit(self, who: str, what: str, at: str, detail: Mapping[str, Json] | None = None) -> None:
        """Add a line to the audit log."""
        ...


class Places:
    """The places of one inventory, as one process sees them."""

    def __init__(self, store: Rollouts, book: Book, poll_s: float) -> None:
        self.store = store
        self.book = book
        self.poll_s = poll_s
        self._counted: tuple[float, Mapping[str, Node], set[str]] | None = None

    def claim(
        self, hands: Hands, lease: Lease, units: Sequence[Sequence[str]], limits: Mapping[str, Limit]
    ) -> tuple[tuple[tuple[str, ...], ...], dict[str, Verdict]]:
        """Take those units out of service as far as the budgets allow: (units taken, node -> why not).

        Raises FleetError when the scheduler cannot be asked which nodes serve.
        """
        before = self._counted
        admitted, refused = self._claim(hands, lease, units, limits)
        if refused and before is not None and self._counted is before:  # known of old: look again before anybody waits
            self._counted = None
            have = {tuple(unit) for unit in admitted}
            more, refused = self._claim(hands, lease, [u for u in units if tuple(u) not in have], limits)
            admitted = (*admitted, *more)
        return admitted, refused

    def _claim(
        self, hands: Hands, lease: Lease, units: Sequence[Sequence[str]], limits: Mapping[str, Limit]
    ) -> tuple[tuple[tuple[str, ...], ...], dict[str, Verdict]]:
        inventory, away = self._census(hands)
        return self.store.claim(lease, units, limits, inventory, away, hands.clock())

    def serves(self, name: str) -> None:
        """That node serves again: the next one need not wait for a census to take its place."""
        if self._counted is not None:
            self._counted[2].discard(name)

    def nodes(self, names: Collection[str]) -> dict[str, Node | None]:
        """Those nodes as they are now; None for one that is no longer in the inventory."""
        try:
            found = self.book.nodes(names)
        except NotFound:
            found = [node for node in self.book.nodes() if node.name in names]
        return {**dict.fromkeys(sorted(names)), **{node.name: node for node in found}}

    def _census(self, hands: Hands) -> tuple[Mapping[str, Node], set[str]]:
        """The inventory, and all that serve nothing, those of rollouts among them; as of `poll_s` ago at most.

        Places come free one after another, and a fleet has ten thousand nodes. Raises FleetError for a scheduler that
        cannot be asked.
        """
        now = hands.elapsed()
        if self._counted is None or not 0 <= now - self._counted[0] < self.poll_s:
            nodes = {node.name: node for node in self.book.nodes()}
            sick, at, drain = self.book.facts(self.book.sick()), hands.now(), hands.drain
            away = set(drain.away(list(nodes.values()))) if isinstance(drain, Census) else set()
            away |= {name for name, node in nodes.items() if unavailable(node, sick.get(name), at)}
            self._counted = now, nodes, away
        return self._counted[1:]


def no_place_because(verdict: Verdict, rollout: str) -> tuple[str, str]:
    """Why nodes got no place, and what a person may do about it."""
    if verdict.never:
        action = f"fleet rollout abort {rollout}, then fleet upgrade with a larger --max-unavailable"
        return f"{NO_PLACE} impossible: {verdict.reason}", action
    return f"{NO_PLACE} {verdict.reason}", f"bring nodes back into service, then fleet rollout resume {rollout}"
