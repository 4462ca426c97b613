"""Installs a starting stack in a lab node the way a site would have: user, driver, firmware, boot, MCU, toolkit."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab")
import labnode


def run(argv, ok=(0,)):
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode not in ok:
        sys.stderr.write(f"{' '.join(argv)} ended with {done.returncode}\n{done.stdout[-3000:]}")
        raise SystemExit(1)


def mcu_on_cards(path):
    """A card comes from the factory with its microcontroller's firmware."""
    with zipfile.ZipFile(path) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".hpm"))
        version = json.loads(archive.read(name).split(b"\n", 1)[0])["mcu"]

    def change(state):
        for card in state["cards"]:
            card.setdefault("flash", {})["mcu"] = {"installed": version, "running": version}

    labnode.update(change)


def main(order):
    labnode.refuse_outside_lab()
    stack = json.loads(Path(order).read_text())
    folder = Path(stack["packages"])
    run(["groupadd", "-f", "HwHiAiUser"])
    run(["useradd", "-g", "HwHiAiUser", "-d", "/home/HwHiAiUser", "-m", "-s", "/bin/bash", "HwHiAiUser"], ok=(0, 9))
    for name in stack["files"]:
        path = folder / name
        if name.endswith(".rpm"):
            run(["rpm", "-U", str(path)])
        elif name.endswith(".zip"):
            mcu_on_cards(path)
        elif "cann" in name:
            run(["sh", str(path), "--install", "--quiet", "--install-for-all"])
        else:
            run(["sh", str(path), "--full", "--install-for-all", "--quiet"], ok=(0, 2))
    run(["python3", "-B", "/opt/fleet-lab/ascend/boot.py", "reboot"])


if __name__ == "__main__":
    main(sys.argv[1])
