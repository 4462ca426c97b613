"""`mx-smi -j`: a first line that is not JSON, then one object with a key for each card's bus id.

The object has no UUID, serial, memory or model name; numbers are partly strings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from drivers.metax.values import health, number, value, verdict
from drivers.text import bus_id
from fleet.core.model import Json
from fleet.core.vendor import Reading, unparsed

_START = re.compile(r"^\{", re.M)
_TRIES = 16  # braces in the noise before the object; an error costs a walk over the whole text
_COMPONENTS = {"smi_version": "smi", "maca_version": "toolkit", "hpcc_version": "toolkit", "driver_version": "driver"}


def read(command: str, text: str) -> Reading:
    """The last whole object; `unparsed` when there is none or its count of cards does not agree."""
    found: dict[str, Json] | None = None
    decoder = json.JSONDecoder()
    at = 0
    failures = 0
    while failures < _TRIES and (match := _START.search(text, at)):
        try:
            candidate, at = decoder.raw_decode(text, match.start())
        except json.JSONDecodeError as error:
            at = max(error.pos, match.start() + 1)
            failures += 1
            continue
        except (RecursionError, ValueError):
            return unparsed("metax", command, "the JSON is nested too deeply or holds a number that is too long")
        if isinstance(candidate, dict) and "smi_version" in candidate:
            found = candidate
    if found is None:
        return unparsed("metax", command, "no whole JSON object of mx-smi")
    cards = [_card(key, entry) for key, entry in found.items() if bus_id(key) and isinstance(entry, dict)]
    attached = found.get("attached_gpus")
    if not isinstance(attached, int) or attached != len(cards):
        return unparsed("metax", command, f"{attached} cards attached, {len(cards)} in the object")
    components = {name: str(found[key]) for key, name in _COMPONENTS.items() if value(str(found.get(key, "")))}
    firmware = {card["firmware"] for card in cards if card.get("firmware")}
    if len(firmware) == 1:
        components["firmware"] = str(firmware.pop())
    if not cards:
        return Reading("metax", command, "no-devices", components=components)
    return Reading("metax", command, verdict(cards), components=components, accelerators=tuple(cards))


def _card(key: str, entry: Mapping[str, Json]) -> dict[str, Json]:
    card: dict[str, Json] = {"bus_id": bus_id(key)}
    if isinstance(entry.get("device_id"), int):
        card["index"] = entry["device_id"]
    if vbios := value(str(entry.get("vbios_version", ""))):
        card["firmware"] = vbios
    if "unavailable_reason" in entry:
        reason = str(entry["unavailable_reason"]).strip()
        card["health"] = health(reason, not reason)
        if reason:
            card["reason"] = reason
    if "hotspot" in entry:
        card["temperature_c"] = number(str(entry["hotspot"]))
    if isinstance(entry.get("utilization"), (int, float)):
        card["utilization_percent"] = entry["utilization"]
    return card
