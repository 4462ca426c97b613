"""One thread that closes what has outlived its deadline."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import threading
import time
from collections.abc import Callable


class Deadline:
    """A deadline under watch. `fired` is true once the watchdog has called `close`."""

    def __init__(self, at: float, close: Callable[[], object]) -> None:
        self.at = at
        self.fired = False
        self._close: Callable[[], object] | None = close
        self._lock = threading.Lock()

    def cancel(self) -> None:
        """Call it off; `close` is not called after this returns."""
        with self._lock:
            self._close = None

    def fire(self) -> None:
        with self._lock:
            close, self._close = self._close, None
            if close is None:
                return
            self.fired = True
            with contextlib.suppress(Exception):  # a socket that is already gone is what was wanted
                close()


class Watchdog:
    """Deadlines in a heap, one daemon thread, started with the first deadline.

    Timeouts of single reads are no substitute: a node that drips a byte now and then would live for ever.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heap: list[tuple[float, int, Deadline]] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def watch(self, seconds: float, close: Callable[[], object]) -> Deadline:
        """Call `close` from the watchdog's thread in `seconds`, unless the deadline is cancelled before."""
        deadline = Deadline(self._clock() + seconds, close)
        with self._changed:
            if self._stopped:
                deadline.at = self._clock()
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(target=self._run, name="fleet-watchdog", daemon=True)
                self._thread.start()
            first = not self._heap or deadline.at < self._heap[0][0]
            heapq.heappush(self._heap, (deadline.at, next(self._order), deadline))
            if first:
                self._changed.notify()
            stopped = self._stopped
        if stopped:
            deadline.fire()
        return deadline

    def stop(self) -> None:
        """Fire everything that is left and end the thread."""
        with self._changed:
            self._stopped = True
            left, self._heap = self._heap, []
            self._changed.notify()
        for _, _, deadline in left:
            deadline.fire()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._stopped and (not self._heap or self._heap[0][0] > self._clock()):
                    self._changed.wait(self._heap[0][0] - self._clock() if self._heap else None)
                if self._stopped:
                    return
                deadline = heapq.heappop(self._heap)[2]
            deadline.fire()
