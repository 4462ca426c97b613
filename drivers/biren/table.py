"""The plain table of `brsmi`: three lines a card, read by the words of the header."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from drivers.biren.values import number, value
from drivers.text import bus_id
from fleet.core.model import Json
from fleet.core.vendor import Reading, unparsed

_BANNER = re.compile(r"\|\s*BR-SMI\s+(\S+)\s+Driver Version:\s*(\S+)\s+SUPA Version:\s*(\S+)\s*\|")
_RULE = re.compile(r"[+|][-+|]+[+|]")
_FRAME = re.compile(r"\+-+\+")
_DOUBLE = re.compile(r"[+|][=+|]+[+|]")

# Headers of more than one word first; each key names one value of the cell, None = a value that is not kept.
_HEADERS: tuple[tuple[str, str], ...] = (
    ("volatile uncorr. ecc", "ecc_uncorrected"), ("compute m.", "compute"), ("svi m.", "svi"), ("mig m.", "svi"),
    ("pwr:usage/cap", "power"), ("memory-usage", "memory"), ("persistence-m", "persistence"),
    ("gpu-util", "utilization"), ("bus-id", "bus_id"), ("name", "name"), ("temp", "temperature_c"),
    ("perf", "perf"), ("gpu", "index"),
)  # fmt: skip
_WIDE = {"name", "power", "memory"}
_NEEDED = {"index", "name", "bus_id", "temperature_c", "power", "memory", "ecc_uncorrected"}
_ROWS = 3


class Broken(Exception):
    """The table is not one that can be read. `at` = the first line that has nothing to do with it."""

    def __init__(self, why: str, at: int = 0) -> None:
        super().__init__(why)
        self.at = at


@dataclass
class _Table:
    components: dict[str, str]
    cards: list[dict[str, Json]] = field(default_factory=list)


def looks_like(text: str) -> bool:
    """Whether a table's banner is in the text."""
    return bool(_BANNER.search(text))


def read(command: str, text: str) -> Reading:
    """The last whole table; `unparsed` when there is none, or when a broken one stands before it.

    No count of cards is printed: only the frame of the table of processes behind it shows that none is missing.
    A last table that breaks off with the text is a watch that was stopped; one that goes on after a line that does not
    fit is another run, written at the same time.
    """
    lines = [line.strip() for line in text.split("\n")]
    starts = [i for i, line in enumerate(lines) if _BANNER.match(line)]
    last: _Table | None = None
    for position, start in enumerate(starts):
        try:
            table, end = _table(lines, start)
            if not table.cards:
                raise Broken("the table holds no card", end)
            if not _FRAME.fullmatch(lines[end] if end < len(lines) else ""):
                raise Broken("the table of processes does not follow: cards may be missing", end + 1)
        except Broken as broken:
            if last is None or position + 1 < len(starts) or any(lines[broken.at :]):
                return unparsed("biren", command, str(broken))
            break
        last = table
    if last is None:
        return unparsed("biren", command, "no table")
    return Reading("biren", command, "ok", components=last.components, accelerators=tuple(last.cards))


def _table(lines: list[str], start: int) -> tuple[_Table, int]:
    """The table whose banner is at `start`, and the index of the line after it."""
    at = start + _ROWS + 3
    try:
        table, header = _head(lines[start:at])
    except Broken as broken:
        raise Broken(str(broken), at) from broken
    seen: set[Json] = set()
    while at < len(lines) and lines[at].startswith("|") and not _BANNER.match(lines[at]):
        end = at + _ROWS + 1
        try:
            if end > len(lines) or not _RULE.fullmatch(lines[end - 1]):
                raise Broken("a card breaks off")
            card = _card(header, lines[at : end - 1])
            if card["index"] in seen:
                raise Broken("a card is printed twice")
        except Broken as broken:
            raise Broken(str(broken), end) from broken
        seen.add(card["index"])
        table.cards.append(card)
        at = end
    return table, at


