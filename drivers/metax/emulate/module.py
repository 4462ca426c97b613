"""After the module came: what is wrong with the cards goes to the kernel log."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab")
sys.path.insert(0, str(Path(__file__).parent))
import faults
import labnode


def main():
    labnode.refuse_outside_lab()
    if sys.argv[1] == "load":
        faults.log()
    return 0


if __name__ == "__main__":
    sys.exit(main())
