"""A lab node that is a QEMU guest: the machine behind its supervisor, and the way into it.

Everything that acts is emulated (TCG), so it runs wherever the lab does; `-cpu max` would emulate some string
instructions byte by byte. A reboot happens inside QEMU, with the same process; a power cycle ends that process.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fleet.lab.guest_image import Image
from fleet.lab.namespace import ENV
from fleet.lab.node.labnode import Files

MEMORY_MIB = 1024
BOOT_LIMIT_S = 900.0  # a quarter of a minute on an idle host
# Faults of the lab itself that work on what only a node of the lab's own process 1 has.
NOT_FOR_GUESTS = frozenset({"silent", "ssh-refused", "ssh-hang", "host-key-changed", "reboot-hangs"})
KERNEL_COMMAND_LINE = (
    "console=ttyS0 quiet panic=5 mitigations=off nokaslr net.ifnames=0 audit=0 random.trust_cpu=on "
    "systemd.show_status=false systemd.log_target=console systemd.log_level=notice"
)


def describe(image: Image) -> dict[str, str]:
    """What node.json says of a guest: the files it boots from."""
    return {"kernel": str(image.kernel), "initrd": str(image.initrd), "disk": str(image.disk)}


class Guest:
    """The machine of one guest, as the supervisor sees it (`fleet.lab.supervisor.Machine`)."""

    def __init__(self, folder: Path, node: dict[str, Any]) -> None:
        self.folder, self.node = folder, node
        self.files = Files(folder / "state", folder / "log")

    def power_on(self, cause: str, change: Callable[[dict[str, Any]], None]) -> str:
        """Before each start of QEMU: the boot is counted here, its boot id is the guest's own to say."""
        self.files.update(change)
        (self.folder / "state/power").write_text(f"{cause}\n")
        return "of a guest"

    def live(self, cause: str, started: Callable[[int], None]) -> int:
        """In a child of the supervisor: becomes QEMU, which ends with 0 when the guest powers off."""
        del cause
        started(os.getpid())
        console = os.open(self.folder / "qemu.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open(os.devnull, os.O_RDWR)
        for wanted, given in ((0, null), (1, console), (2, console)):
            os.dup2(given, wanted)
        argv = command(self.folder, self.node)
        os.execvpe(argv[0], argv, {**os.environ, "TMPDIR": str(self.folder)})


def command(folder: Path, node: dict[str, Any]) -> list[str]:
    """The command line of QEMU for the node in `folder`."""
    boot = node["guest"]
    door = f"hostfwd=tcp:{node['address']}:{node['port']}-:22"
    out = [
        "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-machine", "pc", "-accel",
        "tcg,tb-size=128", "-cpu", "qemu64", "-smp", "1", "-m", str(MEMORY_MIB), "-name", node["name"],
        "-kernel", boot["kernel"], "-initrd", boot["initrd"], "-append", KERNEL_COMMAND_LINE,
        "-drive", f"file={boot['disk']},format=raw,if=virtio,readonly=on,cache=unsafe",
        "-drive", f"file={folder / 'disk.raw'},format=raw,if=virtio,cache=writeback",
        # Nothing but the lab's door leads in, nothing leads out.
        "-netdev", f"user,id=net,restrict=on,ipv6=off,{door}", "-device", "virtio-net-pci,netdev=net,romfile=",
        "-device", "virtio-rng-pci", "-serial", f"file:{folder / 'console.log'}", "-monitor", "none",
    ]  # fmt: skip
    for name in ("state", "log"):
        out += ["-virtfs", f"local,path={folder / name},mount_tag={name},security_model=none"]
    return out


def run(ssh: Sequence[str], argv: Sequence[str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run a program in a guest as root over `ssh`, a command line up to the host; output and errors together."""
    words = ["/usr/bin/env", "-i", *(f"{key}={value}" for key, value in ENV.items()), *argv]
    quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words)
    return subprocess.run([*ssh, quoted], input=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
