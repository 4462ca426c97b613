"""The in-process engine: a lease in our tables for each rollout, renewed while it is driven, fenced when it is lost."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from fleet import __version__
from fleet.core.errors import FleetError, Locked
from fleet.engine import Progress, Running, Signal, Tick
from fleet.inventory.rollouts import Lease, Rollouts
from fleet.process import start_of

TTL_S = 30.0
PATIENCE_S = 300.0  # how long a database may be away, from a restart to a failover, before driving is given up
AWAY = frozenset({"database-unreachable", "database-locked"})


def owner_here(slot: str = "") -> str:
    """A name for this process that no other one has: host, pid, start time, and a slot for several engines in one."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{start_of(pid)}" + (f":{slot}" if slot else "")


def gone(owner: str) -> bool:
    """Whether that owner is a process of this host that has ended. False where it cannot be known: then time tells."""
    host, _, rest = owner.partition(":")
    pid, _, start = rest.partition(":")
    if host != socket.gethostname() or not pid.isdigit() or not start:
        return False
    return start_of(int(pid)) != start.partition(":")[0]


class LeaseEngine:
    """Drives rollouts in this process. `submit` returns when the rollout rests, or after `cancel`.

    The clock must be the same for all holders of one database: it is the database's own, unless another is given.
    """

    def __init__(
        self,
        store: Rollouts,
        tick: Tick,
        *,
        owner: str = "",
        ttl_s: float = TTL_S,
        clock: Callable[[], float] | None = None,
        stop: threading.Event | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.store = store
        self.tick = tick
        self.owner = owner or owner_here()
        self.ttl_s = ttl_s
        self.patience_s = patience_s
        self.clock = clock or store.clock
        self.stop = stop or threading.Event()
        self._cancelled: set[str] = set()
        self._wake = threading.Event()

    def submit(self, rollout: str) -> None:
        """Drive the rollout until it rests. Locked when another process drives it, Fenced when one takes over.

        A database that goes away meanwhile is waited for, `patience_s` at most: a tick decides from what is stored, so
        one that failed is simply done again.
        """
        self._cancelled.discard(rollout)
        lease = self.store.acquire(rollout, self.owner, self.ttl_s, self.clock(), gone)
        self.store.heartbeat(self.owner, __version__, self.clock())
        away_since, pause_s = 0.0, 0.2
        with self.kept(lease):
            while True:
                ending = self.stop.is_set() or rollout in self._cancelled
                try:
                    progress = self.tick(rollout, lease, ending)
                    away_since, pause_s = 0.0, 0.2
                except FleetError as error:
                    now = time.monotonic()
                    away_since = away_since or now
                    if error.slug not in AWAY or now - away_since >= self.patience_s or ending:
                        raise
                    self.stop.wait(pause_s)
                    pause_s = min(pause_s * 2, 5.0)
                    continue
                if progress.resting or (ending and not progress.busy):
                    return
                if progress.wait_s > 0 and not self.stop.is_set():
                    self._wake.wait(progress.wait_s)
                    self._wake.clear()

    def signal(self, rollout: str, signal: Signal) -> None:
        """Write the request into the rollout's row; its driver reads it at the next tick."""
        self.store.request(rollout, "" if signal == "resume" else signal)
        self._wake.set()

    def cancel(self, rollout: str) -> None:
        """Stop driving the rollout in this process after the current tick."""
        self._cancelled.add(rollout)
        self._wake.set()

    def list(self) -> list[Running]:
        """Unfinished rollouts with their living driver."""
        leases, now = self.store.leases(), self.clock()
        out = []
        for rollout in self.store.rollouts(unfinished=True):
            lease = leases.get(rollout.id)
            alive = lease is not None and lease.owner != "" and lease.expires > now and not gone(lease.owner)
            out.append(Running(rollout.id, lease.owner if lease and alive else "", lease.fence if lease else 0))
        return out

    def heal(self) -> Sequence[str]:
        """Drive, one after another, the running rollouts that nobody drives."""
        taken = []
        running = {r.id for r in self.store.rollouts(unfinished=True) if r.state == "running"}
        for entry in self.list():
            if entry.owner == "" and entry.rollout in running and not self.stop.is_set():
                with contextlib.suppress(Locked):  # another healer was quicker
                    self.submit(entry.rollout)
                    taken.append(entry.rollout)
        return taken

    @contextmanager
    def kept(self, lease: Lease) -> Iterator[None]:
        """Renew the lease from a thread of its own, since a step may take longer than the lease lasts."""
        over = threading.Event()

        def renew() -> None:
            while not over.wait(self.ttl_s / 3):
                try:
                    self.store.heartbeat(self.owner, __version__, self.clock())
                    kept = self.store.renew(lease, self.ttl_s, self.clock())
                except Exception:  # a database that is away for a moment; the next write tells whether we are fenced
                    continue
                if not kept:
                    return

        thread = threading.Thread(target=renew, name=f"lease-{lease.name}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            with contextlib.suppress(FleetError):  # fenced, or the database is away: then the lease runs out by itself
                self.store.drop(lease)


__all__ = ["PATIENCE_S", "TTL_S", "LeaseEngine", "Progress", "gone", "owner_here"]
