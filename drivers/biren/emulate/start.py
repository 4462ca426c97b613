"""Installs a starting stack as a site would have: `start.py STACK.json`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab")
import labnode


def main():
    labnode.refuse_outside_lab()
    stack = json.loads(Path(sys.argv[1]).read_text())
    for name in stack["files"]:
        code = subprocess.run(
            ["sh", str(Path(stack["packages"]) / name)], stdin=subprocess.DEVNULL, check=False
        ).returncode  # fmt: skip
        if code:
            return code
    rc, text = labnode.load_module("biren") if stack["components"].get("driver") else (0, "")
    print(text, end="")
    return rc


if __name__ == "__main__":
    sys.exit(main())
