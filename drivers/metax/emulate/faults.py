"""Switches one of this vendor's faults on or off in the node: `faults.py on|off NAME`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab")
sys.path.insert(0, str(Path(__file__).parent))
import labnode
import node

NAMES = ("compat-check-failed", "flash-timeout", "card-not-available", "holders", "validation-fail")
BY_DRIVER = ("compat-check-failed", "validation-fail")  # strike with another driver than the one of now


def remember():
    """The driver that the node was well with, for the faults that strike with another one."""
    if any(labnode.fault(name) for name in BY_DRIVER) and not node.own().get("healthy_with"):
        node.change(healthy_with=node.loaded() or "")


def log():
    """One kernel line for each card that is not available."""
    for card in labnode.state().get("cards", []):
        why = node.reason(int(card["index"]))
        if not why:
            continue
        domain, bus, rest = card["bus_id"].split(":")
        device, function = rest.split(".")
        word = int(domain, 16) << 16 | int(bus, 16) << 8 | int(device, 16) << 3 | int(function, 16)
        code = "0x1105" if why == node.COMPAT else "0x1104"
        labnode.kernel_log(f"METAX.B{word:X}.BOARD.ERROR EID ({card['bus_id']}): {code}, {why.lower()}")


def holders(on):
    if on:
        if not labnode.holders("metax"):
            labnode.hold("metax", "/dev/mxcd", command="python3 train.py")
    else:
        for entry in labnode.holders("metax"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(entry["pid"]), signal.SIGKILL)
        labnode.update(lambda s: s.update(holders=[h for h in s.get("holders", []) if h.get("module") != "metax"]))
    labnode.publish_modules()


def main():
    labnode.refuse_outside_lab()
    words = sys.argv[1:]
    on = "on" in words
    named = [word.partition("=")[0] for word in words if word.partition("=")[0] in NAMES]
    if not named:
        sys.stderr.write(f"which fault? one of {', '.join(NAMES)}\n")
        return 2
    for name in named:
        if name == "holders":
            holders(on)
        elif name in BY_DRIVER:
            node.change(healthy_with=(node.loaded() or "none") if on else "")
        elif name == "card-not-available" and on:
            log()
    return 0


if __name__ == "__main__":
    sys.exit(main())
