"""Things around the cards: lspci, nvfwupd, versions of the toolkit and of the container toolkit."""

from __future__ import annotations

import json
import re

from drivers.nvidia.values import Draft, nothing, rows, say, version
from drivers.text import bus_id
from fleet.core.model import Json
from fleet.core.vendor import Reading, Status

_BUS = r"(?P<bus>(?:[0-9A-Fa-f]{4}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s"
_ID = r"(?P<id>[0-9a-f]{4}:[0-9a-f]{4})"
_NUMERIC = re.compile(_BUS + r"(?P<title>.{0,80}?)\[(?P<cls>[0-9a-f]{4})\]: .{0,200}\[" + _ID + r"\]")
_SHORT = re.compile(_BUS + r"(?P<cls>[0-9a-f]{4}): " + _ID + r"\b")
_NAMED = re.compile(_BUS + r"(?P<title>[A-Z0-9][^:\[]{2,60}): (?P<name>.+)$")
_MACHINE = re.compile(  # -mm: quoted fields
    _BUS + r'"[^"]{0,80}\[(?P<cls>[0-9a-f]{4})\]" "[^"]{0,80}\[(?P<vendor>[0-9a-f]{4})\]"'
    r' "[^"]{0,200}\[(?P<device>[0-9a-f]{4})\]"'
)
_FIRMWARE = re.compile(r"(\S+)\s{2,}(\S+)\s{2,}(\S.*?)\s{2,}(Yes|No)\s*$")


def lspci(command: str, text: str) -> Reading | None:
    """`lspci -nn` (or `-n`, or names only): NVIDIA's display controllers are accelerators, its bridges NVSwitches."""
    draft = Draft(command)
    switches: list[Json] = []
    seen = False
    for line in rows(text):
        match = _NUMERIC.match(line) or _SHORT.match(line) or _MACHINE.match(line)
        if match:
            seen = True
            groups = match.groupdict()
            found = groups.get("id") or f"{groups['vendor']}:{groups['device']}"
            vendor = found[:4]
            entry: dict[str, Json] = {"bus_id": bus_id(match.group("bus")), "pci_id": found}
            if vendor == "10de" and match.group("cls") in ("0300", "0302"):
                draft.accelerators.append(entry)
            elif vendor == "10de" and match.group("cls") == "0680":
                switches.append(entry)
            continue
        named = _NAMED.match(line)
        if named:
            seen = True
            if "NVIDIA" in named.group("name") and named.group("title") in (
                "3D controller",
                "VGA compatible controller",
            ):
                draft.accelerators.append({"bus_id": bus_id(named.group("bus"))})
    if not seen:
        return None
    last = text[text.rfind("\n") + 1 :]
    forms = (_NUMERIC, _SHORT, _NAMED, _MACHINE)
    if last.strip() and not any(form.match(last) for form in forms) and re.match(_BUS, last):
        return Draft(command, "failed", note="the list breaks off").done()
    if switches:
        draft.more["switches"] = switches
    return draft.done()


def firmware_table(command: str, text: str) -> Reading | None:
    """`nvfwupd show_version`: pass = up to date, fail = the package has another version, skip = it has none."""
    if "AP Name" not in text or "Up-To-Date" not in text:
        return None
    draft = Draft(command)
    titled = False
    for line in rows(text):
        if line.lstrip().startswith("AP Name"):
            titled = True
            continue
        match = _FIRMWARE.match(line.strip()) if titled else None
        if not match or match.group(1).startswith("---"):
            continue
        name, system, package, current = match.groups()
        say(draft.components, name, system if system != "N/A" else None)
        result = "pass" if current == "Yes" else ("skip" if package == "N/A" else "fail")
        draft.checks.append({"name": name, "result": result})
    if any(check["result"] == "fail" for check in draft.checks):
        draft.status, draft.note = "failed", "firmware differs from the package"
    elif not draft.checks:
        draft.status, draft.note = "failed", "the table breaks off"
    return draft.done()


