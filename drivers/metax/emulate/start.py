"""Installs a starting stack as a site would have: `start.py STACK.json`. The cards come with their VBIOS."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab")
sys.path.insert(0, str(Path(__file__).parent))
import labnode
import node


def main():
    labnode.refuse_outside_lab()
    stack = json.loads(Path(sys.argv[1]).read_text())
    firmware = stack["components"].get("firmware")
    if firmware:

        def ship(document):
            for card in document.get("cards", []):
                node.flash(card).update(installed=firmware, running=firmware)

        labnode.update(ship)
    for name in stack["files"]:
        file = Path(stack["packages"]) / name
        if name.endswith(".run"):
            argv = ["sh", str(file), "--", "-f"]
        elif name.endswith(".tar.xz"):
            folder = Path(tempfile.mkdtemp())
            subprocess.run(["tar", "-xJf", str(file), "-C", str(folder)], check=True)
            argv = ["sh", str(next(folder.glob("*/mxmaca-sdk-install.sh"))), "-f"]
        else:
            continue
        code = subprocess.run(argv, stdin=subprocess.DEVNULL, check=False).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
