"""Process 1 of a lab node: brings it up, keeps sshd, reaps orphans, and ends when the node reboots or powers off.

argv: cause of this boot (`reboot` or `power_cycle`), address, port. Exit status 3 = reboot wanted, 0 = power off. When
process 1 ends, the kernel ends every process of the node and drops its mounts. SIGUSR1: look at the faults again;
SIGUSR2: restart sshd (a new host key); SIGTERM: read the request that `reboot` or `poweroff` wrote.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, "/opt/fleet-lab")
if TYPE_CHECKING:
    from fleet.lab.node import labnode
else:
    import labnode

REBOOT, POWEROFF = 3, 0
WATCHED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}


def publish_devices(state: dict[str, Any], sys_root: Path = Path("/sys")) -> None:
    """The PCI functions as sysfs shows them, down to a configuration space that the real lspci reads."""
    if (sys_root / "bus/pci/devices").is_dir() and any((sys_root / "bus/pci/devices").iterdir()):
        return
    functions = [*state.get("cards", []), *state.get("switches", []), *state.get("nics", [])]
    for number, function in enumerate(functions):
        revision, numa = function.get("revision", "a1"), str(function.get("numa", 0))
        folder = sys_root / "bus/pci/devices" / function["bus_id"]
        folder.mkdir(parents=True)
        vendor, device = function["pci_id"].split(":")
        sub_vendor, _, sub_device = (function.get("subsystem") or "0000:0000").partition(":")
        code = function["class"]
        for name, text in (
            ("vendor", f"0x{vendor}"), ("device", f"0x{device}"), ("class", f"0x{code}"),
            ("subsystem_vendor", f"0x{sub_vendor}"), ("subsystem_device", f"0x{sub_device}"),
            ("revision", f"0x{revision}"), ("irq", str(64 + number)), ("numa_node", numa),
            ("current_link_speed", function.get("link_speed", "32.0 GT/s PCIe")),
            ("current_link_width", str(function.get("link_width", 16))),
            ("max_link_speed", "32.0 GT/s PCIe"), ("max_link_width", "16"), ("enable", "1"),
            ("resource", "\n".join(["0x0000000000000000 0x0000000000000000 0x0000000000000000"] * 7)),
        ):  # fmt: skip
            (folder / name).write_text(text + "\n")
        space = bytearray(256)
        for offset, value, size in (
            (0x00, vendor, 2), (0x02, device, 2), (0x04, "0406", 2), (0x06, "0010", 2), (0x08, revision, 1),
            (0x09, code, 3), (0x2C, sub_vendor, 2), (0x2E, sub_device, 2),
        ):  # fmt: skip
            space[offset : offset + size] = int(value, 16).to_bytes(size, "little")
        (folder / "config").write_bytes(bytes(space))
    dmi = sys_root / "class/dmi/id"
    dmi.mkdir(parents=True)
    for name, text in state.get("dmi", {}).items():
        (dmi / name).write_text(f"{text}\n")


def blacklisted() -> set[str]:
    out: set[str] = set()
    for file in Path("/etc/modprobe.d").glob("*.conf"):
        out |= {n.replace("-", "_") for n in re.findall(r"^\s*blacklist\s+(\S+)", file.read_text(), re.MULTILINE)}
    return out


def boot(cause: str) -> None:
    """What a boot does before anyone can log in: devices, modules, the vendor's hook, enabled units."""
    bring_up(cause)
    wants = Path("/etc/systemd/system/multi-user.target.wants")
    for link in sorted(wants.iterdir()) if wants.is_dir() else ():
        subprocess.run(["systemctl", "start", link.name], stdin=subprocess.DEVNULL, check=False)


def bring_up(cause: str) -> None:
    """Devices, modules and the vendor's hook: a boot without its units, which a real systemd starts by itself."""
    state = labnode.state()
    labnode.NODE.kernel_log.unlink(missing_ok=True)
    labnode.kernel_log(f"Linux version {state['kernel']} (lab@{os.uname().nodename}) #1 SMP")
    publish_devices(state)
    labnode.publish_modules()
    labnode.effect("boot", cause=cause, boot_id=state["boot_id"])
    skip = blacklisted()
    for name in state.get("boot_modules", []):
        if name not in skip and labnode.module_files(name):
            labnode.load_module(name)
    hook = labnode.HERE / str(state["vendor"]) / "boot.py"
    if hook.is_file():
        with Path("/var/log/fleet-lab/boot-hook.log").open("ab") as log:
            subprocess.run(
                [sys.executable, str(hook), cause], stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False
            )
    labnode.publish_modules()


