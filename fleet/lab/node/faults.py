"""The faults that the lab itself can inject, run inside the node: `faults.py NAME on|off`, `faults.py --boot`.

The vendors' own come with `faults.json` of their folder. A fault that lives in a process or mount is applied again at
each boot; the others are changes of the node's disk and last until they are taken back.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, "/opt/fleet-lab")
if TYPE_CHECKING:
    from fleet.lab.node import labnode
else:
    import labnode

KEPT = Path("/var/lib/fleet-lab/kept")
STAGE = Path("/var/lib/fleet/stage")


def _door(_: bool) -> None:
    """sshd's state follows from state["faults"]: process 1 looks again."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(1, signal.SIGUSR1)


def host_key_changed(on: bool) -> None:
    key = Path("/etc/ssh/ssh_host_ed25519_key")
    KEPT.mkdir(exist_ok=True)
    pair = (key, key.with_suffix(".pub"))
    if on and not (KEPT / key.name).exists():
        for file in pair:
            shutil.move(file, KEPT / file.name)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    elif not on and (KEPT / key.name).exists():
        for file in pair:
            file.unlink(missing_ok=True)
            shutil.move(KEPT / file.name, file)
    with contextlib.suppress(ProcessLookupError):
        os.kill(1, signal.SIGUSR2)


def disk_full(on: bool) -> None:
    mounted = any(line.split()[1] == str(STAGE) for line in Path("/proc/self/mounts").read_text().splitlines())
    if on and not mounted:
        STAGE.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "tmpfs", str(STAGE)], check=True)
        with contextlib.suppress(OSError), (STAGE / ".filler").open("wb") as filler:
            filler.write(b"\0" * 61440)
    elif not on and mounted:
        subprocess.run(["umount", "-l", str(STAGE)], check=True)


def headers_missing(on: bool) -> None:
    """Really removes the header package of the running kernel, and really installs it again."""
    kernel = labnode.kernel()
    rpm = labnode.state().get("package_kind") == "rpm"
    file = next(Path("/var/lib/fleet-lab-packages").glob(f"*{'devel' if rpm else 'headers'}*{_stem(kernel)}*"), None)
    if on:
        name = f"kernel-devel-{_stem(kernel)}" if rpm else f"linux-headers-{kernel}"
        subprocess.run(
            ["rpm", "-e", "--nodeps", name] if rpm else ["dpkg", "--purge", "--force-depends", name], check=True
        )
    elif file is not None:
        subprocess.run(["rpm", "-U", "--replacepkgs", str(file)] if rpm else ["dpkg", "-i", str(file)], check=True)


def _stem(kernel: str) -> str:
    return kernel.removesuffix(".x86_64").removesuffix(".aarch64")


def no_sudo(on: bool) -> None:
    rule = Path("/etc/sudoers.d/ops")
    if on:
        rule.unlink(missing_ok=True)
    else:
        rule.write_text("ops ALL=(ALL) NOPASSWD: ALL\n")
        rule.chmod(0o440)


def noisy_shell(on: bool) -> None:
    """A .bashrc that prints and sleeps: bash reads it for commands that come over ssh."""
    for home in (Path("/root"), Path("/home/ops")):
        file = home / ".bashrc"
        mark = "# fleet-lab noisy-shell"
        lines = [ln for ln in (file.read_text().splitlines() if file.exists() else []) if mark not in ln]
        if on:
            lines.insert(0, f"echo 'Welcome to this node, read the rules'; sleep 0.3 {mark}")
        file.write_text("\n".join(lines) + "\n")


def busy(on: bool) -> None:
    """A job that holds the first device node of the vendor's first module."""
    state = labnode.state()
    rows = labnode.install_facts().get("modules", {})
    if on:
        for module, row in rows.items():
            for pattern in row.get("devices", []):
                device = str(pattern).replace("{index}", "0")
                if Path(device).exists():
                    labnode.hold(module, device, command="python3 train.py", user="ops")
                    labnode.publish_modules()
                    return
        sys.stderr.write("no device node is there: is the driver loaded?\n")
        raise SystemExit(1)
    for entry in state.get("holders", []):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(entry["pid"]), signal.SIGKILL)
    labnode.update(lambda s: s.update(holders=[]))
    labnode.publish_modules()


def _mark_only(_: bool) -> None:
    """Asked for by those who care: the loader of modules, the supervisor."""


# Names and what they do: faults.json beside this file.
FAULTS: dict[str, Callable[[bool], None]] = {
    "silent": _door,
    "ssh-refused": _door,
    "ssh-hang": _door,
    "host-key-changed": host_key_changed,
    "disk-full": disk_full,
    "headers-missing": headers_missing,
    "no-sudo": no_sudo,
    "noisy-shell": noisy_shell,
    "busy": busy,
    "secure-boot": _mark_only,
    "reboot-hangs": _mark_only,
}


def main() -> int:
    labnode.refuse_outside_lab()
    if sys.argv[1:] == ["--boot"]:
        for name, row in json.loads(Path(__file__).with_name("faults.json").read_text()).items():
            if row.get("at_boot") and labnode.fault(name):
                with contextlib.suppress(SystemExit):
                    FAULTS[name](True)
        return 0
    name, on = sys.argv[1], sys.argv[2] == "on"
    FAULTS[name](on)
    return 0


if __name__ == "__main__":
    sys.exit(main())
