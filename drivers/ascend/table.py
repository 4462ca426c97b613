"""The table of `npu-smi info`, in every dialect: 310, 310P, 310B, 910A, A2, A3 and A5.

Cells are split at `|` and `/`, their meaning comes from the two header lines; widths and column numbers are never used.
A card is two lines. A table counts only when each card has both and a border closes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from drivers.ascend.words import VENDOR_NAME, VERSION, number, trouble
from drivers.text import bus_id
from fleet.core.model import Json
from fleet.core.vendor import Reading, unparsed

_BANNER = re.compile(r"\|\s*npu-smi\s+(\S+)\s+Version:\s*(\S+)\s*\|")
_START = "| npu-smi "
_BORDER = re.compile(r"\+[-=+]+\+?")
_SLASH = re.compile(r"[ \t]*/[ \t]*")
_SPACED = (("NPU ID", "NPU"), ("NPU Util(%)", "NPU-Util(%)"), ("Process id", "Process-id"))
_TAIL = 1 << 20  # of a longer watch only the end matters
HEALTH = {"ok": "ok", "warning": "warning", "alarm": "critical", "critical": "critical", "unknown": "unknown"}


@dataclass
class _Table:
    smi: str
    driver: str
    first: list[list[str]] = field(default_factory=list)  # words of the header's first line, by cell
    second: list[list[str]] = field(default_factory=list)
    chips: list[dict[str, str]] = field(default_factory=list)
    half: dict[str, str] | None = None  # a card of which one line was read
    border: int = 0  # width of the borders: a shorter one is cut
    closed: bool = False  # a border followed the last line
    processes: bool = False
    broken: str = ""
    after: int = 0  # drawn lines after the one that broke it: a cut has none

    @property
    def complete(self) -> bool:
        return not self.broken and self.half is None and self.closed and bool(self.chips)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line[1:-1].split("|")]


def _words(cell: str) -> list[str]:
    for old, new in _SPACED:
        cell = cell.replace(old, new)
    return cell.split()


def _named(header: list[list[str]], line: str) -> dict[str, str] | None:
    """Header word -> value of one line; None when the line does not have the header's shape."""
    cells = _cells(line)
    if len(cells) != len(header):
        return None
    out: dict[str, str] = {}
    for words, cell in zip(header, cells, strict=True):
        values = _SLASH.sub("/", cell).split()
        if words and words[-1] == "Name" and len(values) > len(words):  # a name may have blanks
            values = [*values[: len(words) - 1], " ".join(values[len(words) - 1 :])]
        if len(values) != len(words):
            return None
        out.update(zip(words, values, strict=True))
    return out


def _row(table: _Table, line: str) -> None:
    if not table.first:
        table.first = [_words(cell) for cell in _cells(line)]
        flat = {word for words in table.first for word in words}
        if not {"NPU", "Name", "Health"} <= flat:
            table.broken = "the header's first line is not known"
    elif not table.second:
        table.second = [_words(cell) for cell in _cells(line)]
        flat = {word for words in table.second for word in words}
        if "Bus-Id" not in flat or len(table.second) != len(table.first):
            table.broken = "the header's second line is not known"
    elif table.half is None:
        table.half = _named(table.first, line)
        if table.half is None or not table.half["NPU"].isdigit():
            table.broken = "a card's first line does not fit the header"
    else:
        rest = _named(table.second, line)
        if rest is None:
            table.broken = "a card's second line does not fit the header"
            return
        table.chips.append({**table.half, **rest})
        table.half = None


def _take(table: _Table, line: str) -> None:
    """Give one line to the table that is being read."""
    if table.broken or table.processes:
        table.after += bool(table.broken)
        return
    if _BORDER.fullmatch(line):
        if table.half is not None:
            table.broken = "a card has only one line"
        table.border = table.border or len(line)
        # a border of dashes stands between the chips of one card: only the double one ends a card
        table.closed = table.closed or (len(line) == table.border and "=" in line)
    elif line.startswith("|"):
        if "Process id" in line or "No running processes" in line:
            table.processes = True
            if table.half is not None or not table.chips or not table.closed:
                table.broken = "the process list began before the cards ended"
            return
        table.closed = False
        if not line.endswith("|"):
            table.broken = "a line is cut"
            return
        _row(table, line)


def tables(text: str) -> tuple[list[_Table], int]:
    """Every table in `text`, and how many of them before the last are not complete."""
    found: list[_Table] = []
    for raw in text.split("\n"):
        line = raw.strip()
        if line[:1] not in {"|", "+"}:
            continue
        banner = _BANNER.fullmatch(line)
        if banner:
            found.append(_Table(banner[1], banner[2]))
        elif found and (line.startswith(_START) or (len(line) > 2 and _START.startswith(line))):
            found.append(_Table("", "", broken="the banner is cut"))
        elif found:
            _take(found[-1], line)
    return found, sum(not table.complete for table in found[:-1])


def _chip(raw: dict[str, str], several: bool) -> dict[str, Json]:
    memory = raw.get("HBM-Usage(MB)", raw.get("Memory-Usage(MB)", ""))
    used, _, total = memory.partition("/")
    position = raw.get("Phy-ID") or (raw.get("Device") if several else None) or raw["NPU"]
    return {
        "index": number(position),
        "npu": number(raw["NPU"]),
        "chip": number(raw.get("Chip", "")),
        "name": raw["Name"],
        "bus_id": bus_id(raw["Bus-Id"]) or None,
        "health": HEALTH.get(raw["Health"].lower(), "unknown"),
        "memory_used_mib": number(used),
        "memory_total_mib": number(total),
        "temperature_c": number(raw.get("Temp(C)", "")),
        "power_w": number(raw.get("Power(W)", "")),
    }


def read_info(command: str, text: str) -> Reading:
    """`npu-smi info`: components `smi` and `driver`, one accelerator for each chip.

    The last complete table counts, also when the one after it ends early (a watch that was stopped). A table that a
    second one interrupts, or that goes on after a line that does not fit, means two runs wrote at once: `unparsed`.
    """
    if len(text) > 2 * _TAIL:
        cut = text[-_TAIL:]
        start = cut.find("| npu-smi ")
        text = cut[start:] if start >= 0 else ""
    found, aborted = tables(text)
    if not found:
        status = trouble(text)
        return Reading(VENDOR_NAME, command, status) if status else unparsed(VENDOR_NAME, command, "no npu-smi table")
    complete = [table for table in found if table.complete]
    if aborted or not complete or found[-1].after:
        return unparsed(VENDOR_NAME, command, found[-1].broken or "the table is cut or two runs are mixed")
    table = complete[-1]
    chips = [(chip["NPU"], chip.get("Chip", chip.get("Phy-ID", "0"))) for chip in table.chips]
    if len(set(chips)) != len(chips):
        return unparsed(VENDOR_NAME, command, "a chip is in the table twice")
    count: dict[str, int] = {}
    for npu, _ in chips:
        count[npu] = count.get(npu, 0) + 1
    checks: tuple[dict[str, Json], ...] = ()
    if "may not be completely installed" in text:
        checks = ({"name": "driver-install-complete", "result": "fail"},)
    return Reading(
        VENDOR_NAME,
        command,
        "ok",
        components={k: v for k, v in (("smi", table.smi), ("driver", table.driver)) if VERSION.match(v)},
        accelerators=tuple(_chip(chip, count[chip["NPU"]] > 1) for chip in table.chips),
        checks=checks,
    )
