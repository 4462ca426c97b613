"""Answers of the host that come from no vendor tool: package lists, modinfo, whether a file is newer than the boot."""

from __future__ import annotations

from drivers.ascend.words import VENDOR_NAME, VERSION
from fleet.core.model import Json
from fleet.core.vendor import Reading, unparsed

_LIMIT = 1 << 20
_HOT_RESET = {
    "success": ("live", ""),
    "scan_success": ("live", ""),
    "ko_abort": ("reboot-required", "old-module-loaded"),
    "abort": ("reboot-required", "hot-reset-failed"),
    "fail": ("reboot-required", "hot-reset-failed"),
}


def _ended(text: str) -> list[str] | None:
    """The lines before the closing `end`; None when it is missing: then the list may be cut."""
    lines = [line.strip() for line in text[:_LIMIT].split("\n") if line.strip()]
    return lines[:-1] if lines and lines[-1] == "end" else None


def read_packages(command: str, text: str) -> Reading:
    """Lines `rpm|deb NAME VERSION`, closed by `end`; `packages` maps driver and firmware to {kind, name, version}."""
    lines = _ended(text)
    if lines is None:
        return unparsed(VENDOR_NAME, command, "the list has no end")
    found: dict[str, Json] = {}
    for line in lines:
        words = line.split()
        if len(words) != 3 or words[0] not in {"rpm", "deb"}:
            continue
        name = words[1].lower()
        part = next((p for p in ("driver", "firmware") if name.startswith("ascend") and name.endswith(p)), "")
        if part:
            found[part] = {"kind": words[0], "name": words[1], "version": words[2]}
    return Reading(VENDOR_NAME, command, "ok", more={"packages": found})


def read_since(command: str, text: str) -> Reading:
    """Lines `driver|firmware since-boot|before-boot`: whether the version file is newer than the boot."""
    lines = _ended(text)
    if lines is None:
        return unparsed(VENDOR_NAME, command, "the list has no end")
    changes: dict[str, Json] = {}
    for line in lines:
        part, _, word = line.partition(" ")
        if part in {"driver", "firmware"} and word in {"since-boot", "before-boot"}:
            changes[part] = word == "since-boot"
    return Reading(VENDOR_NAME, command, "ok", more={"changes": changes})


def read_modinfo(command: str, text: str) -> Reading:
    """`modinfo -F version drv_pcie_host`: the version of the module on the disk."""
    word = text.strip()
    if len(word) < 64 and VERSION.fullmatch(word):
        return Reading(VENDOR_NAME, command, "ok", components={"driver": word})
    if "not found" in word[:2000]:
        return Reading(VENDOR_NAME, command, "driver-not-loaded")
    return unparsed(VENDOR_NAME, command, "no version")


def read_hot_reset(command: str, text: str) -> Reading:
    """`/var/log/hotreset_status.log`: the last word is how the installer's hot reset ended.

    start = still at it; success, scan_success = the new driver is live; ko_abort = the old module stayed loaded.
    """
    words = text[-_LIMIT:].split()
    last = words[-1].partition(".")[0] if words else ""
    if last == "start":
        return Reading(VENDOR_NAME, command, "not-ready")
    result = _HOT_RESET.get(last)
    if result is None:
        return unparsed(VENDOR_NAME, command, "no state of a hot reset")
    install: dict[str, Json] = {"result": result[0]}
    if result[1]:
        install["reason"] = result[1]
    return Reading(VENDOR_NAME, command, "ok", more={"install": install})