def firmware_update(command: str, text: str) -> Reading | None:
    """`nvfwupd update_fw` and `show_update_progress`: how far the task is; activation is another step."""
    states = re.findall(r"TaskState: *(\w+)", text)
    if "Firmware update successful" not in text and not states and "Error Code:" not in text:
        return None
    draft = Draft(command)
    code = re.findall(r"Error Code: *(\d+)", text)
    if (states and states[-1] in ("Exception", "Killed", "Cancelled")) or (code and code[-1] != "0"):
        draft.status, draft.note = "failed", "the update failed"
        draft.more["install"] = {"result": "failed"}
    elif "Firmware update successful" in text or (states and states[-1] == "Completed"):
        draft.more["install"] = {"result": "installed"}
    return draft.done()


def toolkit(command: str, text: str) -> Reading | None:
    """`/usr/local/cuda/version.json`, `version.txt` or `nvcc --version`: the installed CUDA toolkit."""
    draft = Draft(command)
    if "{" in text[:200]:
        try:
            document = json.loads(text[text.find("{") : text.rfind("}") + 1])
        except (ValueError, RecursionError):
            return nothing(command, "not well-formed JSON")
        cuda = document.get("cuda") if isinstance(document, dict) else None
        found = cuda.get("version") if isinstance(cuda, dict) else None
        if not isinstance(found, str):
            return None
        draft.components["toolkit"] = found
        return draft.done()
    match = re.search(
        r"CUDA Version (\d+\.\d+(?:\.\d+)?)|Cuda compilation tools, release \d+\.\d+, V(\d+\.\d+\.\d+)", text[:4000]
    )
    if not match:
        return None
    draft.components["toolkit"] = match.group(1) or match.group(2)
    return draft.done()


def container_toolkit(command: str, text: str) -> Reading | None:
    """`nvidia-ctk --version`."""
    match = re.search(
        r"NVIDIA Container Toolkit CLI version (\d+\.\d+\.\d+\S*)|cli-version:\s*(\d+\.\d+\.\d+\S*)", text[:4000]
    )
    if not match:
        return None
    draft = Draft(command)
    draft.components["container_toolkit"] = match.group(1) or match.group(2)
    return draft.done()


_CLI_ERRORS: tuple[tuple[str, Status], ...] = (
    ("driver not loaded", "driver-not-loaded"),
    ("driver/library version mismatch", "driver-mismatch"),
    ("libnvidia-ml.so", "tool-missing"),
    ("insufficient permissions", "permission-denied"),
    ("gpu is lost", "device-lost"),
    ("", "failed"),
)


def container_info(command: str, text: str) -> Reading | None:
    """`nvidia-container-cli info`: the driver and the cards that containers would see; or why it cannot tell."""
    refused = re.search(r"^nvidia-container-cli: (.+)$", text[:4000], re.MULTILINE)
    if refused:
        words = refused.group(1)
        status = next(status for said, status in _CLI_ERRORS if said in words.lower())
        return Draft(command, status, note=words).done()
    draft = Draft(command)
    for line in rows(text):
        key, colon, value = (part.strip() for part in line.partition(":"))
        if not colon or not value:
            continue
        if key == "NVRM version":
            say(draft.components, "driver", version(value))
        elif key == "CUDA version":
            draft.components["cuda"] = value
        elif key == "Device Index" and value.isdigit():
            draft.accelerators.append({"index": int(value)})
        elif draft.accelerators and key in _CLI_FIELDS:
            draft.accelerators[-1][_CLI_FIELDS[key]] = bus_id(value) if key == "Bus Location" else value
    if "driver" not in draft.components:
        return None
    if any("bus_id" not in card for card in draft.accelerators):
        draft.status, draft.note, draft.accelerators = "failed", "the list breaks off", []
    return draft.done()


_CLI_FIELDS = {"Model": "name", "GPU UUID": "uuid", "Bus Location": "bus_id"}


def ofed(command: str, text: str) -> Reading | None:
    """`ofed_info -s`: `MLNX_OFED_LINUX-23.10-1.1.9.0:` or `OFED-internal-24.10-0.7.0:`."""
    match = re.match(r"\s*(?:MLNX_OFED_LINUX|OFED-internal|DOCA-OFED|OFED)-(\d+\.\d+-[\d.]*\d)", text)
    if not match:
        return None
    draft = Draft(command)
    draft.components["ofed"] = match.group(1)
    return draft.done()
