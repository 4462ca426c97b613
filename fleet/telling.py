"""What is told of a rollout while it is carried out: evidence for later, a line for whoever watches now."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fleet.core.model import Json
from fleet.core.task import State
from fleet.evidence import EvidenceStore, Origin


@dataclass(frozen=True)
class Transition:
    """One line for whoever watches. `was` and `now` are node states, empty for a line on the rollout itself."""

    rollout: str
    node: str
    was: State | str
    now: State | str
    step: str
    result: str
    reason: str


class Telling:
    """The two of them. `now` gives ISO 8601."""

    def __init__(
        self, evidence: EvidenceStore, origin: Origin, now: Callable[[], str], watch: Callable[[Transition], None]
    ) -> None:
        self.evidence = evidence
        self.origin = origin
        self.now = now
        self.watch = watch
        self._told: dict[str, str] = {}

    def note(self, rollout: str, kind: str, body: Mapping[str, Json]) -> None:
        """Add a record to the evidence of a rollout."""
        self.evidence.append(rollout, self.now(), self.origin, kind, body)

    def say(self, rollout: str, node: str, was: str, now: str, step: str, result: str, reason: str) -> None:
        """One line."""
        self.watch(Transition(rollout, node, was, now, step, result, reason))

    def once(self, rollout: str, text: str) -> None:
        """A line on the rollout itself, unless it was the last such line."""
        if self._told.get(rollout) != text:
            self._told[rollout] = text
            self.say(rollout, "", "", "", "", "", text)


def trace(error: BaseException) -> str:
    """Where a fault of fleet itself happened, for the evidence."""
    return "".join(traceback.format_exception(error))
