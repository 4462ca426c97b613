"""The program inside an emulated Ascend package: driver, firmware or CANN toolkit, as .run or behind an rpm.

It is the `__main__` of a zip archive behind a shell head (package.py). Words, colours, order rules and exit
statuses are those of the real installers: 0 = live now (or somebody said no), 1 = failed, 2 = reboot needed.
"""

import fcntl
import hashlib
import json
import os
import pwd
import re
import shutil
import sys
import time
import zipfile
from pathlib import Path

sys.path.insert(0, "/opt/fleet-lab/ascend")
import npu_node as node
from npu_node import labnode

ROOT = Path(node.ROOT)
LOG = Path("/var/log/ascend_seclog")
INFO = Path("/etc/ascend_install.info")
LOCK = Path("/run/ascend_installer.lock")
RED, GREEN, PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[0m"
USER = "HwHiAiUser"


class Package:
    """What this file holds, and the options it was started with."""

    def __init__(self, path, args):
        self.path = path
        self.args = args
        with zipfile.ZipFile(path) as archive:
            self.facts = json.loads(archive.read("package.json"))
            self.source = {n[7:]: archive.read(n) for n in archive.namelist() if n.startswith("source/")}
        self.part = self.facts["component"]
        self.version = self.facts["version"]
        self.tag = {"driver": "Driver", "firmware": "Firmware", "toolkit": "Toolkit"}[self.part]
        self.quiet = "--quiet" in args and not labnode.fault("prompt")

    def say(self, level, text, colour=""):
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        shown = f"{colour}{text} {PLAIN}" if colour else text
        print(f"[{self.tag}] [{now}] [{level}]{shown}", flush=True)
        LOG.mkdir(parents=True, exist_ok=True)
        with (LOG / "ascend_install.log").open("a") as handle:
            handle.write(f"[{self.tag}] [{now}] [{level}]{text}\n")

    def end(self, rc, verb):
        """Log the operation and leave."""
        result = "failed" if rc == 1 else "success"
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        name = Path(self.path).name
        with (LOG / "operation.log").open("a") as handle:
            handle.write(f"{verb} MAJOR root {stamp} 127.0.0.1 {name} {result} cmdlist={' '.join(self.args)}.\n")
        self.say("INFO", f"End time: {stamp}")
        sys.exit(rc)

    def fail(self, text, verb="Install", colour=RED):
        self.say("ERROR", text, colour)
        self.end(1, verb)


def value(args, name, default):
    return next((word.partition("=")[2] for word in args if word.startswith(f"--{name}=")), default)


def verify(path):
    """The head names the sha256 of the archive behind it; ends with 1 when they differ."""
    data = Path(path).read_bytes()
    head, _, body = data.partition(b"\n#ARCHIVE\n")
    want = re.search(rb"^# sha256: (\w+)$", head, re.M)
    got = hashlib.sha256(body).hexdigest()
    if not want or want[1].decode() != got:
        print("Verifying archive integrity...Error in SHA256 checksums: "
              f"{got} is different from {want[1].decode() if want else 'none'}")  # fmt: skip
        sys.exit(1)
    print("Verifying archive integrity...  100%   SHA256 checksums are OK. All good.", flush=True)


def settings():
    try:
        rows = [row.partition("=") for row in INFO.read_text().splitlines()]
    except OSError:
        return {}
    return {key: text for key, _, text in rows}


def write_settings(changes):
    order = (
        "UserName", "UserGroup", "Firmware_Install_Type", "Firmware_Install_Path_Param", "Driver_Install_Type",
        "Driver_Install_Path_Param", "Driver_Install_For_All", "Driver_Install_Mode", "Driver_Install_Status",
    )  # fmt: skip
    own = {**settings(), **changes}
    INFO.write_text("".join(f"{key}={own[key]}\n" for key in order if own.get(key)))


# --- what stops an installation -------------------------------------------------------------------------------------


def refuse_host(package):
    """User, tools, chips: the reasons that have nothing to do with what is installed."""
    args = package.args
    if os.geteuid() != 0:
        package.fail("ERR_NO:0x0093;ERR_DES:only root may install")
    user = value(args, "install-username", USER)
    try:
        pwd.getpwnam(user)
    except KeyError:
        package.fail(f"ERR_NO:0x0091;ERR_DES:{user} not exists! Please add {user}")
    before = settings().get("UserName")
    if before and before != user:
        package.fail(f"ERR_NO:0x0095;ERR_DES:the user {user} differs from {before} of the last installation")
    if user == "root" and "--install-for-all" not in args and "--upgrade" not in args:
        package.fail("ERR_NO:0x0091;ERR_DES:root is only permitted with --install-for-all")
    missing = [tool for tool in ("lspci",) if not shutil.which(tool, path="/usr/bin:/usr/sbin:/bin:/sbin")]
    if labnode.fault("missing-tools"):
        missing.append("ifconfig")
    if missing:
        package.fail(f"The list of missing tools: {','.join(missing)},", colour="")
    chip = package.facts.get("chip", "")
    pci = {str(card.get("pci_id", "")) for card in labnode.state().get("cards", [])}
    if chip and not pci & set(package.facts["pci_ids"]):
        package.fail("There is no chip matching the driver package.", colour="")


def refuse_below_floor(package):
    """The chips' flash forbids drivers older than its capability level says."""
    floor = node.floor()
    level = int(floor) if floor.isdigit() else 0
    if floor == "crc_error":
        package.fail("The hardware base version is crc_error, please use a newer version.", "Upgrade")
    known = [capability for capability in node.FLOORS if capability <= level]
    first = node.FLOORS[max(known)] if known else ""
    if first and node.key(package.version) < node.key(first):
        package.fail(f"Version check does not match, please use version {first} or later.", "Upgrade", "")


def refuse_mismatch(package):
    """Driver and firmware out of step: a question without --quiet, a warning with it."""
    other = node.installed("firmware" if package.part == "driver" else "driver")
    if not other:
        return
    if package.part == "driver":
        fits = node.within(package.facts["accepts"], other) or any(
            node.within(card.get("flash", {}).get("accepts", []), package.version) for card in node.cards()
        )
    else:
        ours = node.file_value(f"{node.ROOT}/driver/version.info", "compatible_version_fw")
        fits = node.within(package.facts["accepts"], other) or node.within(
            re.findall(r"\[([^]]*)\]", ours), package.version
        )
    if not fits:
        package.say("WARNING", "The driver and firmware packages do not match, the device may work abnormally.")
        ask(package, "do you want to continue?")


def ask(package, question):
    """`[y/n]`: waits for an answer. No answer is a no, and a no ends with 0."""
    if package.quiet:
        return
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    print(f"[{package.tag}] [{now}] [INFO]{question}  [y/n] ", end="", flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        sys.exit(0)


def refuse_occupied(package):
    if labnode.holders(node.MODULE) and "--force" not in package.args:
        package.say(
            "ERROR",
            "The davinci nodes are occupied by some processes, please stop processes and install or uninstall again,"
            f" details in : {LOG}/ascend_install.log",
            RED,
        )
        package.say(
            "INFO",
            "If you want to install or uninstall the driver forcibly, add the force parameter."
            " For details, see [--help].",
        )
        package.end(1, "Install")


# --- driver ---------------------------------------------------------------------------------------------------------


def build(package):
    """Build the module by dkms; a failed build puts the old version back."""
    if not Path(f"/lib/modules/{labnode.kernel()}/build/Makefile").exists():
        package.fail(f"Drv_dkms_env_check failed, details in : {LOG}/ascend_install.log")
    package.say("INFO", "driver install type: DKMS")
    package.say("INFO", "upgradePercentage:10%")
    folder = Path("/var/lib/fleet-lab/ascend-source")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, data in package.source.items():
        (folder / name).write_bytes(data)
    if labnode.fault("dkms-fail"):
        for path in folder.glob("*.c"):
            path.write_text(path.read_text() + "\n#error the kernel's compiler and this one differ\n")
    trees = Path("/var/lib/dkms") / node.PACKAGE
    old = [p.name for p in trees.iterdir() if (p / "source").exists()] if trees.is_dir() else []
    if old != [package.version] or not labnode.module_built(node.MODULE, package.version, labnode.kernel()):
        kept = Path("/var/lib/fleet-lab/ascend-kept")
        shutil.rmtree(kept, ignore_errors=True)
        for version in old:  # dkms puts no older module over a newer one: the old one goes first
            shutil.copytree(f"/usr/src/{node.PACKAGE}-{version}", kept / version)
            labnode.dkms_remove(node.PACKAGE, version)
        rc, log = labnode.dkms(node.PACKAGE, package.version, folder)
        (LOG / "ascend_rebuild.log").write_text(log)
        if rc:
            labnode.dkms_remove(node.PACKAGE, package.version)
            for version in old:
                labnode.dkms(node.PACKAGE, version, kept / version)
            package.say("ERROR", "Dkms install failed, details in : /var/log/ascend_seclog/ascend_rebuild.log", RED)
            package.fail(f"Driver_ko_install failed, details in : {LOG}/ascend_install.log")
    package.say("INFO", "upgradePercentage:40%")


def lay_down(package):
    """Files of the driver: version.info, tools, the uninstaller."""
    target = ROOT / "driver"
    for name in ("tools", "script"):
        (target / name).mkdir(parents=True, exist_ok=True)
    fresh = target / "version.info.new"
    fresh.write_text(package.facts["version_info"])
    fresh.replace(target / "version.info")
    for path, program in labnode.install_facts("ascend")["with_driver"].items():
        wrapper = Path(path)
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        wrapper.write_text(f'#!/bin/sh\nexec python3 -B -S -E /opt/fleet-lab/ascend/{program} "$@"\n')
        wrapper.chmod(0o755)
    link = Path("/usr/bin/npu-smi")
    if not link.exists():
        link.symlink_to("/usr/local/sbin/npu-smi")
    keep(package, target)


def keep(package, target):
    """The uninstaller is this file itself."""
    script = target / "script"
    script.mkdir(parents=True, exist_ok=True)
    if Path(package.path).resolve() != (script / "package.run").resolve():
        shutil.copyfile(package.path, script / "package.run")
    (script / "uninstall.sh").write_text(f'#!/bin/sh\nexec python3 -B {script}/package.run --uninstall "$@"\n')
    (script / "uninstall.sh").chmod(0o700)


def renew_modules(package):
    """Take the old modules out and the new ones in: "live", "ko_abort" or "reset_fail"."""
    first = node.live_driver() is None
    pending = any(node.firmware(card, "installed") not in ("", node.firmware(card)) for card in node.cards())
    if not first:
        package.say("INFO", "device hot reset start")
        if pending or labnode.fault("hot-reset-fail"):
            return "reset_fail"
        for name in node.MODULES:
            if labnode.loaded(name) is not None and labnode.unload_module(name)[0]:
                return "ko_abort"
    package.say("INFO", "Waiting for device startup...")
    rc, text = labnode.load_module(node.MODULE)
    if rc:
        package.say("ERROR", f"{node.MODULE} modprobe failed: {text}")
        return "reset_fail"
    package.say("INFO", "Device startup success")
    if not first:
        labnode.effect("reset", reason="hot reset")
    return "live"


def install_driver(package):
    before = node.installed("driver")
    upgrade = "--upgrade" in package.args
    verb = "Upgrade" if upgrade else "Install"
    if upgrade and not before:
        package.fail("ERR_NO:0x0080;ERR_DES:the driver is not installed, it cannot be upgraded", verb)
    refuse_below_floor(package)
    if before and (not upgrade or labnode.fault("prompt")):
        ask(
            package,
            f"Driver package has been installed on the path {ROOT}, the version is {before}, and the version of this"
            f" package is {package.version},do you want to continue?",
        )
    refuse_mismatch(package)
    refuse_occupied(package)
    if before:
        package.say("INFO", f"base version is {before}.")
    package.say("WARNING", "Do not power off or restart the system during the installation/upgrade")
    user = value(package.args, "install-username", USER)
    package.say("INFO", f"set username and usergroup, {user}:{user}")
    build(package)
    lay_down(package)
    write_settings(
        {
            "UserName": user, "UserGroup": user, "Driver_Install_Type": "full", "Driver_Install_Path_Param": str(ROOT),
            "Driver_Install_For_All": "yes", "Driver_Install_Mode": "normal", "Driver_Install_Status": "",
        }
    )  # fmt: skip
    labnode.update(lambda s: s.setdefault("packages", {}).update({"driver": package.version}))
    labnode.effect("install", component="driver", version=package.version)
    package.say("INFO", "upgradePercentage:90%")
    state = renew_modules(package)
    package.say("INFO", "upgradePercentage:100%")
    write_settings({"Driver_Install_Status": "complete"})
    done = "upgraded" if upgrade else "installed"
    if state == "live":
        package.say("INFO", f"Driver package {done} successfully! The new version takes effect immediately.", GREEN)
        package.end(0, verb)
    if state == "ko_abort":
        package.say("INFO", f"Driver package {done} finished!", GREEN)
        package.say(
            "WARNING", "Kernel modules can not be removed, reboot needed for installation/upgrade to take effect!"
        )
        package.end(2, verb)
    package.say(
        "INFO",
        f"{GREEN}Driver package {done} successfully! {PLAIN}{RED}Reboot needed for installation/upgrade to take"
        f" effect! {PLAIN}",
    )
    package.end(2, verb)


# --- firmware -------------------------------------------------------------------------------------------------------


def install_firmware(package):
    verb = "Upgrade" if "--upgrade" in package.args else "Install"
    if not node.installed("driver"):
        package.fail("ERR_NO:0x0080;ERR_DES:the driver is not installed, install it before the firmware", verb)
    if node.live_driver() is None or ("--rpm" in package.args and node.live_driver() != node.installed("driver")):
        package.fail("The driver is not live, please reboot before the firmware is installed.", verb)
    refuse_mismatch(package)
    package.say("WARNING", "Do not power off or restart the system during the installation/upgrade")
    package.say("INFO", "upgradePercentage: 0%")
    there = [card["index"] for card in node.cards()]

    def write(state):
        for card in state["cards"]:
            if card["index"] in there:
                flash = card.setdefault("flash", {})
                flash.setdefault("firmware", {})["installed"] = package.version
                flash["accepts"] = package.facts["accepts"]
        state.setdefault("pending", {})["ascend"] = "firmware"
        state.setdefault("packages", {})["firmware"] = package.version

    labnode.update(write)
    labnode.effect("flash", component="firmware", version=package.version, cards=len(there))
    package.say("INFO", "upgradePercentage: 90%")
    target = ROOT / "firmware"
    target.mkdir(parents=True, exist_ok=True)
    fresh = target / "version.info.new"
    fresh.write_text(package.facts["version_info"])
    fresh.replace(target / "version.info")
    keep(package, target)
    write_settings({"Firmware_Install_Type": "full", "Firmware_Install_Path_Param": str(ROOT)})
    labnode.effect("install", component="firmware", version=package.version)
    package.say("INFO", "upgradePercentage: 100%")
    package.say("INFO", f"The firmware of [{len(there)}] chips are successfully upgraded.")
    if len(there) < len(labnode.state().get("cards", [])):
        package.say("WARNING", "There are some chips not ready, please check after reboot")
    done = "upgraded" if verb == "Upgrade" else "installed"
    package.say(
        "INFO",
        f"Firmware package {done} successfully! Reboot now or after driver installation for the installation/upgrade"
        " to take effect.",
    )
    package.end(2, verb)


# --- toolkit --------------------------------------------------------------------------------------------------------


def toolkit_root(version):
    """(folder of the version, the link that names the newest): the root moved with 8.5."""
    if node.key(version) >= node.key("8.5.0"):
        return ROOT / f"cann-{version}", ROOT / "cann"
    return ROOT / "ascend-toolkit" / version, ROOT / "ascend-toolkit" / "latest"


def install_toolkit(package):
    if not package.quiet:
        ask(package, "Do you accept the EULA?")
    folder, latest = toolkit_root(package.version)
    inner = folder / f"{package.facts['arch']}-linux"
    inner.mkdir(parents=True, exist_ok=True)
    (inner / "ascend_toolkit_install.info").write_text(package.facts["version_info"].replace("@PATH@", str(inner)))
    keep(package, folder)
    fresh = latest.with_name(latest.name + ".new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(folder.name)
    fresh.replace(latest)
    labnode.update(lambda s: s.setdefault("packages", {}).update({"toolkit": package.version}))
    labnode.effect("install", component="toolkit", version=package.version)
    package.say("INFO", f"Ascend-cann-toolkit_{package.version} install success. The install path is {folder}.")
    package.end(0, "Install")


# --- removal and the way in -----------------------------------------------------------------------------------------


def uninstall(package):
    if package.part == "driver":
        refuse_occupied(package)
        labnode.dkms_remove(node.PACKAGE, node.installed("driver") or package.version)
        stuck = any(labnode.loaded(m) is not None and labnode.unload_module(m)[0] for m in node.MODULES)
        for path in labnode.install_facts("ascend")["with_driver"]:
            Path(path).unlink(missing_ok=True)
        Path("/usr/bin/npu-smi").unlink(missing_ok=True)
        shutil.rmtree(ROOT / "driver", ignore_errors=True)
        write_settings({key: "" for key in settings() if key.startswith("Driver_")})
    elif package.part == "firmware":
        stuck = False
        shutil.rmtree(ROOT / "firmware", ignore_errors=True)
        write_settings({key: "" for key in settings() if key.startswith("Firmware_")})
    else:
        stuck = False
        folder, latest = toolkit_root(package.version)
        shutil.rmtree(folder, ignore_errors=True)
        if latest.is_symlink() and not latest.exists():
            latest.unlink()
    labnode.update(lambda s: s.get("packages", {}).pop(package.part, None))
    labnode.effect("remove", component=package.part, version=package.version)
    tail = " Reboot needed for uninstallation to take effect!" if stuck else ""
    package.say("INFO", f"{package.tag} package uninstalled successfully!{tail}")
    package.end(2 if stuck else 0, "Uninstall")


def main(path, args):
    labnode.refuse_outside_lab()
    package = Package(path, args)
    if "--version" in args:
        print(package.version)
        return
    if "--check" in args:
        print("Makeself logfile: /root/log/makeself/makeself.log")
        verify(path)
    if "--uninstall" not in args:
        verify(path)
        print(f"Uncompressing ASCEND {package.part.upper()} RUN PACKAGE  100%  ", flush=True)
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    package.say("INFO", f"Start time: {now}")
    package.say("INFO", f"LogFile: {LOG}/ascend_install.log")
    package.say("INFO", f"OperationLogFile: {LOG}/operation.log")
    if "--check" in args:
        package.say("INFO", f"End time: {now}")
        return
    with LOCK.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            package.fail("ERR_NO:0x0094;ERR_DES:another installer is running")
        if "--uninstall" in args:
            uninstall(package)
        if package.part == "toolkit":
            install_toolkit(package)
        refuse_host(package)
        if "--rpm-check" in args:
            if package.part == "driver":
                refuse_below_floor(package)
                refuse_occupied(package)
                if not Path(f"/lib/modules/{labnode.kernel()}/build/Makefile").exists():
                    package.fail(f"Drv_dkms_env_check failed, details in : {LOG}/ascend_install.log")
            return
        if not {"--full", "--upgrade", "--run"} & set(args):
            package.fail("ERR_NO:0x0004;ERR_DES:one of --full, --run, --upgrade, --uninstall, --check is needed")
        {"driver": install_driver, "firmware": install_firmware}[package.part](package)


if __name__ == "__main__":
    main(sys.argv[0], sys.argv[1:])