def _head(lines: list[str]) -> tuple[_Table, list[list[list[str]]]]:
    """The banner's versions and the header's keys: banner, rule, three rows, double rule."""
    banner = _BANNER.match(lines[0])
    if banner is None or len(lines) < _ROWS + 3 or not _RULE.fullmatch(lines[1]):
        raise Broken("the banner breaks off")
    named = zip(("smi", "driver", "toolkit"), banner.groups(), strict=True)
    table = _Table({name: found for name, raw in named if (found := value(raw))})
    header = [[_header(cell) for cell in _cells(line)] for line in lines[2 : 2 + _ROWS]]
    keys = [key for row in header for cell in row for key in cell]
    if len(keys) != len(set(keys)) or not _NEEDED.issubset(keys) or len({len(row) for row in header}) != 1:
        raise Broken("the header is not one that is known")
    if not _DOUBLE.fullmatch(lines[-1]):
        raise Broken("the header breaks off")
    return table, header


def _cells(line: str) -> list[str]:
    if len(line) < 2 or not line.startswith("|") or not line.endswith("|"):
        raise Broken("a line breaks off")
    return [cell.strip() for cell in line[1:-1].split("|")]


def _header(cell: str) -> list[str]:
    """The keys of one header cell, in the order of their words."""
    left = " ".join(cell.lower().split())
    places: list[tuple[int, str]] = []
    for words, key in _HEADERS:
        found = re.search(rf"(?:^| ){re.escape(words)}(?: |$)", left)
        if found:
            places.append((found.start(), key))
            left = left[: found.start()] + " " * len(found[0]) + left[found.end() :]
    if left.strip():
        raise Broken(f"header {cell!r} is not known")
    return [key for _, key in sorted(places)]


def _split(keys: list[str], cell: str) -> dict[str, str]:
    """The values of one cell: single words from both ends, what is between them belongs to the wide one."""
    words = cell.split()
    if not words:
        return {}
    if len(words) < len(keys):
        raise Broken(f"cell {cell!r} does not fit its header")
    wide = next((i for i, key in enumerate(keys) if key in _WIDE), len(keys) - 1)
    tail = len(keys) - wide - 1
    out = dict(zip(keys[:wide], words[:wide], strict=True))
    out[keys[wide]] = " ".join(words[wide : len(words) - tail])
    if tail:
        out.update(zip(keys[wide + 1 :], words[-tail:], strict=True))
    return out


def _card(header: list[list[list[str]]], lines: list[str]) -> dict[str, Json]:
    raw: dict[str, str] = {}
    for row, line in zip(header, lines, strict=True):
        cells = _cells(line)
        if len(cells) != len(row):
            raise Broken("a card's line has another number of cells")
        for keys, cell in zip(row, cells, strict=True):
            if keys:
                raw.update(_split(keys, cell))
            elif cell:
                raise Broken(f"cell {cell!r} has no header")
    bus = bus_id(raw.get("bus_id", ""))
    if not bus or not re.fullmatch(r"\d{1,6}", raw.get("index", ""), re.A):
        raise Broken("a card without index or bus id")
    card: dict[str, Json] = {"index": int(raw["index"]), "name": value(raw.get("name", "")), "bus_id": bus}
    card["temperature_c"] = _quantity(raw.get("temperature_c", ""), "C")
    card["power_w"] = _quantity(raw.get("power", "").partition(" / ")[0], "W")
    used, slash, total = raw.get("memory", "").replace("N/A", "-").partition("/")
    if value(raw.get("memory", "")) is not None and not slash:
        raise Broken(f"{raw['memory']!r} is not a memory usage")
    card["memory_used_mib"], card["memory_total_mib"] = _quantity(used, "MiB"), _quantity(total, "MiB")
    errors = _quantity(raw.get("ecc_uncorrected", "").removesuffix("Off"), "")
    if errors is not None:
        card["ecc_uncorrected"] = errors
        card["health"] = "critical" if errors else "ok"
    if svi := value(raw.get("svi", "")):
        card["svi"] = svi
    return card


def _quantity(raw: str, unit: str) -> Json:
    if value(raw) is None:
        return None
    found = number(raw.strip().removesuffix(unit))
    if found is None:
        raise Broken(f"{raw!r} is not a number")
    return found
