"""The MCCL tests (`all_reduce_perf` …): the form of nccl-tests. Bandwidths in GB/s, sizes in bytes."""

from __future__ import annotations

import re

from drivers.metax.values import number
from fleet.core.model import Json
from fleet.core.vendor import Reading, unparsed

_PROGRAM = re.compile(r"\b([a-z_]+)_perf\b(?!/)")
_AVERAGE = re.compile(r"^#\s*Avg bus bandwidth\s*:\s*([\d.]+)\s*$", re.M)
_BOUNDS = re.compile(r"^#\s*Out of bounds values\s*:\s*(\d+)\s+(\w+)", re.M)
_WIDTH = 13  # size, count, type, redop, root, then time, algbw, busbw and #wrong twice
_MAX = 1 << 21


def asked(command: str) -> bool:
    """Whether a command runs one of the tests."""
    return _PROGRAM.search(command) is not None


def read(command: str, text: str) -> Reading:
    """`busbw_gbps` = the best of any row, `avg_busbw_gbps`, `wrong`, `max_size_bytes`; a wrong value fails the check.

    The line of the average ends a run: without it the run broke off.
    """
    program = _PROGRAM.search(command)
    average, bounds = _AVERAGE.search(text[-_MAX:]), _BOUNDS.search(text[-_MAX:])
    rows = [words for line in text[-_MAX:].split("\n") if (words := line.split()) and words[0].isdecimal()]
    if not rows or not average or not program or any(len(row) != _WIDTH for row in rows):
        return unparsed("metax", command, "no whole table of an MCCL test")
    speeds = [float(found) for row in rows for cell in (row[7], row[11]) if (found := number(cell)) is not None]
    wrong = sum(int(cell) for row in rows for cell in (row[8], row[12]) if cell.isdecimal())
    bad = wrong > 0 or (bounds is not None and bounds[2] != "OK")
    measure: dict[str, Json] = {
        "busbw_gbps": max(speeds, default=None),
        "avg_busbw_gbps": number(average[1]),
        "wrong": wrong,
        "max_size_bytes": max(int(row[0]) for row in rows if len(row[0]) < 20),
    }
    check: dict[str, Json] = {"name": program[1], "result": "fail" if bad else "pass"}
    return Reading("metax", command, "failed" if bad else "ok", checks=(check,), measure=measure)
