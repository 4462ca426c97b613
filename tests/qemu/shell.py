"""What the tests do in the guest, over connections that can be cut like a controller's."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import playbooks
from fleet.lab.process import recorded, this
from tests.lab.rehearsal import Rehearsal

RUNNER = Path(playbooks.__file__).parent / "roles/common/files/fleet-run"
RUN = "/var/lib/fleet/bin/fleet-run"
LIMIT_S = 240.0  # wall time of an emulated machine on a busy host


def until(what: str, true: Callable[[], bool], limit_s: float = LIMIT_S, pause_s: float = 0.5) -> None:
    """AssertionError when it does not become true in time."""
    end = time.monotonic() + limit_s
    while not true():
        assert time.monotonic() < end, f"not within {limit_s:.0f} s: {what}"
        time.sleep(pause_s)


class Guest:
    """The guest and one way into it; `effects` are lines that steps append to a file on its disk."""

    def __init__(self, site: Rehearsal, name: str) -> None:
        self.site, self.name = site, name

    def argv(self, script: str) -> list[str]:
        return self.site.lab.ssh_command(self.name, [script])

    def sh(self, script: str, stdin: bytes = b"", ok: tuple[int, ...] = (0,)) -> str:
        """What a script prints in the guest, run over a connection of its own; its status must be in `ok`."""
        ran = subprocess.run(
            self.argv(script),
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=LIMIT_S,
        )
        said = ran.stdout.decode(errors="replace")
        assert ran.returncode in ok, f"{script} ended with {ran.returncode}: {said}"
        return said

    def bring_runner(self) -> None:
        self.sh(f"mkdir -p {Path(RUN).parent} && cat >{RUN} && chmod 755 {RUN}", RUNNER.read_bytes())

    @staticmethod
    def step(name: str, command: str, effect: str = "idempotent", fence: int = 1, state: str = "/var/lib/fleet") -> str:
        """The command line of one step."""
        words = [f"FLEET_STATE={state}", RUN, name, str(fence), "600", effect, command]
        return "env " + " ".join(map(shlex.quote, words))

    @contextlib.contextmanager
    def session(self, script: str) -> Iterator[subprocess.Popen[bytes]]:
        """A connection with a script that goes on; it does not outlive the block."""
        process = subprocess.Popen(
            self.argv(script), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def count(self, word: str, file: str = "/root/effects") -> int:
        return self.sh(f"cat {file} 2>/dev/null || true").split().count(word)

    def properties(self, unit: str) -> dict[str, str]:
        """What systemd says of a unit."""
        lines = self.sh(f"systemctl show {unit} -p LoadState,ActiveState,Transient,MainPID,ControlGroup,Result").split()
        return dict(line.partition("=")[::2] for line in lines)

    def boot_id(self) -> str:
        return self.sh("cat /proc/sys/kernel/random/boot_id").strip()

    def rebooted(self, before: str) -> None:
        """Wait for the next boot, until one can log in."""
        until("another boot", lambda: self.site.lab.state(self.name).read()["boot_id"] not in (before, ""))
        self.site.lab.wait_ready([self.name])

    def qemu(self) -> int:
        """The pid of the guest's QEMU."""
        return recorded(self.site.lab.folder / f"nodes/{self.name}/processes.json")["keeper"].pid

    def boot_s(self) -> float:
        """Wall seconds of this boot, from QEMU's start until one could log in."""
        folder = self.site.lab.folder / f"nodes/{self.name}"
        return (folder / "state/ready").stat().st_mtime - (folder / "processes.json").stat().st_mtime

    def cpu_s(self) -> float:
        """Processor seconds that QEMU has used."""
        fields = Path(f"/proc/{self.qemu()}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def killed(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the near end of a connection."""
    assert this(process.pid) is not None, process.communicate()
    process.send_signal(signal.SIGKILL)
    process.wait()
