"""`upgrade-tool`: what firmware runs on each chip, its floor and its boot status. The output only looks like JSON."""

from __future__ import annotations

import re
from collections import Counter

from drivers.ascend.words import VENDOR_NAME, trouble
from fleet.core.model import Json
from fleet.core.vendor import Reading, unparsed

_COMPONENT = re.compile(r'\{"device_id":\s*(\d+),\s*"component":\s*"?(\w+)"?,\s*"version":\s*"?([\w.]+)"?\s*\}')
_BASE = re.compile(r'"hw_base_version":\s*"?(\w+)"?')
_BOOT = re.compile(r"boot[ _]status\"?\s*:\s*(\d+)", re.I)
_ANNOUNCED = re.compile(r"^\s*Get component version\b[^\n]*(?:succeed|\Z)|^\s*\{\"device_id\"", re.M)
_SAYS = "Get component version("
_STATE = re.compile(r"\bstatus\"?\s*(?::|is)\s*\"?(idle|upgrading|failed|waitting_restart|waitting_sync|synchronizing"
                    r"|not support|wrong status)\b", re.I)  # fmt: skip
_FAILED = re.compile(r"\bfail(?:ed|ure)?\b", re.I)
_MAX = 1 << 21
BOOTED = "16"  # the value at which the chip's own system is up


def read_upgrade_tool(command: str, text: str) -> Reading:
    """Component versions (check `firmware-uniform`), `--boot_status` (check `boot`), `--hw_base_version`."""
    text = text[:_MAX]
    if "--boot_status" in command or (_BOOT.search(text) and "component" not in text):
        states = _BOOT.findall(text)
        if not states:
            return _none(command, text)
        good = all(state == BOOTED for state in states)
        check: dict[str, Json] = {"name": "boot", "result": "pass" if good else "fail"}
        return Reading(VENDOR_NAME, command, "ok" if good else "not-ready", checks=(check,))
    if re.search(r"--status\b", command) and _STATE.search(text):
        return _progress(command, [word.lower() for word in _STATE.findall(text)])
    if "--hw_base_version" in command:
        floors = _BASE.findall(text)
        if not floors or not all(floor.isdigit() or floor == "crc_error" for floor in floors):
            return _none(command, text)
        numbers = [int(floor) for floor in floors if floor.isdigit()]
        broken = "crc_error" in floors
        measure: dict[str, Json] = {"hw_base_version": max(numbers)} if numbers and not broken else {}
        result: dict[str, Json] = {"name": "hw-base-version", "result": "fail" if broken else "pass"}
        return Reading(VENDOR_NAME, command, "ok", measure=measure, checks=(result,))
    found = _COMPONENT.findall(text)
    if not found:
        return _none(command, text)
    opened, closed = (re.search(rf"^\{brace}\s*$", text, re.M) is not None for brace in "{}")
    said, records = Counter(line.strip()[:1] for line in _ANNOUNCED.findall(text)), len(found)
    last = text.rstrip().rpartition("\n")[2].strip()
    if last and _SAYS.startswith(last[: len(_SAYS)]):
        return unparsed(VENDOR_NAME, command, "the list is cut")
    if said["{"] > records or said["G"] > records or (opened and not closed):
        return unparsed(VENDOR_NAME, command, "the list is cut")
    per_device = Counter(device for device, _, _ in found)
    if per_device[found[-1][0]] < max(per_device.values()):
        return unparsed(VENDOR_NAME, command, "the last device has fewer components than others")
    devices = list(dict.fromkeys(int(device) for device, _, _ in found))
    versions = {version for _, _, version in found}
    chips = tuple(
        {"index": device, "firmware": next(v for d, _, v in found if int(d) == device)} for device in devices[:4096]
    )
    uniform = len(versions) == 1 and not _FAILED.search(text)
    check = {"name": "firmware-uniform", "result": "pass" if uniform else "fail"}
    return Reading(
        VENDOR_NAME,
        command,
        "ok" if uniform else "driver-mismatch" if len(versions) > 1 else "failed",
        components={"firmware": versions.pop()} if uniform else {},
        accelerators=chips,
        checks=(check,),
    )


def _progress(command: str, words: list[str]) -> Reading:
    """`--status`: the worst of all chips. `waitting_restart` (as it is spelled) owes a reboot and is no trouble."""
    if {"failed", "wrong status"} & set(words):
        return Reading(VENDOR_NAME, command, "failed")
    if {"upgrading", "waitting_sync", "synchronizing"} & set(words):
        return Reading(VENDOR_NAME, command, "not-ready")
    if "waitting_restart" in words:
        install: dict[str, Json] = {"result": "reboot-required", "reason": "firmware-activation"}
        return Reading(VENDOR_NAME, command, "ok", more={"install": install})
    return Reading(VENDOR_NAME, command, "unsupported" if set(words) == {"not support"} else "ok")


def _none(command: str, text: str) -> Reading:
    status = trouble(text)
    if (
        not status
        and len(text) < 4000
        and re.search(r"deviceId|device_index|upgrade-tool|Get ", text)
        and _FAILED.search(text)
    ):
        status = "failed"
    return Reading(VENDOR_NAME, command, status) if status else unparsed(VENDOR_NAME, command, "no upgrade-tool lines")
