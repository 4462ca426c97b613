"""The keeper of an engine's leases: one thread renews them all, since a step may take longer than a lease lasts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from fleet.inventory.leases import Leases
from fleet.inventory.rollouts import Lease


class Keeper:
    """Renews leases three times in their life, and wakes everybody when `stop` is set.

    Its thread begins with the first lease and ends some time after the last.
    """

    def __init__(
        self,
        store: Leases,
        owner: str,
        version: str,
        ttl_s: float,
        clock: Callable[[], float],
        stop: threading.Event,
    ) -> None:
        self.store = store
        self.owner = owner
        self.version = version
        self.ttl_s = ttl_s
        self.clock = clock
        self.stop = stop
        self._held: dict[Lease, Callable[[], None]] = {}
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def keep(self, lease: Lease, wake: Callable[[], None]) -> None:
        """Renew that lease from now on."""
        with self._guard:
            self._held[lease] = wake
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="leases", daemon=True)
                self._thread.start()

    def let_go(self, lease: Lease) -> None:
        """Renew it no longer. A renewal under way may still come, and does no harm: what is dropped has no owner."""
        with self._guard:
            self._held.pop(lease, None)

    def _run(self) -> None:
        told, pause_s = False, self.ttl_s / 3
        while True:
            if told:
                time.sleep(pause_s)
            else:
                told = self.stop.wait(pause_s)
            with self._guard:
                held = dict(self._held)
                if not held:
                    self._thread = None
                    return
            if told:
                for wake in held.values():
                    wake()
            pause_s = self.ttl_s / (3 if self._renewed(list(held)) else 12)

    def _renewed(self, held: list[Lease]) -> bool:
        """Whether the tables could be asked. A lease that was lost is not looked for: whoever has it, fences ours."""
        try:
            self.store.heartbeat(self.owner, self.version, self.clock())
            for lease in held:
                self.store.renew(lease, self.ttl_s, self.clock())
        except Exception:  # the database is away for a moment, and nothing may end this thread while there are leases
            return False
        return True
