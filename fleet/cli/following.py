"""A rollout that a controller carries out, as seen by the command that asked for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from fleet.cli.output import say
from fleet.core import errors

if TYPE_CHECKING:
    from fleet.controller import Living
    from fleet.inventory.rollouts import Rollout, Rollouts

LOOK_S = 1.0
LOST_LOOKS = 10  # so many looks in a row without a living controller: it was not just restarted


def host_of(store: Rollouts) -> Living | None:
    """The controller that carries out rollouts of this inventory, if one is alive. FleetError for another protocol."""
    from fleet.controller import living, same_protocol

    found = living(store, store.clock())
    for controller in found:
        same_protocol(controller)
    return found[0] if found else None


def hand_over(store: Rollouts, host: Living, rollout: str, parallel: int = 4) -> Rollout:
    """Leave a stored rollout to a controller and show what becomes of it; its row when it rests.

    Ctrl-C ends the telling only: Interrupted says how to come back.
    """
    from fleet.cli.watch import showing

    say(f"controller {host.name} carries out rollout {rollout}; Ctrl-C leaves it there")
    try:
        with showing(store, rollout, parallel) as place:
            return follow(store, rollout, out=place.tell, parallel=parallel)
    except KeyboardInterrupt:
        raise errors.Interrupted(
            f"rollout {rollout} goes on in controller {host.name}", where=rollout,
            hint=f"fleet rollout watch {rollout}, or show it; pause or abort it by the same name",
        ) from None  # fmt: skip


def follow(
    store: Rollouts,
    rollout: str,
    *,
    look_s: float = LOOK_S,
    sleep: Callable[[float], None] = time.sleep,
    out: Callable[[str], None] = say,
    parallel: int = 4,
) -> Rollout:
    """Tell the transitions of a rollout until it rests; its row. FleetError when no controller is left to drive it."""
    from fleet.cli.watch import Observer, tell

    tell(Observer(store, rollout, parallel), out, look_s=look_s, lost_looks=LOST_LOOKS, sleep=sleep)
    return store.rollout(rollout)
