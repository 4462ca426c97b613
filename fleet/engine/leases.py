"""The in-process engine: a lease in our tables for each rollout, renewed while it is driven, fenced when it is lost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Callable, Sequence

from fleet import __version__
from fleet.core.errors import FleetError, Locked
from fleet.engine import Ended, Running, Signal, Tick
from fleet.engine.crew import Crew
from fleet.engine.keeper import Keeper
from fleet.engine.stint import PATIENCE_S, Stint
from fleet.inventory.rollouts import Rollouts
from fleet.process import start_of

TTL_S = 30.0


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

    One thread renews all leases. What was given to `begin` waits in an event loop, so that hundreds wait in one thread.

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
        self._stints: dict[str, Callable[[], None]] = {}  # what this engine drives, and how each is woken
        self._guard = threading.Lock()
        self._keeper = Keeper(store, self.owner, __version__, ttl_s, self.clock, self.stop)
        self._crew: Crew | None = None

    # --- driving --------------------------------------------------------------------------------------------------

    def submit(self, rollout: str) -> None:
        """Drive the rollout until it rests. Locked when somebody drives it, Fenced when another process takes over."""
        self.uncancel(rollout)
        woken = threading.Event()
        stint = self._begun(rollout, woken.set)
        try:
            while (wait_s := stint.step()) is not None:
                if wait_s > 0:
                    woken.wait(wait_s)
                woken.clear()
        finally:
            self._ended(stint)

    async def carry(self, rollout: str, crew: Crew) -> None:
        """As `submit`, within an event loop: it holds a worker of the crew for a tick, and nothing while it waits."""
        woken = asyncio.Event()
        begun: list[Stint] = []  # cancelled in the midst of the taking, it is given back all the same
        try:
            await crew.do(lambda: begun.append(self._begun(rollout, lambda: crew.call(woken.set))))
            while (wait_s := await crew.do(begun[0].step)) is not None:
                if wait_s > 0:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(wait_s):
                            await woken.wait()
                woken.clear()
        finally:
            for stint in begun:
                await crew.do(self._ended, stint)

    def begin(self, rollout: str, ended: Ended) -> None:
        """See that the rollout is driven until it rests; `ended` is called then."""
        self.uncancel(rollout)
        with self._guard:
            self._crew = self._crew or Crew()
        self._crew.begin(self.carry(rollout, self._crew), ended)

    def uncancel(self, rollout: str) -> None:
        """Forget that its driving was cancelled, if that has ended. Not when a driving begins: that may be later."""
        with self._guard:
            if rollout not in self._stints:
                self._cancelled.discard(rollout)

    def drives(self, rollout: str) -> bool:
        """Whether this engine drives it at this moment."""
        return rollout in self._stints

    def _begun(self, rollout: str, wake: Callable[[], None]) -> Stint:
        with self._guard:
            if rollout in self._stints:
                raise Locked(f"rollout {rollout} is being carried out by this process", slug="rollout-running")
            self._stints[rollout] = wake
        try:
            lease = self.store.acquire(rollout, self.owner, self.ttl_s, self.clock(), gone)
            self.store.heartbeat(self.owner, __version__, self.clock())
        except BaseException:
            del self._stints[rollout]
            raise
        self._keeper.keep(lease, wake)
        return Stint(lease, self.tick, lambda: self._winding_down(rollout), patience_s=self.patience_s)

    def _ended(self, stint: Stint) -> None:
        self._keeper.let_go(stint.lease)
        try:
            with contextlib.suppress(FleetError):  # fenced, or the database is away: then the lease runs out by itself
                self.store.drop(stint.lease)
        finally:
            del self._stints[stint.lease.name]

    def _winding_down(self, rollout: str) -> bool:
        return self.stop.is_set() or rollout in self._cancelled

    # --- the rest of the port -------------------------------------------------------------------------------------

    def signal(self, rollout: str, signal: Signal) -> None:
        """Write the request into the rollout's row; its driver reads it at the next tick, which comes at once here."""
        self.store.request(rollout, "" if signal == "resume" else signal)
        self._wake(rollout)

    def cancel(self, rollout: str) -> None:
        """Stop driving the rollout in this process after the current tick."""
        self._cancelled.add(rollout)
        self._wake(rollout)

    def _wake(self, rollout: str) -> None:
        wake = self._stints.get(rollout)
        if wake is not None:
            wake()

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


__all__ = ["TTL_S", "LeaseEngine", "gone", "owner_here"]
