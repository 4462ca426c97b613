"""The service that carries out rollouts: a seat of its own, a heartbeat, and what is running and driven by nobody.

A controller has a stable name. Its seat is a lease on that name, renewed with the heartbeat: two living processes of
one name are refused, and one that slept through the loss of its seat stops. A living controller of another protocol
refuses the newcomer, since the two would read the same rows differently. What to drive is found in our tables every few
seconds, so the death of a controller, or the loss of an engine's own database, only costs time.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial

from fleet import __version__
from fleet.core.errors import FleetError, Locked
from fleet.core.move import KILLING
from fleet.engine import PROTOCOL, Engine, Progress, Tick
from fleet.engine.leases import TTL_S, gone, owner_here
from fleet.engine.stint import AWAY
from fleet.inventory import history
from fleet.inventory.rollouts import Fenced, Lease, Rollout, Rollouts

ROUND_S = 2.0
REST_S = 60.0  # the longest pause after a rollout could not be driven
_SEAT = "controller:"
_PROTOCOL = "protocol="  # a part of the owner's name, since it must be known as soon as the seat is taken
_sitting = itertools.count()  # tells two seats of one process apart


@dataclass(frozen=True)
class Living:
    """A controller that is alive: its name, the process, its last heartbeat, what it runs."""

    name: str
    owner: str
    heartbeat: float
    version: str
    protocol: str


def living(store: Rollouts, now: float) -> list[Living]:
    """The controllers that are alive."""
    beats = store.heartbeats()
    found = []
    for name, lease in store.leases().items():
        if name.startswith(_SEAT) and lease.owner and lease.expires > now and not gone(lease.owner):
            beat, version = beats.get(name, (0.0, ""))  # none yet when it has just sat down
            _, seat, protocol = lease.owner.rpartition(f":{_PROTOCOL}")
            protocol = protocol if seat else ""
            found.append(Living(name.removeprefix(_SEAT), lease.owner, beat, version, protocol))
    return found


def same_protocol(controller: Living, protocol: str = PROTOCOL) -> None:
    """FleetError when that controller and this program could not work side by side."""
    if controller.protocol != protocol:
        raise FleetError(
            f"controller {controller.name} runs fleet {controller.version or '(unknown)'} with "
            f"protocol {controller.protocol or '(unknown)'}, this program has protocol {protocol}",
            where=controller.owner,
            hint="pause the rollouts, stop that controller, start it with the same release of fleet",
            slug="controller-protocol",
        )


@contextmanager
def seated(
    store: Rollouts,
    name: str,
    stop: threading.Event,
    *,
    single: bool = False,
    protocol: str = PROTOCOL,
    ttl_s: float = TTL_S,
    clock: Callable[[], float] | None = None,
) -> Iterator[Lease]:
    """Sit on the controller's name and keep the heartbeat going; `stop` is set when the seat is lost.

    With `single` no other controller may live beside it (SQLite). Raises Locked for a name or a database that is taken,
    FleetError for a living controller of another protocol.
    """
    clock = clock or store.clock
    seat, owner = _SEAT + name, owner_here(f"seat{next(_sitting)}:{_PROTOCOL}{protocol}")
    try:
        lease = store.acquire(seat, owner, ttl_s, clock(), gone)
    except Locked as error:
        raise Locked(
            f"a controller called {name!r} is alive", cause=error.what, hint="give this one another --name",
            slug="controller-running",
        ) from error  # fmt: skip
    over = threading.Event()

    def beat() -> None:
        while not over.wait(ttl_s / 3):
            try:
                store.heartbeat(seat, __version__, clock())
                kept = store.renew(lease, ttl_s, clock())
            except Exception:  # the database is away for a moment; a lost seat shows at the next beat
                continue
            if not kept:
                stop.set()
                return

    thread = threading.Thread(target=beat, name=f"seat-{name}", daemon=True)
    try:
        for other in living(store, clock()):
            if other.name == name:
                continue
            same_protocol(other, protocol)
            if single:
                raise Locked(
                    f"controller {other.name!r} is alive; a SQLite database has one controller", where=other.owner,
                    hint="use PostgreSQL for several", slug="controller-running",
                )  # fmt: skip
        store.heartbeat(seat, __version__, clock())
        thread.start()
        yield lease
    finally:
        over.set()
        if thread.ident is not None:
            thread.join()
        with contextlib.suppress(FleetError):  # lost already, or the database is away: it runs out by itself
            store.drop(lease)


class Workshop:
    """A tick of its own for each rollout under way, from doors that are opened when it is taken up.

    So a rollout is driven with the host keys, artifacts and settings of that moment, not of the service's start.
    """

    def __init__(self, opened: Callable[[str], AbstractContextManager[Tick]]) -> None:
        self.opened = opened
        self._open: dict[str, tuple[int, Tick, contextlib.ExitStack]] = {}
        self._guard = threading.Lock()

    def tick(self, rollout: str, lease: Lease, ending: bool) -> Progress:
        """One round of that rollout."""
        with self._guard:
            found = self._open.get(rollout)
        if found is not None and found[0] != lease.fence:
            self.done(rollout)
            found = None
        if found is None:
            stack = contextlib.ExitStack()
            found = lease.fence, stack.enter_context(self.opened(rollout)), stack
            with self._guard:
                self._open[rollout] = found
        return found[1](rollout, lease, ending)

    def done(self, rollout: str) -> None:
        """Close the doors of a rollout that is driven no longer, after the steps under way."""
        with self._guard:
            found = self._open.pop(rollout, None)
        if found is not None:
            found[2].close()


class Controller:
    """Drives through `engine` whatever runs and is driven by nobody, until `stop` is set."""

    def __init__(
        self,
        store: Rollouts,
        engine: Engine,
        stop: threading.Event,
        *,
        round_s: float = ROUND_S,
        done: Callable[[str], None] = lambda _: None,
        say: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store = store
        self.engine = engine
        self.stop = stop
        self.round_s = round_s
        self.done = done
        self.say = say
        self.clock = clock
        self._begun: set[str] = set()
        self._over = threading.Condition()  # notified when one of them is begun no longer
        self._failed: dict[str, tuple[int, float]] = {}  # rollout -> (times in a row, not before)

    def run(self) -> None:
        """Go round until stopped or an error; then let steps under way end. A database that is away is waited for."""
        stopped = threading.Event()  # tells what `stop` does: a signal's handler sets that in this very thread, which
        # therefore must not wait for it, since a handler that came while it holds the event's lock would wait for ever

        def told() -> None:
            self.stop.wait()
            stopped.set()

        threading.Thread(target=told, name="stop", daemon=True).start()
        try:
            self._rounds(stopped)
        finally:  # whoever called closes what the steps need
            threading.Thread(target=self.stop.set, name="stop").start()  # not in this thread: see above
            with self._over:
                self._over.wait_for(lambda: not self._begun)

    def _rounds(self, stopped: threading.Event) -> None:
        away = False
        while not self.stop.is_set():
            try:
                self.round()
                away = False
            except FleetError as error:
                if error.slug not in AWAY:
                    raise
                if not away:
                    self.say(f"waiting: {error.what}: {error.cause}")
                away = True
            stopped.wait(self.round_s)

    def round(self) -> list[str]:
        """Take up what is running, or to be taken back, and driven by nobody; the ids.

        What the engine took up by itself is ours too: its doors are closed, and its end is waited for, by us.
        """
        others = {entry.rollout for entry in self.engine.list() if entry.owner not in ("", self.engine.owner)}
        taken = []
        for row in self.store.rollouts(unfinished=True):
            wanted = row.state == "running" or row.request == "abort" or self._cut_short(row)
            late = self._failed.get(row.id, (0, 0.0))[1] <= self.clock()
            with self._over:
                if not wanted or not late or row.id in others or row.id in self._begun:
                    continue
                self._begun.add(row.id)
            try:
                self.say(f"rollout {row.id} is taken up")
                self.engine.begin(row.id, partial(self._ended, row.id))
            except BaseException:
                self._no_longer(row.id)
                raise
            taken.append(row.id)
        return taken

    def _cut_short(self, row: Rollout) -> bool:
        """Whether a kill was asked for that nobody has obeyed: nodes are still said to be under way."""
        return row.request in KILLING and any(t.begun for t in history.standing(self.store.database, row.id))

    def _ended(self, rollout: str, error: Exception | None) -> None:
        """Closing doors waits for steps under way, so it has a thread of its own; the engine is not kept waiting."""
        threading.Thread(target=self._close, args=(rollout, error), name=f"close-{rollout}", daemon=True).start()

    def _close(self, rollout: str, error: Exception | None) -> None:
        elsewhere = isinstance(error, Locked) and not isinstance(error, Fenced)
        try:
            if error is None:
                self._failed.pop(rollout, None)
            elif isinstance(error, Locked):  # another controller was quicker, or has taken over
                self.say(f"rollout {rollout} is left: {error.what}")
            else:  # the service outlives what one rollout runs into
                times = self._failed.get(rollout, (0, 0.0))[0] + 1
                self._failed[rollout] = times, self.clock() + min(REST_S, self.round_s * 2**times)
                with contextlib.suppress(OSError):  # nobody reads what it says
                    self.say(f"rollout {rollout} could not be driven: {error}")
        finally:
            try:
                if not elsewhere:  # else the doors that are open, if any, are another driving's in this process
                    self.done(rollout)
            finally:
                self._no_longer(rollout)

    def _no_longer(self, rollout: str) -> None:
        with self._over:
            self._begun.discard(rollout)
            self._over.notify_all()
