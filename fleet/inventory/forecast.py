"""When rollouts will end, from what is stored: see `fleet.core.estimate` for how that is reckoned."""

from __future__ import annotations

from collections.abc import Iterable

from fleet.core.estimate import Estimate, History, Tally, estimate, estimate_plan
from fleet.core.model import Plan
from fleet.core.move import FINISHED
from fleet.inventory import history
from fleet.inventory.rollouts import Rollouts

PARALLEL = 4  # playbook runs at a time where the driver's number is not known: the default of the commands
FRESH_S = 60.0  # durations are learnt anew after this
KEPT = 16  # plans


class Forecast:
    """Estimates for the rollouts of one database; plans and durations are kept between questions."""

    def __init__(self, store: Rollouts, parallel: int = PARALLEL) -> None:
        self.store = store
        self.parallel = parallel
        self._plans: dict[str, Plan] = {}
        self._learnt: tuple[float, History, int] | None = None

    def of(self, plan: str, state: str, tallies: Iterable[Tally], now: float) -> Estimate:
        """How long a rollout of that plan and state will still take; nodes as counted in `tallies`."""
        if state in FINISHED:
            return Estimate(0.0, 0.0)
        if state != "running":
            return Estimate(None, why=f"the rollout is {state}")
        learnt, total = self._history(now)
        return estimate(self.plan(plan), tallies, learnt, self.parallel, now, total)

    def of_plan(self, plan: Plan, now: float) -> Estimate:
        """How long a plan would take that begins now."""
        learnt, total = self._history(now)
        return estimate_plan(plan, learnt, self.parallel, total, now)

    def plan(self, plan: str) -> Plan:
        """A stored plan. NotFound for an unknown id."""
        if plan not in self._plans:
            while len(self._plans) >= KEPT:
                self._plans.pop(next(iter(self._plans)))
            self._plans[plan] = self.store.plan(plan)
        return self._plans[plan]

    def _history(self, now: float) -> tuple[History, int]:
        if self._learnt is None or not 0 <= now - self._learnt[0] < FRESH_S:
            database = self.store.database
            self._learnt = now, history.durations(database), history.capacity(database)
        return self._learnt[1:]
