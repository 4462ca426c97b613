"""What the emulated installers do in the node.

install.py driver FOLDER [--check|--pre-check|--uninstall|-x DIR]
install.py remove-driver
install.py toolkit VERSION [--uninstall]
"""

from __future__ import annotations

import json
import lzma
import re
import shutil
import sys
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab")
sys.path.insert(0, str(Path(__file__).parent))
import labnode
import node

FIRMWARE = Path("/lib/firmware/biren")
DRIVER = node.HOME / "driver"


def set_package(component, version):
    def change(document):
        packages = document.setdefault("packages", {})
        if version is None:
            packages.pop(component, None)
        else:
            packages[component] = version

    labnode.update(change)


def pre_check():
    """0 when the node can take a driver."""
    kernel = labnode.kernel()
    if not Path(f"/lib/modules/{kernel}/build/Makefile").exists():
        print(f"[ERROR] kernel headers of {kernel} are missing")
        return 1
    if labnode.holders("biren"):
        print("[ERROR] biren device is in use")
        return 1
    print("[INFO] pre-check pass")
    return 0


def wrapper(path, line):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def driver(folder, arguments):
    version = json.loads((folder / "package.json").read_text())["version"]
    if "--check" in arguments:
        print(f"[INFO] biren-driver {version}: integrity check pass")
        return 0
    if "--pre-check" in arguments:
        return pre_check()
    if "--uninstall" in arguments:
        return remove_driver()
    if "-x" in arguments:
        shutil.copytree(folder, arguments[arguments.index("-x") + 1], dirs_exist_ok=True)
        return 0
    old = node.installed()
    if old == version and labnode.module_built("biren", version, labnode.kernel()):
        print(f"[INFO] biren-driver {version} is already installed")
        return 0
    if pre_check():
        return 1
    if node.loaded() is not None:
        print("[ERROR] biren module is loaded, please uninstall the old driver first")
        return 1
    if old:
        remove_driver()
    print(f"[INFO] installing biren-driver {version}")
    rc, log = labnode.dkms("biren", version, folder / "source")
    print(log.rstrip())
    if rc:
        print("[ERROR] failed to build the kernel module")
        return 1
    if labnode.fault("vermagic") and version != node.own().get("healthy_with"):
        spoil_vermagic()
    FIRMWARE.mkdir(parents=True, exist_ok=True)
    for name in ("br1xx_cp.bin", "br1xx_sdma.bin"):
        (FIRMWARE / name).write_text("stand-in of the fleet lab\n")
    here = Path(__file__).parent
    wrapper(DRIVER / "biren-smi/bin/brsmi", f'exec python3 {here}/smi.py "$@"')
    wrapper(DRIVER / "scripts/uninstall.sh", f"exec python3 {here}/install.py remove-driver")
    tool = Path("/usr/bin/brsmi")
    tool.unlink(missing_ok=True)
    tool.symlink_to(DRIVER / "biren-smi/bin/brsmi")
    set_package("driver", version)
    labnode.effect("install", component="driver", version=version)
    print(f"[INFO] biren-driver {version} installed")
    return 0


def spoil_vermagic():
    """What a package made for another build of the kernel is: one digit of the name differs."""
    for file in labnode.module_files("biren"):
        packed = file.suffix == ".xz"
        data = lzma.decompress(file.read_bytes()) if packed else file.read_bytes()
        match = re.search(rb"vermagic=(\S+)", data)
        if match:
            name = bytearray(match[1])
            at = max(i for i, letter in enumerate(name) if chr(letter).isdecimal())
            name[at] = ord("1") if chr(name[at]) != "1" else ord("2")
            data = data[: match.start(1)] + bytes(name) + data[match.end(1) :]
            file.write_bytes(lzma.compress(data, check=lzma.CHECK_CRC32) if packed else data)


def remove_driver():
    old = node.installed()
    if not old:
        print("[INFO] biren-driver is not installed")
        return 0
    if node.loaded() is not None:
        rc, text = labnode.unload_module("biren")
        if rc:
            print(text)
            return 1
    labnode.dkms_remove("biren", old)
    shutil.rmtree(FIRMWARE, ignore_errors=True)  # the package's script takes the firmware files along
    shutil.rmtree(DRIVER, ignore_errors=True)
    Path("/usr/bin/brsmi").unlink(missing_ok=True)
    set_package("driver", None)
    labnode.effect("remove", component="driver", version=old)
    print(f"[INFO] biren-driver {old} uninstalled")
    return 0


def toolkit(version, arguments):
    target, link = node.HOME / "sdk" / version, node.HOME / "sdk/latest"
    if "--check" in arguments or "--pre-check" in arguments:
        print("[INFO] check pass")
        return 0
    if "--uninstall" in arguments:
        if target.is_dir():
            shutil.rmtree(target)
            if link.is_symlink() and not link.exists():
                link.unlink()
            set_package("toolkit", None)
            labnode.effect("remove", component="toolkit", version=version)
        print(f"[INFO] birensupa-sdk {version} uninstalled")
        return 0
    if target.is_dir() and link.resolve() == target:
        print(f"[INFO] birensupa-sdk {version} is already installed")
        return 0
    wrapper(target / "scripts/brsw_set_env.sh", f"export BIREN_HOME={target}")
    wrapper(target / "scripts/uninstall.sh", f"exec python3 {Path(__file__)} toolkit {version} --uninstall")
    fresh = link.with_name(".latest.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(link)
    set_package("toolkit", version)
    labnode.effect("install", component="toolkit", version=version)
    print(f"[INFO] birensupa-sdk {version} installed")
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
