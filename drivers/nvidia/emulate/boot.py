"""At each boot, after the modules: the fabric is down until its manager has started, a lost GPU is back."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab")
sys.path.insert(0, str(Path(__file__).parent))
import labnode
import node


def main():
    labnode.refuse_outside_lab()
    node.change(fabric="")
    if labnode.fault("xid79"):
        labnode.update(lambda s: s.update(faults=[f for f in s.get("faults", []) if f != "xid79"]))
    if labnode.fault("validation-fail") and not node.own().get("healthy_with"):
        node.change(healthy_with=node.loaded())
    labnode.update(lambda s: s.update(holders=[]))
    if node.loaded():
        labnode.effect("activate", component="driver", version=node.loaded())
    return 0


if __name__ == "__main__":
    sys.exit(main())
