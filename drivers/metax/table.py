"""The plain table of `mx-smi` and `ht-smi`, in the four forms that exist.

    A (to 2.1.6)          GPU NAME | Bus-id | GPU-Util            Temp Power | Memory-Usage |
    B (2.1.12 to 2.2.4)   as A, with Pwr:Usage/Cap and GPU-State
    C (2.2.6 to 2.2.8)    GPU NAME Persistence-M | … sGPU-M       Temp Pwr:Usage/Cap Perf | …
    D (from 2.2.9)        Board Name | GPU Persist-M | Bus-id | GPU-Util sGPU-M, power and temperature swapped

The form is never asked for: each cell is read by the words of the header above it. A table with an unknown word, a card
with half of its lines or a count that does not agree is not read at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from drivers.metax.values import health, number, state, value, verdict
from drivers.text import bus_id
from fleet.core.model import Json
from fleet.core.vendor import Reading, unparsed

_BANNER = re.compile(r"\|\s*(?:MX|HT)-SMI\s+(\S+)\s+Kernel Mode Driver Version:\s*(\S+)\s*\|")
_STACK = re.compile(r"\|\s*(?:MACA|HPCC) Version:\s*(\S+)\s+BIOS Version:\s*(\S+)\s*\|")
_ATTACHED = re.compile(r"Attached GPUs\s*:\s*(\d{1,5})\s*$")
_RULE = re.compile(r"[+|][-+|]+[+|]")
_DOUBLE = re.compile(r"[+|][=+|]+[+|]")

# header word -> (key, may hold blanks)
_HEADERS = {
    "gpu": ("index", False), "name": ("name", True), "board": ("board", False), "persistence-m": ("persistence", False),
    "persist-m": ("persistence", False), "bus-id": ("bus_id", False), "bus-i": ("bus_id", False),
    "gpu-util": ("utilization", False), "sgpu-m": ("sgpu", False), "temp": ("temperature_c", False),
    "power": ("power", True), "pwr:usage/cap": ("power", True), "perf": ("perf", False),
    "memory-usage": ("memory", True), "gpu-state": ("state", True),
}  # fmt: skip
_NEEDED = {"index", "name", "bus_id", "memory", "temperature_c", "power"}

Header = list[list[str]]  # for each cell the keys of its values


class Broken(Exception):
    """The table is not one that can be read. `at` = the line after the one that shows it."""

    at = 0


@dataclass
class _Table:
    components: dict[str, str]
    cards: list[dict[str, Json]] = field(default_factory=list)


def looks_like(text: str) -> bool:
    """Whether a table's banner is in the text."""
    return bool(_BANNER.search(text))


def read(command: str, text: str) -> Reading:
    """The last whole table; `unparsed` when there is none, or when a broken one stands before it.

    A last one that breaks off with the text is a watch that was stopped; one that goes on after a line that does not
    fit is another run, written at the same time.
    """
    lines = [line.strip() for line in text.split("\n")]
    starts = [i for i, line in enumerate(lines) if _BANNER.match(line)]
    last: _Table | None = None
    before = 0
    for position, start in enumerate(starts):
        attached = _count(lines[before:start])
        try:
            table, before = _whole(lines, start, attached)
        except Broken as broken:
            if last is None or position + 1 < len(starts) or any(lines[broken.at :]):
                return unparsed("metax", command, str(broken))
            break
        last = table
    if last is None:
        return unparsed("metax", command, "no table")
    if not last.cards:
        return Reading("metax", command, "no-devices", components=last.components)
    return Reading("metax", command, verdict(last.cards), components=last.components, accelerators=tuple(last.cards))


def _whole(lines: list[str], start: int, attached: int | None) -> tuple[_Table, int]:
    """The table whose banner is at `start`, with as many cards as are attached, and the index of the line after it."""
    reader = _Lines(lines, start)
    try:
        table = _table(reader)
        if not table.cards and attached != 0:
            raise Broken("the table holds no card")
        if attached is not None and attached != len(table.cards):
            raise Broken(f"{attached} cards attached, {len(table.cards)} printed")
    except Broken as broken:
        broken.at = reader.at
        raise
    return table, reader.at


def _count(lines: list[str]) -> int | None:
    found = None
    for line in lines:
        match = _ATTACHED.match(line)
        if match:
            found = int(match[1])
    return found


def _table(reader: _Lines) -> _Table:
    """The table whose banner is the next line."""
    first, second = _BANNER.match(reader.next()), _STACK.match(reader.next())
    if not first or not second:
        raise Broken("the banner breaks off")
    named = {"smi": first[1], "driver": first[2], "toolkit": second[1], "firmware": second[2]}
    table = _Table({name: found for name, raw in named.items() if (found := value(raw))})
    reader.rule(_RULE)
    header = [_header(_cells(reader.next())), _header(_cells(reader.next()))]
    keys = [key for row in header for cell in row for key in cell]
    if len(keys) != len(set(keys)) or not _NEEDED.issubset(keys):
        raise Broken("the header is not one that is known")
    reader.rule(_DOUBLE)
    seen: set[int] = set()
    while reader.card_follows():
        card = _card(header, reader)
        index = card["index"]
        if not isinstance(index, int) or index in seen:
            raise Broken("a card without an index of its own")
        seen.add(index)
        table.cards.append(card)
    return table


