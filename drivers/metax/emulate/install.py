"""What the emulated installers do in the node.

install.py driver FOLDER [-f]     from the driver's run file: packages of FOLDER, DKMS, module
install.py remove-driver          takes the driver away
install.py toolkit VERSION [-f|-U]  the SDK's own script
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab")
sys.path.insert(0, str(Path(__file__).parent))
import labnode

SDK_SCRIPT = "mxmaca-sdk-install.sh"


def run(argv):
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, check=False)
    return done.returncode


def set_package(component, version):
    def change(document):
        packages = document.setdefault("packages", {})
        if version is None:
            packages.pop(component, None)
        else:
            packages[component] = version

    labnode.update(change)


def agreed(arguments, question):
    """True with -f; else the person is asked, and no answer is a no."""
    if "-f" in arguments:
        return True
    print(f"{question} [y/N] ", end="", flush=True)
    return (sys.stdin.readline() or "n").strip().lower() == "y"


def driver(folder, arguments):
    facts = json.loads((folder / "package.json").read_text())
    kmd, old = facts["kmd"], labnode.state().get("packages", {}).get("driver")
    if not agreed(arguments, f"Install MetaX driver {facts['train']}?"):
        print("\nInstallation cancelled.")
        return 0
    print(f"Installing MetaX driver {facts['train']} (kernel mode driver {kmd})")
    if old == kmd and labnode.module_built("metax", kmd, labnode.kernel()):
        print("The same version is already installed.")
        return load(kmd)
    if old:
        labnode.dkms_remove("metax", old)
    for name in facts["packages"]:
        file = folder / name
        argv = (
            ["dpkg", "-i", str(file)]
            if name.endswith(".deb")
            else ["rpm", "-U", "--oldpackage", "--replacepkgs", str(file)]
        )
        if run(argv):
            print(f"Failed to install {name}")
            return 1
    rc, log = labnode.dkms("metax", kmd, f"/usr/src/metax-{kmd}")
    print(log.rstrip())
    if rc:
        print("Driver installation failed: the kernel module cannot be built for this kernel")
        set_package("driver", None)
        return 1
    set_package("driver", kmd)
    labnode.effect("install", component="driver", version=kmd)
    return load(kmd)


def load(kmd):
    running = labnode.loaded("metax")
    if running is None:
        rc, text = labnode.load_module("metax")
        if rc:
            print(text)
            return 1
    elif running != kmd:
        print(f"Kernel mode driver {running} is still loaded. Unload it or reboot to use {kmd}.")
    print("MetaX driver has been installed successfully.")
    return 0


def remove_driver():
    old = labnode.state().get("packages", {}).get("driver")
    if old is None:
        print("MetaX driver is not installed.")
        return 0
    labnode.dkms_remove("metax", old)
    rpm = labnode.state().get("package_kind") == "rpm"
    rc = run(["rpm", "-e", "metax-linux"] if rpm else ["dpkg", "--purge", "metax-linux"])
    if rc == 0:
        set_package("driver", None)
        labnode.effect("remove", component="driver", version=old)
    return rc


def toolkit(version, arguments):
    target, link = Path(f"/opt/maca-{version}"), Path("/opt/maca")
    if "-U" in arguments:
        if not target.is_dir():
            print("MXMACA SDK is not installed.")
            return 0
        shutil.rmtree(target)
        if link.is_symlink() and not link.exists():
            link.unlink()
        set_package("toolkit", None)
        labnode.effect("remove", component="toolkit", version=version)
        print(f"MXMACA SDK {version} has been removed.")
        return 0
    if not agreed(arguments, f"Install MXMACA SDK {version}?"):
        print("\nInstallation cancelled.")
        return 0
    if target.is_dir() and link.is_symlink() and link.resolve() == target:
        print("The same version is already installed.")
        return 0
    (target / "bin").mkdir(parents=True, exist_ok=True)
    (target / "version.txt").write_text(f"{version}\n")
    script = target / "bin" / SDK_SCRIPT
    script.write_text(f'#!/bin/sh\nexec python3 /opt/fleet-lab/metax/install.py toolkit {version} "$@"\n')
    script.chmod(0o755)
    fresh = Path("/opt/.maca.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(link)
    set_package("toolkit", version)
    labnode.effect("install", component="toolkit", version=version)
    print(f"MXMACA SDK {version} has been installed successfully.")
    return 0


def main():
    labnode.refuse_outside_lab()
    verb, rest = sys.argv[1], sys.argv[2:]
    if verb == "driver":
        return driver(Path(rest[0]), rest[1:])
    if verb == "remove-driver":
        return remove_driver()
    return toolkit(rest[0], rest[1:])


if __name__ == "__main__":
    sys.exit(main())
