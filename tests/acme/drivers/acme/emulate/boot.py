"""At each boot: the stored firmware runs."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab")
sys.path.insert(0, str(Path(__file__).parent))
import ctl
import labnode


def main():
    labnode.refuse_outside_lab()

    def activate(document):
        document["holders"] = []
        for card in document.get("cards", []):
            flash = ctl.flash_of(card)
            flash["running"] = flash["installed"]

    labnode.update(activate)
    if labnode.loaded("acme"):
        labnode.effect("activate", component="driver", version=labnode.loaded("acme"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
