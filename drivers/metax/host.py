"""What the host itself says of MetaX parts: sysfs, module files, packages, links, the kernel log, lspci."""

from __future__ import annotations

import re

from drivers.text import bus_id
from fleet.core.model import Json
from fleet.core.vendor import Reading, Status, unparsed

_VERSION = re.compile(r"v?(\d+(?:\.\w+)+)", re.A)
_EID = re.compile(r"EID \(([^()]{1,64})\): (0x[0-9A-Fa-f]{1,8})(?:, ?(.*))?")
_ORIGIN = re.compile(r"\b(METAX|MXGVM|MXCD|MARS|HTCD|SDK)\.(?:B([0-9A-Fa-f]{3,8})\.)?")
_LOG_LINE = re.compile(
    r"(?:<\d+>)?\[ {0,9}\d+\.\d+\]|\[\w{3} \w{3} |[A-Z][a-z]{2} {1,2}\d+ \d\d:\d\d:|\d{4}-\d\d-\d\dT"
)
_PACKAGES = re.compile(r"^(?:metax|mxsmt|mxfw|mxgvm|maca|mxmaca)[\w.+-]*$", re.A)
_RPM = re.compile(r"([A-Za-z][\w+.-]*?)-(\d[\w.+~^]*-[\w.+~^]+?)(?:\.(?:x86_64|aarch64|noarch))?", re.A)
_LSPCI = re.compile(
    r"((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\s+(?:.*\[([0-9a-f]{4})\]: )?"
    r"(?:([0-9a-f]{4}):\s+)?.*?\[?((?:9999|2020|3030):[0-9a-f]{4})\b",
    re.I,
)
_PLACE = re.compile(r"((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\s", re.I)
_MISSING = ("No such file or directory", "not found", "does not exist")


def read_module_version(command: str, text: str) -> Reading:
    """`/sys/module/metax/version`: the loaded KMD alone on its line."""
    return _one_version(command, text, "driver", "driver-not-loaded")


def read_module_file(command: str, text: str) -> Reading:
    """`modinfo -F version metax`: the KMD on disk. A module that is not there is not loaded either."""
    return _one_version(command, text, "driver", "driver-not-loaded")


def read_flashed(command: str, text: str) -> Reading:
    """The note that the role leaves after a flash, until the VBIOS was seen running: one version."""
    return _one_version(command, text, "firmware", "failed")


def _one_version(command: str, text: str, component: str, missing: Status) -> Reading:
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    # the whole of modinfo has labels; its version line counts alone
    lines = [line.removeprefix("version:").strip() for line in lines]
    versions = [line for line in lines if _VERSION.fullmatch(line)]
    if len(versions) == 1:
        return Reading("metax", command, "ok", components={component: versions[0].removeprefix("v")})
    if len(lines) <= 3 and any(word in line for line in lines for word in _MISSING) and not versions:
        return Reading("metax", command, missing)
    return unparsed("metax", command, "not one version")


def read_toolkit(command: str, text: str) -> Reading:
    """`realpath /opt/maca` (a folder with the version in its name) or `/opt/maca/version.txt`."""
    for line in text.split("\n", 50)[:50]:
        line = line.strip()
        match = re.fullmatch(r"/\S*/(?:maca|hpcc)-(\d+(?:\.\w+)+)", line) or re.fullmatch(
            r"(?:(?:MACA|MXMACA|HPCC)[ _]?(?:Version)?[ :=]*)?(\d+(?:\.\d+){2,})", line, re.I
        )
        if match:
            return Reading("metax", command, "ok", components={"toolkit": match[1]})
    if text.strip() in ("/opt/maca", "/opt/hpcc") or any(word in text[:2000] for word in _MISSING):
        return Reading("metax", command, "failed", note="no versioned toolkit folder behind the link")
    return unparsed("metax", command, "no toolkit version")


