"""Plans for the simulated fleet of `fleet.lab.simulated`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleet.core.model import Node, Plan, Solution, Stage, VersionChange
from fleet.core.plan import Candidate, make
from fleet.core.policy import PlanPolicy
from fleet.lab.simulated import ACME, NOW, SimFleet, hands

__all__ = ["ACME", "NOW", "SimFleet", "hands", "plan", "solution"]


def solution(old: str = "1.0", new: str = "2.0", *, back: bool = True, reboot: Any = "reboot") -> Solution:
    """From one driver to another and back."""
    there = Stage((VersionChange("driver", old, new),), reboot)
    home = Stage((VersionChange("driver", new, old),), reboot)
    return Solution({"driver": new}, (there,) if old != new else (), (home,) if back else None, matrix="sha256:m")


def plan(fleet: SimFleet, nodes: Sequence[Node], answer: Solution | None = None, **policy: Any) -> Plan:
    """A plan of those nodes to driver 2.0; budgets wide open unless given."""
    rules = PlanPolicy(**{"wish": {"driver": "2.0"}, "limits": {"fleet": "100%"}, **policy})
    candidates = [Candidate(node, fleet.facts(node.name), answer or solution()) for node in nodes]
    return make(candidates, {"acme": ACME}, lambda _: True, rules, "sha256:m", NOW)
