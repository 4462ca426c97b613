"""Files that the Ascend installers leave: version.info, install.info of driver and CANN, version.cfg.

These tell what is on the disk. Only npu-smi and upgrade-tool tell what runs.
"""

from __future__ import annotations

import re

from drivers.ascend.words import VENDOR_NAME, VERSION
from fleet.core.model import Json
from fleet.core.vendor import Reading, unparsed

_RANGES = re.compile(r"\[([^\[\]]*)\]")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DRIVER_KEYS = {"ascendhal_version", "compatible_version_fw"}
_FIRMWARE_KEYS = {"firmware_version", "compatible_version_drv"}
_CANN_PREFIXES = ("Ascend-cann-", "Ascend-mindx-", "Ascend-")
_RUNNING = re.compile(r"([a-z_]+)_running_version\s*=\s*(.*)")
MAX_CHARS = 1 << 18


def settings(text: str) -> dict[str, str] | str:
    """key -> value of a `key=value` file, comments left out; a sentence when it is cut or written twice."""
    out: dict[str, str] = {}
    for raw in text.split("\n"):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not equals or not _KEY.fullmatch(key.strip()):
            if " " in line:  # a warning of the shell or of ssh
                continue
            return "a line without a value"
        if out.setdefault(key.strip(), value.strip()) != value.strip():
            return f"{key.strip()} has two values"
    return out


def ranges(raw: str) -> list[Json] | None:
    """`[7.0.0,7.1.99],[8.0]` -> [["7.0.0", "7.1.99"], ["8.0", "8.0"]]; None when a bracket is not closed."""
    if raw.count("[") != raw.count("]"):
        return None
    out: list[Json] = []
    for group in _RANGES.findall(raw):
        ends = [word.strip() for word in group.split(",") if word.strip()]
        if len(ends) == 1:
            out.append([ends[0], ends[0]])
        elif len(ends) == 2:
            out.append([ends[0], ends[1]])
    return out


def read_version_info(command: str, text: str) -> Reading:
    """version.info of driver or firmware: its version, and the ranges of the other side that it accepts."""
    own = settings(text) if len(text) <= MAX_CHARS else "too long"
    if isinstance(own, str):
        return unparsed(VENDOR_NAME, command, own)
    number = own.get("Version") or own.get("package_version", "")
    kind = "driver" if _DRIVER_KEYS & own.keys() else "firmware" if _FIRMWARE_KEYS & own.keys() else ""
    if not kind and {"Version", "package_version"} <= own.keys():
        kind = "firmware" if "/firmware/" in command else "driver" if "/driver/" in command else ""
    if not kind or not VERSION.fullmatch(number):
        return unparsed(VENDOR_NAME, command, "not a version.info of Ascend driver or firmware")
    components = {kind: number}
    if own.get("Innerversion"):
        components["innerversion"] = own["Innerversion"]
    found: dict[str, Json] = {}
    for name, key in (
        ("firmware", "compatible_version_fw"),
        ("driver", "compatible_version_drv"),
        ("innerversion", "compatible_version"),
    ):
        if key in own:
            pairs = ranges(own[key])
            if pairs is None:
                return unparsed(VENDOR_NAME, command, f"{key} is cut")
            found[name] = pairs
    return Reading(VENDOR_NAME, command, "ok", components=components, more={"ranges": found, "settings": dict(own)})


def read_install_info(command: str, text: str) -> Reading:
    """/etc/ascend_install.info: how driver and firmware were installed; `driver-install-complete` where it says."""
    own = settings(text) if len(text) <= MAX_CHARS else "too long"
    if isinstance(own, str):
        return unparsed(VENDOR_NAME, command, own)
    if not any(re.fullmatch(r"(?:Driver|Firmware)_Install_\w+", key) for key in own):
        return unparsed(VENDOR_NAME, command, "not an ascend_install.info")
    checks: tuple[dict[str, Json], ...] = ()
    state = own.get("Driver_Install_Status")
    if state is not None:
        checks = ({"name": "driver-install-complete", "result": "pass" if state == "complete" else "fail"},)
    more: dict[str, Json] = {"settings": dict(own)}
    return Reading(VENDOR_NAME, command, "ok", checks=checks, more=more)


def cann_component(package: str) -> str:
    """`Ascend-cann-toolkit` -> toolkit, `Ascend-cann-nnae` -> nnae, `Ascend-cann-910b-ops` -> ops."""
    name = next((package[len(p) :] for p in _CANN_PREFIXES if package.startswith(p)), package).lower()
    if name in {"", "cann", "toolkit"}:
        return "toolkit"
    if name.endswith("-ops"):
        return "ops"
    return "kernels" if name.startswith("kernels") else name


def read_cann_info(command: str, text: str) -> Reading:
    """ascend_<package>_install.info of a CANN package: version, inner version and the inner versions it accepts."""
    own = settings(text) if len(text) <= MAX_CHARS else "too long"
    if isinstance(own, str):
        return unparsed(VENDOR_NAME, command, own)
    package, number = own.get("package_name", ""), own.get("version", "")
    if not package.startswith("Ascend") or not VERSION.fullmatch(number):
        return unparsed(VENDOR_NAME, command, "not an install.info of a CANN package")
    components = {cann_component(package): number}
    if own.get("innerversion"):
        components["innerversion"] = own["innerversion"]
    more: dict[str, Json] = {}
    if own.get("compatible_version"):
        pairs = ranges(own["compatible_version"])
        if pairs is None:
            return unparsed(VENDOR_NAME, command, "compatible_version is cut")
        more["ranges"] = {"innerversion": pairs}
    return Reading(VENDOR_NAME, command, "ok", components=components, more=more)


def read_version_cfg(command: str, text: str) -> Reading:
    """version.cfg of CANN: lines `<part>_running_version=[component version:CANN version]`."""
    running: dict[str, str] = {}
    for line in text[:MAX_CHARS].split("\n"):
        match = _RUNNING.fullmatch(line.strip())
        if match:
            pairs = _RANGES.findall(match[2])
            if not pairs or match[2].count("[") != match[2].count("]"):
                return unparsed(VENDOR_NAME, command, "a line is cut")
            running[match[1]] = pairs[-1].rpartition(":")[2].strip()
    number = running.get("toolkit") or next(iter(running.values()), "")
    if not VERSION.fullmatch(number):
        return unparsed(VENDOR_NAME, command, "not a version.cfg of CANN")
    return Reading(VENDOR_NAME, command, "ok", components={"toolkit": number})
