"""What the host itself says of Biren parts: sysfs, module files, packages, links, lspci, the driver installer."""

from __future__ import annotations

import re

from drivers.text import bus_id
from fleet.core.model import Json
from fleet.core.vendor import Reading, unparsed

_VERSION = re.compile(r"v?(\d+(?:\.\w+)+)", re.A)
_PLACE = re.compile(r"((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\s", re.I)
_MISSING = ("No such file or directory", "not found", "does not exist")
_ERRORS = ("vermagic", "version magic", "Invalid module format")
_LOG_LINE = re.compile(
    r"(?:<\d+>)?\[ {0,9}\d+\.\d+\]|\[\w{3} \w{3} |[A-Z][a-z]{2} {1,2}\d+ \d\d:\d\d:|\d{4}-\d\d-\d\dT"
)


def read_version(command: str, text: str) -> Reading:
    """One version of the driver alone: `/sys/module/biren/version` or `modinfo -F version biren`."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    # the whole of modinfo has labels; its version line counts alone
    lines = [line.removeprefix("version:").strip() for line in lines]
    versions = [line for line in lines if _VERSION.fullmatch(line)]
    if len(versions) == 1:
        return Reading("biren", command, "ok", components={"driver": versions[0].removeprefix("v")})
    if not versions and len(lines) <= 3 and any(word in line for line in lines for word in _MISSING):
        return Reading("biren", command, "driver-not-loaded")
    return unparsed("biren", command, "not one version")


def read_toolkit(command: str, text: str) -> Reading:
    """`realpath /usr/local/birensupa/sdk/latest`: the folder's name is the SDK's version."""
    for line in text.split("\n", 50)[:50]:
        match = re.fullmatch(r"/\S*/birensupa/(?:sdk|all)/(\d+(?:\.\w+)+)/?", line.strip(), re.A)
        if match:
            return Reading("biren", command, "ok", components={"toolkit": match[1]})
    if text.strip().endswith("/latest") or any(word in text[:2000] for word in _MISSING):
        return Reading("biren", command, "failed", note="no versioned SDK folder behind the link")
    return unparsed("biren", command, "no SDK version")


def read_dkms(command: str, text: str) -> Reading:
    """`dkms status`: `biren/1.11.0, 5.15.0-119-generic, x86_64: installed`."""
    modules: list[Json] = []
    for line in text.split("\n"):
        match = "biren" in line and re.match(r"\s*(biren)(?:/|, )([\w.]+)(?:, ([^,\s]+), ([\w]+))?: (\w+)", line)
        if match:
            name, found, kernel, _, state = match.groups()
            modules.append({"name": name, "version": found, "kernel": kernel or "", "state": state})
    if not modules:
        return unparsed("biren", command, "no DKMS entry of this vendor")
    return Reading("biren", command, "ok", more={"modules": modules})


def read_packages(command: str, text: str) -> Reading:
    """`dpkg -l` or `rpm -qa`: releases before the `.run` files came as packages."""
    packages: dict[str, Json] = {}
    known = False
    for line in text.split("\n"):
        words = line.split()
        if len(words) >= 3 and re.fullmatch(r"[uirph][nicurhWt]", words[0]):
            known = True
            if words[0][1] == "i" and words[1].startswith(("biren", "sudcgm", "succl")):
                packages[words[1].partition(":")[0]] = words[2]
        elif len(words) == 1 and len(line) < 200:
            match = re.fullmatch(
                r"([A-Za-z][\w+.-]*?)-(\d[\w.+~^]*-[\w.+~^]+?)(?:\.(?:x86_64|aarch64|noarch))?", words[0]
            )
            known = known or match is not None
            if match and match[1].startswith(("biren", "sudcgm", "succl")):
                packages[match[1]] = match[2]
    if not known:
        return unparsed("biren", command, "no list of packages")
    return Reading("biren", command, "ok", more={"packages": packages})


def read_pci(command: str, text: str) -> Reading:
    """`lspci -nn` or `-n`: functions of the vendor id 1ee0. Device ids are not public."""
    cards: list[dict[str, Json]] = []
    known = False
    for line in text.split("\n"):
        place = _PLACE.match(line) if ":" in line[:8] else None
        if not place:
            continue
        known = True
        match = re.search(r"\b(1ee0:[0-9a-f]{4})\b", line[:400], re.I)
        if match:
            cards.append({"bus_id": bus_id(place[1]), "pci_id": match[1].lower()})
    if not known:
        return unparsed("biren", command, "no PCI function")
    return Reading("biren", command, "ok" if cards else "no-devices", accelerators=tuple(cards))


def read_kernel_log(command: str, text: str) -> Reading:
    """The kernel log. There is no list of fault codes: only the flood of PCIe replays (story B-1) is named."""
    known = False
    replays = 0
    for line in text.split("\n"):
        if not line:
            continue
        known = known or _LOG_LINE.match(line) is not None or "biren" in line
        replays += "pcie_replay_count increment exceed max_pcie_replays" in line
    if not known:
        return unparsed("biren", command, "not a kernel log")
    faults: tuple[dict[str, Json], ...] = ({"code": "pcie-replay", "count": replays},) if replays else ()
    return Reading("biren", command, "ok", faults=faults)


def read_module_tool(command: str, text: str, rc: int | None) -> Reading:
    """`modprobe`, `insmod` or `rmmod biren`: silent when it worked."""
    lowered = text.lower()
    if "in use" in lowered:
        return Reading("biren", command, "occupied")
    if "not currently loaded" in lowered:
        return Reading("biren", command, "driver-not-loaded")
    if "operation not permitted" in lowered or "permission denied" in lowered:
        return Reading("biren", command, "permission-denied")
    if any(word.lower() in lowered for word in (*_ERRORS, "could not insert", "not found in directory")):
        return Reading("biren", command, "failed")
    if rc == 0 and not text.strip():
        return Reading("biren", command, "ok")
    return unparsed("biren", command, "an answer that is not known")
