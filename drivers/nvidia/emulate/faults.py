"""Switches one of this vendor's faults on or off in the node: `faults.py on|off NAME`, or the name from the state."""

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

NAMES = ("holders", "module-mismatch", "xid79", "fabric-stuck", "validation-fail")


def holders(on):
    if on:
        if not labnode.holders("nvidia"):
            labnode.hold("nvidia", "/dev/nvidia0", command="python3 train.py")
    else:
        for entry in labnode.holders("nvidia"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(entry["pid"]), signal.SIGKILL)
        labnode.update(lambda s: s.update(holders=[h for h in s.get("holders", []) if h.get("module") != "nvidia"]))
    labnode.publish_modules()


def mismatch(on):
    """The libraries move by one in the last part of the version, as an update of a branch does."""
    if not on:
        node.change(userland="")
        return
    installed = labnode.state().get("packages", {}).get("driver", "580.65.06")
    parts = installed.split(".")
    parts[-1] = f"{int(parts[-1]) + 1:0{len(parts[-1])}d}"
    node.change(userland=".".join(parts))
    library = node.userland()
    for line in (
        f"NVRM: API mismatch: the client 'nvidia-smi' (pid {os.getpid()})",
        f"NVRM: has the version {library}, but this kernel module has",
        f"NVRM: the version {node.loaded()}.  Please make sure that this",
        "NVRM: kernel module and all NVIDIA driver components",
        "NVRM: have the same version.",
    ):
        labnode.kernel_log(line)


def xid79(on):
    if on and labnode.state().get("cards"):
        bus = labnode.state()["cards"][0]["bus_id"].rsplit(".", 1)[0]
        labnode.kernel_log(f"NVRM: Xid (PCI:{bus}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")


def validation(on):
    node.change(healthy_with=node.loaded() if on else "")


def fabric(on):
    """The state follows from the fault; nothing else to do."""


DO = {
    "holders": holders,
    "module-mismatch": mismatch,
    "xid79": xid79,
    "fabric-stuck": fabric,
    "validation-fail": validation,
}


def main():
    labnode.refuse_outside_lab()
    words = sys.argv[1:]
    on = "on" in words
    named = [word for word in words if word in DO]
    if not named:
        sys.stderr.write(f"which fault? one of {', '.join(NAMES)}\n")
        return 2
    for name in named:
        DO[name](on)
    return 0


if __name__ == "__main__":
    sys.exit(main())