def read_packages(command: str, text: str) -> Reading:
    """`dpkg -l`, `dpkg-query` with tabs, or `rpm -qa`: the installed packages of the driver and the SDK.

    A package's version is that of the package train, not of the kernel driver in it (3.9.0.14 holds KMD 3.10.14).
    """
    packages: dict[str, Json] = {}
    known = False
    for line in text.split("\n"):
        words = line.split()
        if len(words) >= 3 and re.fullmatch(r"[uirph][nicurhWt]", words[0]):
            known = True
            if words[0][1] == "i" and _PACKAGES.match(words[1].partition(":")[0]):
                packages[words[1].partition(":")[0]] = words[2]
        elif len(words) == 1 and len(line) < 200 and (match := _RPM.fullmatch(words[0])):
            known = True
            if _PACKAGES.match(match[1]):
                packages[match[1]] = match[2]
    if not known:
        return unparsed("metax", command, "no list of packages")
    return Reading("metax", command, "ok", more={"packages": packages})


def read_dkms(command: str, text: str) -> Reading:
    """`dkms status`: `metax/3.10.14, 5.15.0-72-generic, x86_64: installed`."""
    modules: list[Json] = []
    for line in text.split("\n"):
        match = ": " in line and re.match(r"\s*(metax|mxgvm)(?:/|, )([\w.]+)(?:, ([^,\s]+), ([\w]+))?: (\w+)", line)
        if match:
            name, found, kernel, _, state = match.groups()
            modules.append({"name": name, "version": found, "kernel": kernel or "", "state": state})
    if not modules:
        return unparsed("metax", command, "no DKMS entry of this vendor")
    return Reading("metax", command, "ok", more={"modules": modules})


def read_kernel_log(command: str, text: str) -> Reading:
    """Lines with an EID become faults, one for each line; others are not judged."""
    faults: list[dict[str, Json]] = []
    start = text[: 1 << 16]
    known = _ORIGIN.search(start) is not None or any(_LOG_LINE.match(line) for line in start.split("\n"))
    at = text.find("EID (")
    while at >= 0:
        begin, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
        end = end if end >= 0 else len(text)
        line = text[max(begin, at - 1000) : min(end, at + 1000)]
        origin, match = _ORIGIN.search(line), _EID.search(line)
        if origin and match:
            known = True
            faults.append(_fault(origin, match))
        at = text.find("EID (", end)
    if not known:
        return unparsed("metax", command, "not a kernel log")
    return Reading("metax", command, "ok", faults=tuple(faults))


def _fault(origin: re.Match[str], match: re.Match[str]) -> dict[str, Json]:
    fault: dict[str, Json] = {"code": match[2].lower(), "source": origin[1]}
    address = bus_id(match[1])
    if not address and origin[2]:
        bits = int(origin[2], 16)
        address = f"{bits >> 16:04x}:{bits >> 8 & 255:02x}:{bits >> 3 & 31:02x}.{bits & 7}"
    if address:
        fault["bus_id"] = address
    if match[3]:
        fault["text"] = match[3][:200].strip()
    return fault


def read_pci(command: str, text: str) -> Reading:
    """`lspci -nn`, `-n` or `-Dnn`: functions of the vendor ids 9999, 2020 and 3030."""
    cards: list[dict[str, Json]] = []
    known = False
    for line in text.split("\n"):
        if ":" not in line[:8] or not _PLACE.match(line):
            continue
        known = True
        match = _LSPCI.match(line[:400])
        if match and bus_id(match[1]):
            cards.append({"bus_id": bus_id(match[1]), "pci_id": match[4].lower()})
    if not known:
        return unparsed("metax", command, "no PCI function")
    return Reading("metax", command, "ok" if cards else "no-devices", accelerators=tuple(cards))


def read_module_tool(command: str, text: str, rc: int | None) -> Reading:
    """`modprobe`, `insmod` or `rmmod metax`: silent when it worked."""
    lowered = text.lower()
    if "in use" in lowered:
        return Reading("metax", command, "occupied")
    if "not currently loaded" in lowered:
        return Reading("metax", command, "driver-not-loaded")
    if "operation not permitted" in lowered or "permission denied" in lowered:
        return Reading("metax", command, "permission-denied")
    if "invalid module format" in lowered or "could not insert" in lowered or "not found in directory" in lowered:
        return Reading("metax", command, "failed")
    if rc == 0 and not text.strip():
        return Reading("metax", command, "ok")
    return unparsed("metax", command, "an answer that is not known")