class Login:
    """The door to the node: sshd, or what a fault makes of it."""

    def __init__(self, address: str, port: int) -> None:
        self.address, self.port = address, port
        self.sshd: subprocess.Popen[bytes] | None = None
        self.plugs: list[socket.socket] = []

    def wanted(self) -> str:
        for name in ("silent", "ssh-refused", "ssh-hang"):
            if labnode.fault(name):
                return name
        return "serve"

    def converge(self) -> None:
        """Make the door what the faults say; safe to repeat."""
        wish = self.wanted()
        if wish != "silent" and self.plugs:
            for plug in self.plugs:
                plug.close()
            self.plugs = []
        if wish in {"silent", "ssh-refused"}:
            self.stop(everything=wish == "silent")
            if wish == "silent" and not self.plugs:
                self._plug()
            return
        if self.sshd is None:
            self._start()
        if self.sshd is not None:
            self.sshd.send_signal(signal.SIGSTOP if wish == "ssh-hang" else signal.SIGCONT)

    def _start(self) -> None:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self.sshd = subprocess.Popen(
            [
                "/usr/sbin/sshd", "-D", "-E", "/var/log/sshd.log", "-o", f"ListenAddress={self.address}",
                "-o", f"Port={self.port}", "-o", "PidFile=/run/sshd.pid",
            ],
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection((self.address, self.port), 1):
                return
            if self.sshd.poll() is not None:
                self.sshd = None
                time.sleep(0.2)
                return
            time.sleep(0.02)

    def stop(self, everything: bool = False) -> None:
        if self.sshd is not None:
            self.sshd.send_signal(signal.SIGCONT)
            self.sshd.kill()
            self.sshd.wait()
            self.sshd = None
        if everything:
            for entry in Path("/proc").glob("[0-9]*/comm"):
                with contextlib.suppress(OSError):
                    if entry.read_text().strip() == "sshd":
                        os.kill(int(entry.parent.name), signal.SIGKILL)

    def _plug(self) -> None:
        """A listener whose queue is full: the kernel drops every further SYN, as a dead machine does."""
        door = socket.socket()
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        door.bind((self.address, self.port))
        door.listen(0)
        self.plugs = [door]
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex((self.address, self.port))
            self.plugs.append(filler)


def reap(login: Login) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if login.sshd is not None and pid == login.sshd.pid:
            login.sshd.returncode = os.waitstatus_to_exitcode(status)
            login.sshd = None


def main() -> int:
    labnode.refuse_outside_lab()
    cause, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    # Signals wake a pipe: blocking them instead would be inherited by sshd and every session.
    awake, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake)
    for watched in WATCHED:
        signal.signal(watched, lambda *_: None)
    request = labnode.NODE.state.with_name("request")
    request.unlink(missing_ok=True)
    boot(cause)
    subprocess.run([sys.executable, "/opt/fleet-lab/faults.py", "--boot"], stdin=subprocess.DEVNULL, check=False)
    login = Login(address, port)
    login.converge()
    labnode.NODE.state.with_name("ready").write_text(labnode.state()["boot_id"])
    while True:
        select.select([awake], [], [], 30)
        seen: set[int] = set()
        with contextlib.suppress(BlockingIOError):
            seen = set(os.read(awake, 512))
        reap(login)
        if signal.SIGTERM in seen:
            wish = request.read_text() if request.is_file() else "poweroff"
            time.sleep(0.3)  # the session that asked still gets its exit status, as on a real machine
            return REBOOT if wish == "reboot" else POWEROFF
        if signal.SIGUSR2 in seen:
            login.stop()
        login.converge()


if __name__ == "__main__":
    sys.exit(main())
