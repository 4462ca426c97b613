"""nv-fabricmanager of a lab node: `--version`, or `-c FILE` to bring the fabric up."""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab")
sys.path.insert(0, str(Path(__file__).parent))
import labnode
import node

LOG = Path("/var/log/fabricmanager.log")


def log(level, text):
    with LOG.open("a") as handle:
        handle.write(f"[{time.strftime('%b %d %Y %H:%M:%S')}] [{level}] [tid {1000}] {text}\n")


def main():
    labnode.refuse_outside_lab()
    version = labnode.state().get("packages", {}).get("fabricmanager", "")
    if "--version" in sys.argv or "-v" in sys.argv:
        print(f"Fabric Manager version is : {version}")
        return 0
    if not node.switched():
        text = "request to query NVSwitch device information from NVSwitch driver failed with error:"
        print(text + "WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]")
        return 1
    driver = node.loaded()
    if driver is None:
        print("request to query NVSwitch device information failed: the NVIDIA driver is not loaded")
        return 1
    if driver != version:
        text = (
            f"fabric manager NVIDIA GPU driver interface version {version} don't match with driver version {driver}. "
            "Please update with matching NVIDIA driver package."
        )
        log("ERROR", text)
        print(text)
        return 1
    node.change(fabric=driver)
    log("INFO", "Fabric Manager version " + version + " started")
    if labnode.fault("fabric-stuck"):
        log("ERROR", "training of NVSwitch links has not ended")
        return 0
    log("INFO", "Successfully configured all the available NVSwitches to route GPU NVLink traffic.")
    labnode.effect("activate", component="fabricmanager", version=version)
    return 0


if __name__ == "__main__":
    sys.exit(main())
