"""What the packages' own scripts do in a node: `install.py post|pre COMPONENT VERSION FLAVOUR [UPGRADE-TO]`.

`post driver` builds the modules by dkms for the running kernel and fails as the real package does when that fails.
Safe to repeat: what is already done is left alone and no effect is recorded for it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab")
sys.path.insert(0, str(Path(__file__).parent))
import labnode
import node

UNITS = {"fabricmanager": "nvidia-fabricmanager.service"}


def kernels():
    """The running kernel and every other one that has headers here."""
    base = Path("/lib/modules")
    others = sorted(p.name for p in base.iterdir() if (p / "build").exists()) if base.is_dir() else []
    running = labnode.kernel()
    return [running, *(name for name in others if name != running)]


def post(component, version, flavour):
    before = labnode.state().get("packages", {}).get(component)
    if component == "driver":
        source = Path(f"/usr/src/nvidia-{version}")
        # dkms installs no older module over a newer one; rpm sets the new package up before the old one goes.
        tree = Path("/var/lib/dkms/nvidia")
        for other in sorted(p.name for p in tree.iterdir()) if tree.is_dir() else ():
            if other[:1].isdigit() and other != version:
                labnode.dkms_remove("nvidia", other)
        for kernel in kernels():
            if labnode.module_built("nvidia", version, kernel):
                continue
            rc, log = labnode.dkms("nvidia", version, source, kernel)
            if rc:
                sys.stderr.write(log)
                sys.stderr.write(f"Error! the nvidia module was not built for {kernel}\n")
                return 10
        node.change(flavour=flavour, userland="")
    labnode.update(lambda s: s.setdefault("packages", {}).update({component: version}))
    if before != version:
        labnode.effect("install", component=component, version=version)
    if component in UNITS:
        subprocess.run(["systemctl", "enable", UNITS[component]], check=False, stdout=subprocess.DEVNULL)
    return 0


def pre(component, version, successor):
    """Before a package's files go. On an upgrade only the old module's tree is ours.

    `successor` is the version that follows (dpkg tells it), `newer` when it has been set up already (rpm), else "".
    """
    now = labnode.state().get("packages", {}).get(component)
    if successor == version or (successor == "newer" and now == version):
        return 0  # the same version once more
    if component == "driver":
        labnode.dkms_remove("nvidia", version)
    if now == version and not successor:
        labnode.update(lambda s: s.get("packages", {}).pop(component, None))
        labnode.effect("remove", component=component, version=version)
        if component in UNITS:
            subprocess.run(["systemctl", "disable", UNITS[component]], check=False, stdout=subprocess.DEVNULL)
    return 0


def main():
    labnode.refuse_outside_lab()
    verb, component, version, flavour = sys.argv[1:5]
    if verb == "post":
        return post(component, version, flavour)
    return pre(component, version, sys.argv[5] if len(sys.argv) > 5 else "")


if __name__ == "__main__":
    sys.exit(main())
