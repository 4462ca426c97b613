"""At each boot, after the modules: a VBIOS that was flashed runs once the cards have lost power."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab")
sys.path.insert(0, str(Path(__file__).parent))
import faults
import labnode
import node


def main():
    labnode.refuse_outside_lab()
    changed = []

    def activate(document):
        document["holders"] = []
        for card in document.get("cards", []):
            flash = node.flash(card)
            if flash["running"] != flash["installed"]:
                flash["running"] = flash["installed"]
                changed.append((card["index"], flash["installed"]))

    if "power_cycle" in sys.argv[1:]:
        labnode.update(activate)
        for index, version in changed:
            labnode.effect("activate", component="firmware", version=version, card=index)
    else:
        labnode.update(lambda s: s.update(holders=[]))
    if node.loaded():
        labnode.effect("activate", component="driver", version=node.loaded())
    faults.remember()
    faults.log()
    return 0


if __name__ == "__main__":
    sys.exit(main())
