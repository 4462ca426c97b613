"""The node's state as Biren tools see it: versions in force, cards, what is wrong with them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab")
import labnode

HOME = Path("/usr/local/birensupa")
LIMITS = {"Biren106B": 300, "Biren106C": 300, "Biren106M": 400, "Biren166M": 550}


def own(state=None):
    """This vendor's own part of the state."""
    return dict((labnode.state() if state is None else state).get("biren", {}))


def change(**values):
    labnode.update(lambda s: s.setdefault("biren", {}).update(values))


def loaded():
    return labnode.loaded("biren")


def installed():
    return labnode.state().get("packages", {}).get("driver", "")


def changed():
    """Is another driver loaded than the one that a fault was switched on with?"""
    return own().get("healthy_with") not in (None, "", loaded())


def errors(index):
    """Uncorrectable ECC errors of a card."""
    if index == 0 and (labnode.fault("ecc") or (labnode.fault("validation-fail") and changed())):
        return 2
    return 0


def cards():
    """The cards in values that render.py wants; the keys with a dot are those of the CSV query."""
    model = str(labnode.state().get("model", "Biren106B"))
    limit = LIMITS.get(model, 300)
    out = []
    for card in labnode.state().get("cards", []):
        index, total = int(card["index"]), int(card.get("memory_mib", 32512))
        fuse = sum(str(card.get("serial", "")).encode()) % 7  # cards differ a little, and always in the same way
        row = {
            "index": index, "name": model, "bus_id": "0000" + card["bus_id"].upper(), "ecc": errors(index),
            "temperature": 31 + fuse, "perf": "P0", "power": limit // 8 + fuse, "limit": limit, "used": 0,
            "total": total, "utilization": "0%", "compute": "Default", "persistence": "Off", "svi": "Disabled",
            "serial": card.get("serial", ""), "uuid": card.get("uuid", ""),
        }  # fmt: skip
        row.update(
            {
                "memory.used": 0, "memory.free": total, "memory.total": total, "temperature.gpu": row["temperature"],
                "power.draw": row["power"], "svi.mode.current": row["svi"], "pci.bus_id": row["bus_id"],
                "utilization.gpu": 0, "driver_version": loaded() or "",
            }
        )  # fmt: skip
        out.append(row)
    return out
