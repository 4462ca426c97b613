"""Gives a booted guest the hardware of its node: faked parts of /proc and /sys, modules, the vendor's hook, network.

Runs once at each boot, by fleet-lab.service, before sshd. The mounts are made in the namespace of process 1, so every
unit sees them. What is real in a guest, unlike in other nodes: the kernel, its boot id, systemd, the network stack.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, "/opt/fleet-lab")
if TYPE_CHECKING:
    from fleet.lab.node import init, labnode
else:
    import init
    import labnode

STAGE = Path("/run/fleet-lab")
# QEMU's own network for one guest: its address and the host's.
NETWORK = (("addr", "add", "10.0.2.15/24", "dev", "eth0"), ("link", "set", "eth0", "up"))


def _call(*argv: str) -> None:
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)


def hide(state: dict[str, Any]) -> None:
    """Lay the node's devices and kernel name over those of the emulated machine."""
    stage = STAGE / "sys"
    init.publish_devices(state, stage)
    for name in ("module", "bus/pci/drivers", "class/infiniband"):
        (stage / name).mkdir(parents=True, exist_ok=True)
    for name in ("module", "bus/pci", "class/dmi/id", "class/infiniband"):
        target = Path("/sys", name)
        if target.is_dir():
            _call("mount", "--bind", str(stage / name), str(target.resolve()))
    _call("mount", "-t", "tmpfs", "-o", "mode=755,size=4m", "tmpfs", "/proc/driver")
    kernel = state["kernel"]
    for number, (inside, text) in enumerate(
        {
            "/proc/sys/kernel/osrelease": f"{kernel}\n",
            "/proc/version": f"Linux version {kernel} (builder@fleet-lab) (gcc) #1 SMP\n",
            "/proc/modules": "",
        }.items()
    ):
        (STAGE / str(number)).write_text(text)
        _call("mount", "--bind", str(STAGE / str(number)), inside)


def count(boot_id: str) -> str:
    """Write this boot into the state and answer its cause.

    The lab leaves a note when it gives power, and counts that boot itself; without one this is a reboot.
    """
    note = labnode.NODE.state.with_name("power")
    cause = note.read_text().strip() if note.is_file() else "reboot"
    powered = note.is_file()
    note.unlink(missing_ok=True)

    def change(state: dict[str, Any]) -> None:
        state.update(boot_id=boot_id, booted_at=time.time(), modules={}, holders=[])
        if not powered:
            state["boots"] = int(state.get("boots", 0)) + 1

    labnode.update(change)
    return cause


def main() -> int:
    labnode.refuse_outside_lab()
    _call("ip", "link", "set", "lo", "up")
    for words in NETWORK:
        _call("ip", *words)
    STAGE.mkdir(parents=True, exist_ok=True)
    cause = count(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    hide(labnode.state())
    init.bring_up(cause)
    return 0


if __name__ == "__main__":
    sys.exit(main())
