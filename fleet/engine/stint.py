"""One stint: a rollout is driven under one lease until it rests. What both engines do is written here once.

A stint does not wait. `step` does one tick and says how long the next one may wait; whoever drives it waits as it can,
a thread on an event or a coroutine on a timer.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from fleet.core.errors import FleetError
from fleet.engine import Tick
from fleet.inventory.rollouts import Lease

PATIENCE_S = 300.0  # how long a database may be away, from a restart to a failover, before driving is given up
AWAY = frozenset({"database-unreachable", "database-locked"})
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0  # between two tries while it is away


class Stint:
    """The ticks of one rollout under `lease`. `ending` says whether to wind down."""

    def __init__(
        self,
        lease: Lease,
        tick: Tick,
        ending: Callable[[], bool],
        *,
        patience_s: float = PATIENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lease = lease
        self.tick = tick
        self.ending = ending
        self.patience_s = patience_s
        self.clock = clock
        self._away_since: float | None = None
        self._pause_s = FIRST_PAUSE_S

    def step(self) -> float | None:
        """One tick: the seconds that the next one may wait, None when the rollout is driven no further.

        A database that goes away is waited for, `patience_s` at most: a tick decides from what is stored, so one that
        failed is simply done again. Raises what the tick raises otherwise: Fenced, when another process has taken over.
        """
        ending = self.ending()
        try:
            progress = self.tick(self.lease.name, self.lease, ending)
        except FleetError as error:
            now = self.clock()
            self._away_since = now if self._away_since is None else self._away_since
            if error.slug not in AWAY or now - self._away_since >= self.patience_s or ending:
                raise
            pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, LONGEST_PAUSE_S)
            return pause_s
        self._away_since, self._pause_s = None, FIRST_PAUSE_S
        if progress.resting or (ending and not progress.busy):
            return None
        return 0.0 if ending else max(progress.wait_s, 0.0)
