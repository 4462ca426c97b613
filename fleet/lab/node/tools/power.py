"""reboot, shutdown, poweroff and halt of a lab node: argv[1] is the name under which the program was called."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

sys.path.insert(0, "/opt/fleet-lab")
if TYPE_CHECKING:
    from fleet.lab.node import labnode
else:
    import labnode


def main() -> int:
    labnode.refuse_outside_lab()
    called, arguments = sys.argv[1], sys.argv[2:]
    if os.geteuid() != 0:
        sys.stderr.write(f"{called}: Operation not permitted\n")
        return 1
    if called == "shutdown" and "-c" in arguments:
        return 0
    again = called == "reboot" or (called == "shutdown" and bool({"-r", "--reboot"} & set(arguments)))
    wish = labnode.NODE.state.with_name("request")
    wish.write_text("reboot" if again else "poweroff")
    os.kill(1, signal.SIGTERM)
    return 0


if __name__ == "__main__":
    sys.exit(main())
