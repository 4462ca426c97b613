"""`brsmi gpu --query-gpu=… --format=csv,…`: one line a card, fields in the order in which they were asked for."""

from __future__ import annotations

import re

from drivers.biren.values import number, value
from drivers.text import bus_id
from fleet.core.model import Json
from fleet.core.vendor import Reading, unparsed

_FIELDS = {
    "index": "index", "name": "name", "serial": "serial", "uuid": "uuid", "gpu_uuid": "uuid",
    "memory.used": "memory_used_mib", "memory.free": "memory_free_mib", "memory.total": "memory_total_mib",
    "temperature.gpu": "temperature_c", "power.draw": "power_w", "pci.bus_id": "bus_id", "svi.mode.current": "svi",
    "utilization.gpu": "utilization_percent", "driver_version": "driver",
}  # fmt: skip
_NUMBERS = {"index", "memory_used_mib", "memory_free_mib", "memory_total_mib", "temperature_c", "power_w",
            "utilization_percent"}  # fmt: skip
_QUERY = re.compile(r"--query-gpu[= ](\S+)")
_NOISE = re.compile(r"\s*\[?warning\b", re.I)
_MAX = 1 << 20
_UNIT = re.compile(r"\s*(?:MiB|MB|W|C|%)$")


def asked(command: str) -> list[str]:
    """The fields that a command asks for; empty when it is no query."""
    match = _QUERY.search(command)
    return [name.strip() for name in match[1].strip("'\"").split(",") if name.strip()] if match else []


def read(command: str, text: str) -> Reading:
    """One accelerator for each line; a line with another number of fields makes the whole answer `unparsed`."""
    if len(text) > _MAX:
        return unparsed("biren", command, "longer than any answer of a query")
    fields = asked(command)
    lines = [line.strip() for line in text.split("\n") if line.strip() and not _NOISE.match(line)]
    if lines and "noheader" not in command and _is_header(lines[0], fields):
        lines = lines[1:]
    cards: list[dict[str, Json]] = []
    driver = ""
    for line in lines:
        values = [part.strip() for part in line.split(",")]
        card = _card(fields, values) if len(values) == len(fields) else None
        if card is None:
            return unparsed("biren", command, f"line {line[:80]!r} does not answer the query")
        driver = str(card.pop("driver", "") or "")
        cards.append(card)
    indexes = [card["index"] for card in cards if "index" in card]
    if not cards or len(set(indexes)) != len(indexes):
        return unparsed("biren", command, "no answer, or two mixed ones")
    return Reading(
        "biren", command, "ok", components={"driver": driver} if driver else {}, accelerators=tuple(cards)
    )  # fmt: skip


def _is_header(line: str, fields: list[str]) -> bool:
    names = [part.strip().split(" ")[0] for part in line.split(",")]
    return names == fields


def _card(fields: list[str], values: list[str]) -> dict[str, Json] | None:
    card: dict[str, Json] = {}
    for name, raw in zip(fields, values, strict=True):
        key = _FIELDS.get(name, re.sub(r"[^a-z0-9]+", "_", name.lower()))
        found = value(raw)
        entry: Json = found
        if key in _NUMBERS and found is not None:
            entry = number(_UNIT.sub("", found))
            if entry is None:
                return None
        elif key == "bus_id" and found is not None:
            entry = bus_id(found)
            if not entry:
                return None
        if key == "index" and not isinstance(entry, int):
            return None
        card[key] = entry
    return card
