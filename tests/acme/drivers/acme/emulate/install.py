"""What the run files do in the node: `install.py driver VERSION SOURCE | toolkit VERSION | remove COMPONENT`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab")
import labnode

VERSION_FILE = Path("/opt/acme/version")
TOOL = Path("/usr/bin/acmectl")


def set_package(component, version):
    def change(document):
        packages = document.setdefault("packages", {})
        packages.pop(component, None)
        if version is not None:
            packages[component] = version

    labnode.update(change)


def driver(version, source):
    old = labnode.state().get("packages", {}).get("driver")
    if old == version and labnode.module_built("acme", version, labnode.kernel()):
        print("already installed")
        return 0
    if labnode.fault("install-fail"):
        print("acme-driver: the installer gives up")
        return 1
    if old:
        labnode.dkms_remove("acme", old)
    rc, log = labnode.dkms("acme", version, source)
    print(log.rstrip())
    if rc:
        return 1
    TOOL.write_text(f'#!/bin/sh\nexec python3 {Path(__file__).parent}/ctl.py "$@"\n')
    TOOL.chmod(0o755)
    set_package("driver", version)
    labnode.effect("install", component="driver", version=version)
    return 0


def toolkit(version):
    if VERSION_FILE.is_file() and VERSION_FILE.read_text().strip() == version:
        return 0
    VERSION_FILE.parent.mkdir(parents=True, exist_ok=True)
    VERSION_FILE.write_text(version + "\n")
    set_package("toolkit", version)
    labnode.effect("install", component="toolkit", version=version)
    return 0


def remove(component):
    old = labnode.state().get("packages", {}).get(component)
    if old is None:
        return 0
    if component == "driver":
        labnode.dkms_remove("acme", old)
        TOOL.unlink(missing_ok=True)
    else:
        VERSION_FILE.unlink(missing_ok=True)
    set_package(component, None)
    labnode.effect("remove", component=component, version=old)
    return 0


def main():
    labnode.refuse_outside_lab()
    verb, what, *rest = sys.argv[1:]
    if verb == "driver":
        return driver(what, rest[0])
    return toolkit(what) if verb == "toolkit" else remove(what)


if __name__ == "__main__":
    sys.exit(main())
