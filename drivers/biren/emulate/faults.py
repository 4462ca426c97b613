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

NAMES = ("vermagic", "in-use", "dkms-old-returns", "validation-fail", "ecc")
BY_DRIVER = ("vermagic", "dkms-old-returns", "validation-fail")  # strike with another driver than the one of now


def in_use(on):
    if on:
        if not labnode.holders("biren"):
            labnode.hold("biren", "/dev/biren-m", command="br-dcgmd")
    else:
        for entry in labnode.holders("biren"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(entry["pid"]), signal.SIGKILL)
        labnode.update(lambda s: s.update(holders=[h for h in s.get("holders", []) if h.get("module") != "biren"]))
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
        if name == "in-use":
            in_use(on)
        elif name in BY_DRIVER:
            node.change(healthy_with=(node.loaded() or "none") if on else "")
    return 0


if __name__ == "__main__":
    sys.exit(main())
