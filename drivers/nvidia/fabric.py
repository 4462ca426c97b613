"""The fabric manager: its journal, its log, its version, and the NVSwitch devices of the kernel."""

from __future__ import annotations

import re

from drivers.nvidia.commands import Command
from drivers.nvidia.values import Draft, rows, say
from drivers.text import bus_id
from fleet.core.model import Json
from fleet.core.vendor import Reading

_VERSION = re.compile(r"[Ff]abric [Mm]anager version is\s*:?\s*(\d{3}\.\d+(?:\.\d+)?)")
_DIFFERS = re.compile(
    r"fabric manager NVIDIA GPU driver interface version (\d{3}[\d.]*\d)"
    r" don't match with driver version (\d{3}[\d.]*\d)"
)
_CODE = re.compile(r"\[(NV_[A-Z_]{3,60})\]")
_LOG_LINE = re.compile(r"\[[A-Z][a-z]{2} \d{1,2} \d{4} \d\d:\d\d:\d\d\] \[(INFO|ERROR|WARNING|DEBUG|NOTICE)\]")
_JOURNAL = re.compile(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+")
_NOT_READY = (
    "fabric manager cannot be started", "timed out waiting", "failed to start", "no infiniband device",
    "status=1/failure", "failed with result", "active: failed", "active: inactive", "active: activating",
)  # fmt: skip
_STARTED = (
    "started nvidia fabric manager", "started nvidia-fabricmanager", "successfully configured all the available",
    "active: active",
)  # fmt: skip
_WORTH = re.compile(r"[Ff]abric|NVSwitch|\[NV_|\[ERROR\]|Active:|[Tt]imed out|[Ii]nfini[Bb]and")
_RUNS = re.compile(r"Fabric Manager version (?:is\s*:?\s*)?(\d{3}\.\d+(?:\.\d+)?)(?=\s|$)")


def log(command: Command, text: str) -> Reading | None:
    """`journalctl -u nvidia-fabricmanager` or `/var/log/fabricmanager.log`.

    A non-fatal NVSwitch error is logged as [ERROR] and is none of ours.
    """
    ours = "fabricmanager" in command.text or "fabric" in text[:200_000].lower()
    draft = Draft(command.text)
    seen = False
    codes: dict[str, int] = {}
    errors = 0
    waits = mismatch = False
    runs: str | None = None
    if text.strip() == "-- No entries --":
        return draft.done()
    for line in rows(text):
        if not line.strip():
            continue
        logged = _LOG_LINE.search(line) if "] [" in line else None
        seen = seen or bool(logged) or bool(_JOURNAL.match(line)) or "nvidia-fabricmanager.service - " in line
        if not _WORTH.search(line):
            continue
        lower = line.lower()
        running = _RUNS.search(line) if "version" in line else None
        runs = running.group(1) if running else runs
        if any(words in lower for words in _STARTED):  # what went wrong before is mended
            waits = mismatch = False
        differs = _DIFFERS.search(line) if "interface version" in line else None
        if differs:
            draft.components["fabricmanager"], draft.components["driver"] = differs.groups()
            mismatch = True
        if "[NV_" in line:
            for match in _CODE.finditer(line):
                codes[match.group(1)] = codes.get(match.group(1), 0) + 1
        if logged and logged.group(1) == "ERROR" and "non-fatal" not in line:
            errors += 1
        waits |= any(words in lower for words in _NOT_READY)
    if not (ours and seen) and not draft.components:
        return None
    if not mismatch:
        draft.components.clear()
        say(draft.components, "fabricmanager", runs)
    draft.faults = [{"code": code, "count": count} for code, count in codes.items()]
    if mismatch:
        draft.status, draft.note = "driver-mismatch", "fabric manager and driver differ"
    elif "NV_WARN_NOTHING_TO_DO" in codes:
        draft.status, draft.note = "unsupported", "there is no NVSwitch on this node"
    elif waits:
        draft.status, draft.note = "not-ready", "the fabric manager has not started"
    elif errors or codes:
        draft.status, draft.note = "failed", "the fabric manager reports errors"
    return draft.done()


def manager_version(command: str, text: str) -> Reading | None:
    """`nv-fabricmanager --version`."""
    match = _VERSION.search(text[:4000])
    if not match:
        return None
    draft = Draft(command)
    say(draft.components, "fabricmanager", match.group(1))
    return draft.done()


def switch_devices(command: str, text: str) -> Reading | None:
    """`ls /proc/driver/nvidia-nvswitch/devices`: one entry per NVSwitch."""
    switches: list[Json] = []
    for word in text[:20_000].split():
        bus = bus_id(word)
        if not bus:
            return None
        switches.append({"bus_id": bus})
    if not switches:
        return None
    draft = Draft(command)
    draft.more["switches"] = switches
    return draft.done()
