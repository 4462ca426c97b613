"""The engine's port: who calls `tick` until a rollout rests, on which machine, after which crash.

An engine holds no truth: ids go in, and every decision is made from our own tables inside `tick`. So losing an engine
costs a `fleet rollout resume`, and another adapter takes the place of this one when it passes the same suite
(tests/engine/contract.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from fleet.inventory.rollouts import Lease

PROTOCOL = "2"
"""Raised by hand when processes of two versions of this program could not drive the same rollouts side by side."""

Signal = Literal["pause", "resume", "abort", "rollback", "kill"]


@dataclass(frozen=True)
class Progress:
    """What one tick came to. `resting` = nothing more happens before a person or a signal acts, or ever.

    `wait_s` is how long the next tick may wait: 0 = at once. `busy` = steps are under way that a later tick records.
    """

    resting: bool
    wait_s: float = 0.0
    busy: bool = False


@dataclass(frozen=True)
class Running:
    """One rollout as an engine sees it. `owner` is empty when no living process drives it."""

    rollout: str
    owner: str
    fence: int


Tick: TypeAlias = Callable[[str, Lease, bool], Progress]
"""(rollout, our lease, wind down) -> progress. Winding down means: begin nothing, record what is under way."""


Ended: TypeAlias = Callable[[Exception | None], None]
"""Told that a rollout is driven here no longer, and what its driving ran into. It must not block."""


class Engine(Protocol):
    """Executes rollouts. `owner` is its name among the holders of leases."""

    owner: str

    def submit(self, rollout: str) -> None:
        """See that the rollout is driven until it rests. Submitting what is driven already raises Locked."""
        ...

    def begin(self, rollout: str, ended: Ended) -> None:
        """As `submit`, without waiting and without a thread for each rollout; `ended` is called once, when it is over.

        What the engine took up by itself, after a restart, is joined.
        """
        ...

    def signal(self, rollout: str, signal: Signal) -> None:
        """Ask something of a rollout; whoever drives it obeys: at the next safe point, and to `kill` at once."""
        ...

    def cancel(self, rollout: str) -> None:
        """Stop driving the rollout here after the running steps; its state stays, another submit goes on."""
        ...

    def list(self) -> list[Running]:
        """Every unfinished rollout."""
        ...

    def heal(self) -> Sequence[str]:
        """Take over the rollouts whose driver is dead; their ids."""
        ...
