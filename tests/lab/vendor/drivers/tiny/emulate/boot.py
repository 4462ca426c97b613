"""Activates what is pending: `firmware` at any boot, `mcu` only after the power was away."""

import sys

sys.path.insert(0, "/opt/fleet-lab")
import labnode

labnode.refuse_outside_lab()


def activate(state):
    pending = state.get("pending", {})
    for name in ("firmware", *(["mcu"] if sys.argv[1] == "power_cycle" else [])):
        if name in pending:
            state.setdefault("tiny", {})[name] = pending.pop(name)


labnode.update(activate)
