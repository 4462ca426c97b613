"""Fault lost-card: takes the first card out of the state, keeps it aside."""

import sys

sys.path.insert(0, "/opt/fleet-lab")
import labnode

labnode.refuse_outside_lab()


def change(state):
    if sys.argv[2] == "on":
        state["tiny_lost"] = state["cards"].pop(0)
    else:
        state["cards"].insert(0, state.pop("tiny_lost"))


labnode.update(change)
