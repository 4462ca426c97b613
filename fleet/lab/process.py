"""Processes that the lab started, remembered by pid and start time so that no other one is ever killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from fleet.process import start_of


@dataclass(frozen=True)
class Process:
    """A pid and when that process started (clock ticks since boot, field 22 of /proc/PID/stat): together unique."""

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        return _started(self.pid) == self.started

    def signal(self, number: int) -> bool:
        """Send a signal if it is still that process; False when it is gone."""
        if not self.alive:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)
            return True
        return False

    def stop(self, limit_s: float = 10.0, gentle: bool = True) -> bool:
        """SIGTERM (unless not `gentle`), then SIGKILL after half the limit; True when it is gone."""
        end = time.monotonic() + limit_s
        self.signal(signal.SIGTERM if gentle else signal.SIGKILL)
        killed = not gentle
        while self.alive and time.monotonic() < end:
            if not killed and time.monotonic() > end - limit_s / 2:
                self.signal(signal.SIGKILL)
                killed = True
            time.sleep(0.02)
        return not self.alive


def _started(pid: int) -> int | None:
    """The start time, None when there is no such process or it is a zombie."""
    started = start_of(pid)
    return int(started) if started else None


def this(pid: int) -> Process | None:
    """The process of that pid as it is now."""
    started = _started(pid)
    return None if started is None else Process(pid, started)


def record(file: Path, processes: dict[str, Process]) -> None:
    """Write role -> process; the file is replaced in one step."""
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps({role: [p.pid, p.started] for role, p in processes.items()}))
    fresh.replace(file)


def recorded(file: Path) -> dict[str, Process]:
    """What `record` wrote; {} when there is nothing (or half a file)."""
    try:
        return {role: Process(*entry) for role, entry in json.loads(file.read_text()).items()}
    except (OSError, ValueError, TypeError):
        return {}
