"""A rollout that a controller carries out, as seen by the command that asked for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from fleet.cli.output import say
from fleet.core import errors

if TYPE_CHECKING:
    from fleet.controller import Living
    from fleet.inventory.rollouts import Rollout, Rollouts, Stored

LOOK_S = 1.0
LOST_LOOKS = 10  # so many looks in a row without a living controller: it was not just restarted


def host_of(store: Rollouts) -> Living | None:
    """The controller that carries out rollouts of this inventory, if one is alive. FleetError for another protocol."""
    from fleet.controller import living, same_protocol

    found = living(store, store.clock())
    for controller in found:
        same_protocol(controller)
    return found[0] if found else None


def hand_over(store: Rollouts, host: Living, rollout: str) -> Rollout:
    """Leave a stored rollout to a controller and tell what becomes of it; its row when it rests.

    Ctrl-C ends the telling only: Interrupted says how to come back.
    """
    say(f"controller {host.name} carries out rollout {rollout}; Ctrl-C leaves it there")
    try:
        return follow(store, rollout)
    except KeyboardInterrupt:
        raise errors.Interrupted(
            f"rollout {rollout} goes on in controller {host.name}", where=rollout,
            hint=f"fleet rollout show {rollout}; pause or abort it by the same name",
        ) from None  # fmt: skip


def follow(
    store: Rollouts, rollout: str, *, look_s: float = LOOK_S, sleep: Callable[[float], None] = time.sleep
) -> Rollout:
    """Tell the transitions of a rollout until it rests; its row. FleetError when no controller is left to drive it."""
    from fleet.controller import living

    before: dict[str, Stored] = store.tasks(rollout)
    lost = 0
    while True:
        row, tasks = store.rollout(rollout), store.tasks(rollout)
        _tell(rollout, before, tasks)
        before = tasks
        driven = (
            (lease := store.leases().get(rollout)) is not None and bool(lease.owner) and lease.expires > store.clock()
        )
        if row.finished or (row.state == "paused" and row.request != "abort" and not driven):
            return row
        lost = 0 if driven or living(store, store.clock()) else lost + 1
        if lost >= LOST_LOOKS:
            raise errors.FleetError(
                f"no controller is left that could carry out rollout {rollout}",
                hint=f"fleet rollout resume {rollout} does it here, or start `fleet controller run` again",
                slug="controller-lost",
            )
        sleep(look_s)


def _tell(rollout: str, before: dict[str, Stored], tasks: dict[str, Stored]) -> None:
    from fleet.cli.driving import line
    from fleet.upgrade import Transition

    for name, stored in tasks.items():
        was, task = before[name].task if name in before else stored.task, stored.task
        if task.state != was.state:
            say(line(Transition(rollout, name, was.state, task.state, "", "", task.reason)))
