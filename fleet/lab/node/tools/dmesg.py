"""dmesg of a lab node: the lines that the emulated kernel wrote since this boot."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

sys.path.insert(0, "/opt/fleet-lab")
if TYPE_CHECKING:
    from fleet.lab.node import labnode
else:
    import labnode


def main() -> int:
    labnode.refuse_outside_lab()
    file = labnode.NODE.kernel_log
    if {"-C", "--clear"} & set(sys.argv[1:]):
        file.write_text("")
        return 0
    human = any(a in {"-T", "--ctime"} or (a[:1] == "-" and a[1:2] != "-" and "T" in a) for a in sys.argv[1:])
    booted = float(labnode.state().get("booted_at", 0))
    for line in file.read_text().splitlines() if file.exists() else ():
        stamp, _, text = line.partition("] ")
        if human:
            print(f"[{time.ctime(booted + float(stamp[1:]))}] {text}")
        else:
            print(line)
    if {"-c", "--read-clear"} & set(sys.argv[1:]):
        file.write_text("")
    return 0


if __name__ == "__main__":
    sys.exit(main())
