"""The node's state as MetaX tools see it: versions in force, cards, what is wrong with them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab")
import labnode

# KMD -> mx-smi that was seen with it (public captures); others get the nearest older one.
TOOLS = {
    "2.2.0": "2.0.12", "2.5.014": "2.1.6", "2.12.13": "2.1.12", "2.14.8": "2.2.4", "2.16.0": "2.2.6",
    "3.0.11": "2.2.8", "3.4.4": "2.2.9", "3.8.1": "2.3.1", "3.8.30": "2.2.12", "3.10.14": "2.3.4",
}  # fmt: skip
LIMITS = {"C500": 350, "C550": 450, "N260": 225}
COMPAT = "Driver And Vbios Compatibility Check Failed"
NO_LAYOUT = "Layout Node Not Found"
MACA = Path("/opt/maca")


def number(version):
    return tuple(int(part) for part in re.findall(r"\d+", version))


def own(state=None):
    """This vendor's own part of the state."""
    return dict((labnode.state() if state is None else state).get("metax", {}))


def change(**values):
    labnode.update(lambda s: s.setdefault("metax", {}).update(values))


def loaded():
    return labnode.loaded("metax")


def tool_version():
    installed = labnode.state().get("packages", {}).get("driver", "3.8.30")
    if installed in TOOLS:
        return TOOLS[installed]
    older = [kmd for kmd in TOOLS if number(kmd) <= number(installed)]
    return TOOLS[max(older, key=number)] if older else "2.0.12"


def toolkit():
    """The runtime that a process of this node finds: what /opt/maca leads to."""
    match = re.search(r"maca-(\S+)$", str(MACA.resolve())) if MACA.exists() else None
    return match[1] if match else "N/A"


def chip():
    return "MX" + model()


def model():
    words = str(labnode.state().get("model", "C500")).split()
    return words[-1] if words else "C500"


def reason(index):
    """Why a card is not available; "" = it is."""
    changed = own().get("healthy_with") not in (None, "", loaded())
    if labnode.fault("compat-check-failed") and changed:
        return COMPAT
    if index == 0 and (labnode.fault("card-not-available") or (labnode.fault("validation-fail") and changed)):
        return NO_LAYOUT
    return ""


def flash(card):
    return card.setdefault("flash", {}).setdefault("firmware", {"installed": "", "running": ""})


def cards():
    """The cards in values that render.py and the pages want."""
    out = []
    limit = LIMITS.get(model().split("-")[0], 350)
    for card in labnode.state().get("cards", []):
        index = int(card["index"])
        fuse = sum(str(card.get("uuid", "")).encode()) % 7  # cards differ a little, and always in the same way
        why = reason(index)
        total = int(card.get("memory_mib", 65536))
        out.append(
            {
                "board": index,
                "index": index,
                "name": f"MetaX {model()}" if number(tool_version()) >= (2, 1, 12) else chip(),
                "chip": chip(),
                "model": model(),
                "bus_id": card["bus_id"],
                "uuid": card["uuid"] if str(card.get("uuid", "")).startswith("GPU-") else f"GPU-{card.get('uuid', '')}",
                "serial": card.get("serial", ""),
                "vbios": flash(card).get("running") or "N/A",
                "temperature": str(34 + fuse),
                "power": str(limit // 7 + fuse),
                "limit": str(limit),
                "used": 858,
                "total": total,
                "utilization": "0%",
                "sgpu": "Native" if number(tool_version()) < (2, 2, 9) else "Disabled",
                "persistence": "Off",
                "perf": "P0",
                "reason": why,
                "state": "Not Available" if why else "Available",
            }
        )
    return out
