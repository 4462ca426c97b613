"""A process that carries out a rollout and is killed at a chosen point.

`python -m tests.upgrade.killed FOLDER POINT N [SIGNAL]`: POINT is what SimFleet and the store below report; the process
gets SIGKILL, or the signal of that name, when it comes there for the Nth time.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection

from fleet.core.task import NodeTask
from fleet.inventory.rollouts import Lease, Result, Rollouts
from tests.upgrade.site import Site


class Death:
    """Sends a signal to this process when `point` is reached for the `number`th time."""

    def __init__(self, point: str, number: int, signal_: signal.Signals = signal.SIGKILL) -> None:
        self.point = point
        self.left = number
        self.signal = signal_

    def __call__(self, point: str, node: str = "") -> None:  # noqa: ARG002
        if point == self.point:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), self.signal)
                time.sleep(0.2)  # another thread may be told to stop first: nothing of what follows is done before


class MortalRollouts(Rollouts):
    """The store, with a place to die before and after each write of a step, and in the midst of any write."""

    death: Death

    @contextmanager
    def _fenced(self, lease: Lease) -> Iterator[Connection]:
        with super()._fenced(lease) as connection:
            self.death("transaction")
            yield connection

    def intend(self, lease: Lease, tasks: Sequence[NodeTask], phase: str, now: float) -> dict[str, int]:
        self.death("intend-before")
        found = super().intend(lease, tasks, phase, now)
        self.death("intend-after")
        return found

    def finish(self, lease: Lease, results: Iterable[Result], now: float) -> None:
        self.death("finish-before")
        super().finish(lease, results, now)
        self.death("finish-after")


def main(folder: str, point: str, number: str, name: str = "SIGKILL") -> None:
    """Drive rollout r-1 of the site in `folder` until death."""
    death = Death(point, int(number), signal.Signals[name])
    site = Site(Path(folder), kill=death)
    store = MortalRollouts(site.inventory.database)
    store.death = death
    site.upgrade.store = store
    site.engine.submit("r-1")
    site.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
