"""What `acmectl`, `modinfo` and the version file mean.

ACMECTL 1.0
driver 2.1.0
card 0 0000:1b:00.0 ACME-1 serial A0001 memory 16384 firmware 10.1 next 10.2 state ok
cards 1
"""

from __future__ import annotations

import re

from drivers.shell import refusal, words
from drivers.text import bus_id
from fleet.core.model import Json
from fleet.core.vendor import Reading, unparsed

_CARD = re.compile(
    r"card (\d{1,4}) (\S+) (\S+) serial (\S+) memory (\d{1,9}) firmware (\S+) next (\S+) state (ok|critical|warning)$"
)
_VERSION = re.compile(r"\d+(?:\.\d+)+", re.A)


def read(command: str, text: str, rc: int | None) -> Reading:
    """Never raises; what is not understood is `unparsed`."""
    program = (words(command) or [""])[0]
    if program == "modinfo":
        reading = _version(command, text, "driver")
    elif "/opt/acme/version" in command:
        reading = _version(command, text, "toolkit")
    elif program == "acmectl":
        reading = _cards(command, text)
    else:
        return unparsed("acme", command, "the command is not one that is read")
    if reading.status != "unparsed":
        return reading
    if program == "acmectl" and text.strip() == "acmectl: no driver":
        return Reading("acme", command, "driver-not-loaded")
    if "not found" in text[:200] and program == "modinfo":
        return Reading("acme", command, "driver-not-loaded")
    status = refusal(text, rc)
    return Reading("acme", command, status) if status else reading


def _version(command: str, text: str, component: str) -> Reading:
    found = text.strip()
    if _VERSION.fullmatch(found):
        return Reading("acme", command, "ok", {component: found})
    return unparsed("acme", command, "not one version")


def _cards(command: str, text: str) -> Reading:
    components: dict[str, str] = {}
    cards: list[dict[str, Json]] = []
    total = -1
    for line in text.split("\n", 2000)[:2000]:
        line = line.strip()
        if match := _CARD.match(line):
            index, bus, model, serial, memory, firmware, following, state = match.groups()
            cards.append(
                {
                    "index": int(index), "bus_id": bus_id(bus), "name": model, "serial": serial,
                    "memory_total_mib": int(memory), "firmware": firmware, "next": following, "health": state,
                }
            )  # fmt: skip
        elif match := re.match(r"ACMECTL (\S+)$", line):
            components["smi"] = match[1]
        elif match := re.match(r"driver (\S+)$", line):
            components["driver"] = match[1]
        elif match := re.match(r"cards (\d{1,4})$", line):
            total = int(match[1])
    indexes = {card["index"] for card in cards}
    if "smi" not in components or "driver" not in components or total != len(cards) or len(indexes) != len(cards):
        return unparsed("acme", command, "no whole answer of acmectl")
    return Reading("acme", command, "ok" if cards else "no-devices", components, tuple(cards))
