"""What the operator decides about a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fleet.core.model import Json


@dataclass(frozen=True)
class PlanPolicy:
    """What the operator decided; it becomes part of the plan's content.

    `limits` maps a kind of domain to a limit of fleet.core.budget; `max_failures` is such a limit over the plan.
    """

    wish: Mapping[str, str]
    limits: Mapping[str, str]
    max_failures: str = "13%"  # one in eight
    ignore_canary: bool = False
    no_return: bool = False
    drained: bool = False  # a drain adapter is configured: look for holders only after it
    drain_limit_s: int = 3600  # how long running jobs are waited for
    chunk: int = 16
    delivery: Mapping[str, str] | None = None
    gate: bool = True  # look at each wave beside untouched nodes before the next
    soak_s: int = 0  # how long a wave is left alone before it is looked at
    revisits: int = 2  # later turns for a node whose jobs outlast the drain
    revisit_s: int = 1800  # between two of them
    approve: tuple[str, ...] = ()  # stages of fleet.core.move.STAGES that a person must say yes to
    windows: tuple[str, ...] = ()  # see fleet.core.window
    window_margin_s: int = 3600  # nothing begins when a window closes sooner than this
    wave_by: str = "rack"  # the kind of domain that a wave takes whole
    split: bool = False  # a part of an NVLink domain or SuperPod may go without the rest

    def as_dict(self) -> dict[str, Json]:
        """The policy as plain JSON, for the plan."""
        return {
            "wish": dict(self.wish),
            "limits": dict(self.limits),
            "max_failures": self.max_failures,
            "ignore_canary": self.ignore_canary,
            "no_return": self.no_return,
            "drained": self.drained,
            **({"drain_limit_s": self.drain_limit_s} if self.drain_limit_s != PlanPolicy.drain_limit_s else {}),
            "chunk": self.chunk,
            "delivery": dict(self.delivery or {}),
            "gate": self.gate,
            "soak_s": self.soak_s,
            "revisits": self.revisits,
            "revisit_s": self.revisit_s,
            "approve": list(self.approve),
            "windows": list(self.windows),
            "window_margin_s": self.window_margin_s,
            "wave_by": self.wave_by,
            "split": self.split,
        }
