"""Which process a pid means: with its start time it names one process for as long as the machine runs."""

from __future__ import annotations

from pathlib import Path


def start_of(pid: int) -> str:
    """When that process started, in clock ticks since boot (field 22 of /proc/PID/stat).

    "" when there is none, when it is a zombie, or when the system does not tell. The name in the file may be any bytes.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if len(fields) < 20 or fields[0] in {"Z", "X"} else fields[19]
