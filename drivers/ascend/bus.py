"""`lspci`: Ascend chips on the PCI bus, in the plain, -D, -n, -nn and -mm forms."""

from __future__ import annotations

import re

from drivers.ascend.words import VENDOR_NAME
from drivers.text import bus_id
from fleet.core.model import Json
from fleet.core.vendor import Reading, unparsed

# PCI device ids of Ascend chips under vendor 19e5 (own table; the system's pci.ids does not name them).
CHIPS = {
    "d100": "Ascend 310",
    "d105": "Ascend 310B",
    "d107": "Ascend 310B",
    "d500": "Ascend 310P",
    "d801": "Ascend 910A",
    "d802": "Ascend 910B",
    "d803": "Ascend 910C",
    "d806": "Ascend 950",
}
_MAX = 1 << 21
_LINE = re.compile(r"((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\s+(.*)", re.I)
_HUAWEI = re.compile(r"huawei technologies co\., ltd\.\W+\w|\b19e5:", re.I)
_CLASS = re.compile(r"processing accelerators?|\b12[0-9a-f]{2}\b", re.I)
_DEVICE = re.compile(r"\b(?:19e5:|device\s+\"?)(d[0-9a-f]{3})\b|\[(d[0-9a-f]{3})\]", re.I)


def read_lspci(command: str, text: str) -> Reading:
    """One accelerator for each Huawei processing accelerator; none among whole lspci lines is `no-devices`."""
    seen = 0
    chips: list[dict[str, Json]] = []
    if len(text) > _MAX:
        return unparsed(VENDOR_NAME, command, "longer than any answer of lspci")
    for line in text.split("\n"):
        match = _LINE.match(line)
        if not match:
            continue
        seen += 1
        device = _DEVICE.search(match[2])
        code = (device[1] or device[2]).lower() if device else ""
        if _HUAWEI.search(match[2]) and (_CLASS.search(match[2]) or code in CHIPS):
            chip: dict[str, Json] = {"bus_id": bus_id(match[1]) or None}
            if code:
                chip["pci_id"] = f"19e5:{code}"
            chips.append(chip)
    if not seen:
        return unparsed(VENDOR_NAME, command, "no lspci lines")
    if len({chip["bus_id"] for chip in chips}) != len(chips) or len({"pci_id" in chip for chip in chips}) > 1:
        return unparsed(VENDOR_NAME, command, "a device comes twice or is cut")
    return Reading(VENDOR_NAME, command, "ok" if chips else "no-devices", accelerators=tuple(chips))
