"""What a step is done with, on what, and what it comes to: the doors to the world, the nodes, the move, the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fleet.core.errors import FleetError
from fleet.core.model import Json, Node, Step
from fleet.core.move import Do
from fleet.core.task import Outcome
from fleet.core.vendor import Vendor
from fleet.drain import Drain
from fleet.playbook import Playbook, Staged
from fleet.power import Power
from fleet.probe import Probed
from fleet.remote import Transport

POLL_S = 3.0


class Cut(Exception):  # no error: a person has said stop
    """The step was left where it stood; what it came to is not known."""


@dataclass(frozen=True)
class Hands:
    """Every door that an acting step goes through. `look` probes; `now` gives ISO 8601; `sudo` as for probes.

    `clock` is seconds since the epoch, `elapsed` seconds that no one can set: what a step waits for is measured by it.
    """

    look: Callable[[Sequence[Node]], Iterator[Probed]]
    transport: Transport
    playbook: Playbook
    power: Power
    drain: Drain
    vendors: Mapping[str, Vendor]
    artifact: Callable[[str], Staged]
    clock: Callable[[], float]
    now: Callable[[], str]
    sleep: Callable[[float], None]
    sudo: bool = True
    elapsed: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Subject:
    """One node as a step finds it. `start` = the digest it must have at the first step; `prior` as stored."""

    node: Node
    start: str
    given: frozenset[str] = frozenset()
    boot_id: str = ""
    prior: Mapping[str, Json] = field(default_factory=dict)
    now: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Did:
    """What a step came to on one node, and what was seen on the way."""

    outcome: Outcome
    probed: Probed | None = None
    prior: Mapping[str, Json] | None = None
    output: str = ""


@dataclass(frozen=True)
class Act:
    """A step to be done: the move, its nodes, and under which names and numbers."""

    move: Do
    vendor: str
    subjects: Mapping[str, Subject]
    rollout: str
    fence: int
    cut: Callable[[], bool] = lambda: False
    ours: Callable[[], bool] = lambda: True  # asked around each call of a scheduler: it knows no fence to refuse us by
    serves: Callable[[str], bool | None] = lambda _: False  # what another process made of a node; None = not known yet

    @property
    def step(self) -> Step:
        """The step of the move."""
        return self.move.step

    @property
    def step_id(self) -> str:
        """The name under which nodes remember it: the same for every start of one attempt."""
        return f"{self.rollout}.{self.move.direction[0]}{self.move.cursor}.{self.move.attempt}"

    @property
    def token(self) -> str:
        """What our cordons carry."""
        return f"fleet:{self.rollout}"


def nap(hands: Hands, act: Act) -> None:
    """Wait a little between two looks."""
    if act.cut():
        raise Cut
    hands.sleep(POLL_S)


def look(hands: Hands, subjects: Iterable[Subject]) -> dict[str, Probed]:
    """A fresh probe of each."""
    return {probed.name: probed for probed in hands.look([subject.node for subject in subjects])}


def told(error: FleetError) -> Outcome:
    """What an error comes to for the node that met it."""
    reason = f"{error.slug}: {error.what}" + (f" ({error.cause})" if error.cause else "")
    return Outcome("failed", reason, "operator", error.hint)