class _Lines:
    """A cursor that complains at the end of the text."""

    def __init__(self, lines: list[str], at: int) -> None:
        self.lines = lines
        self.at = at

    def next(self) -> str:
        if self.at >= len(self.lines):
            raise Broken("the table breaks off")
        self.at += 1
        return self.lines[self.at - 1]

    def rule(self, pattern: re.Pattern[str]) -> None:
        if not pattern.fullmatch(self.next()):
            raise Broken("a line of the frame is missing")

    def card_follows(self) -> bool:
        """Whether the next line is a card's; a blank or foreign line, or a frame of one cell, ends the table."""
        if self.at >= len(self.lines):
            return False
        line = self.lines[self.at]
        return line.startswith("|") and not _RULE.fullmatch(line) and _BANNER.match(line) is None


def _cells(line: str) -> list[str]:
    if len(line) < 2 or not line.startswith("|") or not line.endswith("|"):
        raise Broken("a line breaks off")
    return [cell.strip() for cell in line[1:-1].split("|")]


def _header(cells: list[str]) -> Header:
    row: Header = []
    for cell in cells:
        words = cell.lower().split()
        if any(word not in _HEADERS for word in words):
            raise Broken(f"header {cell!r} is not known")
        row.append([_HEADERS[word][0] for word in words])
    return row


_WIDE = {key for key, wide in _HEADERS.values() if wide}


def _split(keys: list[str], cell: str) -> dict[str, str]:
    """The values of one cell: single words from both ends, what is between them belongs to the wide one."""
    words = cell.split()
    wide = next((i for i, key in enumerate(keys) if key in _WIDE), None)
    if not words:
        return {}
    if wide is None:
        if len(words) != len(keys):
            raise Broken(f"cell {cell!r} does not fit its header")
        return dict(zip(keys, words, strict=True))
    tail = len(keys) - wide - 1
    if len(words) < len(keys):
        raise Broken(f"cell {cell!r} does not fit its header")
    out = dict(zip(keys[:wide], words[:wide], strict=True))
    out[keys[wide]] = " ".join(words[wide : len(words) - tail])
    if tail:
        out.update(zip(keys[wide + 1 :], words[-tail:], strict=True))
    return out


def _card(header: list[Header], reader: _Lines) -> dict[str, Json]:
    raw: dict[str, str] = {}
    for row in header:
        cells = _cells(reader.next())
        if len(cells) != len(row):
            raise Broken("a card's line has another number of cells")
        for keys, cell in zip(row, cells, strict=True):
            if keys:
                raw.update(_split(keys, cell))
    while not _RULE.fullmatch(line := reader.next()):  # a long GPU state may go on below its cell
        cells = _cells(line)
        if len(cells) != len(header[1]) or any(cells[:-1]) or "state" not in header[1][-1]:
            raise Broken("a card's last line is followed by something else")
        raw["state"] = f"{raw.get('state', '')} {cells[-1]}"
    return _values(raw)


def _values(raw: dict[str, str]) -> dict[str, Json]:
    bus = bus_id(raw.get("bus_id", ""))
    if not bus or not raw.get("index", "").isdecimal() or len(raw["index"]) > 6:
        raise Broken("a card without index or bus id")
    card: dict[str, Json] = {"index": int(raw["index"]), "name": value(raw.get("name", "")), "bus_id": bus}
    card["temperature_c"] = _unit(raw.get("temperature_c", ""), "C")
    card["power_w"] = _unit(raw.get("power", "").partition(" / ")[0], "W")
    used, total = _memory(raw.get("memory", ""))
    card["memory_used_mib"], card["memory_total_mib"] = used, total
    if value(raw.get("sgpu", "")):
        card["sgpu"] = raw["sgpu"]
    if "state" in raw:
        found = state(raw["state"])
        if found is None:
            raise Broken(f"GPU state {raw['state']!r} is not known")
        card["health"] = health(found[1], found[0])
        if found[1]:
            card["reason"] = found[1]
    return card


def _unit(raw: str, unit: str) -> Json:
    if value(raw) is None:
        return None
    found = number(raw.strip().removesuffix(unit))
    if found is None:
        raise Broken(f"{raw!r} is not a number of {unit}")
    return found


def _memory(raw: str) -> tuple[Json, Json]:
    if value(raw) is None:
        return None, None
    match = re.fullmatch(r"(\d{1,12}|N/A|NA|-)\s*/\s*(\d{1,12}|N/A|NA|-)\s*(?:MiB|MB)?", raw.strip())
    if not match:
        raise Broken(f"{raw!r} is not a memory usage")
    return number(match[1]), number(match[2])
