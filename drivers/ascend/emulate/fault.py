"""Switches faults of the Ascend emulation that need an act: `fault.py NAME on|off [value]`.

occupied: a real process holds /dev/davinci0. validation-fail: remembers the driver that runs now, so that a chip goes
into alarm when another one boots.
"""

import os
import signal
import sys

import npu_node as node
from npu_node import labnode


def occupied(on, value):
    name = value or "python3"
    for entry in labnode.holders(node.MODULE):
        if not on and entry.get("command") == name:
            os.kill(int(entry["pid"]), signal.SIGTERM)
    if on and not labnode.holders(node.MODULE):
        first = next(iter(labnode.state().get("cards", [])), {"index": 0})
        labnode.hold(node.MODULE, f"/dev/davinci{first['index']}", name)
    labnode.publish_modules()


def validation_fail(on, value):
    del value
    driver = node.live_driver() if on else None
    labnode.update(lambda s: s.setdefault("ascend", {}).update(baseline=driver))


if __name__ == "__main__":
    labnode.refuse_outside_lab()
    which = {"occupied": occupied, "validation-fail": validation_fail}[sys.argv[1]]
    which(sys.argv[2] == "on", sys.argv[3] if len(sys.argv) > 3 else "")
