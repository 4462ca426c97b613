"""What the tests do in the guest, over connections that can be cut like a controller's.

How long an emulated machine takes depends on what else its host does, so that no wait here is a measure of anything:
each ends by an event, the one waited for or the end of what should have brought it about. `LIMIT_S` only keeps a test
from waiting for ever.
"""

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
LIMIT_S = 3600.0


def until(what: str, true: Callable[[], bool], *work: subprocess.Popen[bytes], pause_s: float = 0.5) -> None:
    """Wait for it; AssertionError as soon as one of `work`, which should bring it about, has ended without."""
    end = time.monotonic() + LIMIT_S
    while not true():
        for process in work:
            if process.poll() is not None and not true():
                said = process.stdout.read().decode(errors="replace") if process.stdout else ""
                raise AssertionError(f"it ended with {process.returncode} before this: {what}: {said}")
        assert time.monotonic() < end, f"not within {LIMIT_S:.0f} s: {what}"
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
        words = [f"FLEET_STATE={state}", RUN, name, str(fence), f"{LIMIT_S:.0f}", effect, command]
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

    def marked(self, word: str) -> bool:
        """Whether something in the guest has written this file into the folder that it shares with its host.

        That needs no connection, which the test may be about to lose.
        """
        return (self.site.lab.folder / f"nodes/{self.name}/log" / word).is_file()

    def rebooted(self, before: str) -> None:
        """Wait for the next boot, until one can log in."""
        state = self.site.lab.folder / f"nodes/{self.name}/state"

        def again() -> bool:
            said = (state / "ready").read_text().strip() if (state / "ready").is_file() else ""
            return said not in (before, "") and said == self.site.lab.state(self.name).read()["boot_id"]

        until("another boot", again)
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
