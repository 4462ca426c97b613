"""Installs a starting stack: `start.py STACK.json`. The cards come with their firmware."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab")
sys.path.insert(0, str(Path(__file__).parent))
import ctl
import labnode


def main():
    labnode.refuse_outside_lab()
    stack = json.loads(Path(sys.argv[1]).read_text())
    firmware = stack["components"].get("firmware")
    if firmware:
        labnode.update(
            lambda s: [ctl.flash_of(c).update(installed=firmware, running=firmware) for c in s.get("cards", [])]
        )
    for name in stack["files"]:
        if name.endswith(".run"):
            code = subprocess.run(["sh", str(Path(stack["packages"]) / name)], check=False).returncode
            if code:
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
