"""What the kernel says: `/proc/driver/nvidia/version`, modinfo, lsmod, modprobe and rmmod, dmesg and kmsg."""

from __future__ import annotations

import re

from drivers.nvidia.commands import Command
from drivers.nvidia.values import Draft, rows, say, version
from drivers.text import bus_id
from fleet.core.model import Json
from fleet.core.vendor import Reading

_PROC = re.compile(
    r"NVRM version:\s{1,4}NVIDIA UNIX (?:(Open) Kernel Module for \S+|\S+\s{1,2}Kernel Module|Kernel Module for \S+)"
    r"\s{1,4}(\d{3}\.\d+(?:\.\d+)?)(?=\s)"  # a date follows; a text that ends here is cut
)
_LICENSES = {"NVIDIA": "proprietary", "Dual MIT/GPL": "open"}
_LSMOD = re.compile(r"(\d{0,4}[A-Za-z_][A-Za-z0-9_]*)\s+(\d+)\s+(-?\d+)(?:\s+(\S+))?\s*$")
_IN_USE = re.compile(r"Module (\S+) is in use(?: by:? (.*))?")
_STAMP = re.compile(
    r"(?:\d+,\d+,\d+,[^;]{1,20};|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ kernel: "
    r"|\d{4}-\d\d-\d\dT\S+ \S+ kernel: |<\d+>)?"
    r"(?:\[[^\]]{1,40}\] ?)?\s*"
)
_XID = re.compile(r"(?<![A-Za-z])Xid \((?:PCI:)?([0-9A-Fa-f:.]{7,16})\): (\d{1,4})\b")
_SXID = re.compile(r"\bSXid \((?:PCI:)?([0-9A-Fa-f:.]{7,16})\): (\d{1,6})\b")
_RM_INIT = re.compile(r"GPU ([0-9A-Fa-f:.]{7,16}): (RmInitAdapter failed!|rm_init_adapter failed)")
_MISMATCH = re.compile(
    r"API mismatch: the (?:NVIDIA )?client.{0,120}?has the version (\d{3}[\d.]+\d)[.,]?"
    r" (?:but|while) this kernel module has the version (\d{3}[\d.]+\d)"
)
_REFUSED = re.compile(
    r"The NVIDIA GPU ([0-9A-Fa-f:.]{7,16})[ :]*\(PCI ID: ([0-9A-Fa-f]{4}:[0-9A-Fa-f]{4})\) installed in this system"
    r" (?:has |is )(fallen off the bus|not supported by open|not supported by the NVIDIA|not supported)"
)
_STORY = 50_000  # lines that are joined to find wrapped messages
_FALLEN = re.compile(r"GPU ([0-9A-Fa-f:.]{7,16}): GPU has fallen off the bus")
_OWNED = ("obtained ownership of the NVIDIA device", "NVIDIA probe routine was not called")


def proc_version(command: str, text: str) -> Reading | None:
    """`/proc/driver/nvidia/version`: the loaded driver and its flavour."""
    for line in text[:20_000].splitlines(keepends=True):
        match = _PROC.search(line) if "NVRM version" in line else None
        if match:
            draft = Draft(command)
            draft.components["driver"] = match.group(2)
            draft.components["driver_flavour"] = "open" if match.group(1) else "proprietary"
            return draft.done()
    return None


def module_version(command: str, text: str) -> Reading | None:
    """`/sys/module/nvidia/version`: the version of the loaded module and nothing else."""
    words = text.strip()
    if version(words) != words:
        return None
    draft = Draft(command)
    draft.components["driver"] = words
    return draft.done()


def modinfo(command: Command, text: str) -> Reading | None:
    """`modinfo MODULE`, or one field of it (`-F version`, `-F license`)."""
    field = command.value("-F") or command.value("--field")
    if field and command.program == "modinfo":
        return _one_field(command.text, field, text)
    fields: dict[str, str] = {}
    for line in rows(text):
        key, colon, value = line.partition(":")
        if colon and key and " " not in key.strip() and key.strip() not in fields:
            fields[key.strip()] = value.strip()
    if "filename" not in fields:
        if "grep" in command.text and version(fields.get("version")) == fields.get("version"):
            draft = Draft(command.text)
            say(draft.components, "driver", fields.get("version"))
            return draft.done() if draft.components else None
        return None
    base = (
        fields["filename"].rsplit("/", 1)[-1].split(".ko", 1)[0].replace("-", "_").replace("nvidia_current", "nvidia")
    )
    name = fields.get("name", base).replace("-", "_")
    if not (name.startswith("nvidia") or name in ("gdrdrv", "nv_peer_mem")):
        return None
    draft = Draft(command.text)
    component = "driver" if name == "nvidia" else name
    say(draft.components, component, version(fields.get("version")) or fields.get("version"))
    if name == "nvidia":
        say(draft.components, "driver_flavour", _LICENSES.get(fields.get("license", "")))
    vermagic = fields.get("vermagic", "").split()
    if vermagic:
        draft.components["kernel"] = vermagic[0]
    else:
        draft.status, draft.note = "failed", "the list breaks off"
    return draft.done()


def _one_field(command: str, field: str, text: str) -> Reading | None:
    words = text.strip()
    draft = Draft(command)
    if field == "version" and version(words) == words:
        draft.components["driver"] = words
    elif field == "license" and words in _LICENSES:
        draft.components["driver_flavour"] = _LICENSES[words]
    elif field == "vermagic" and re.match(r"\d+\.\d+\S* SMP", words):
        draft.components["kernel"] = words.split()[0]
    return draft.done() if draft.components else None


def lsmod(command: str, text: str) -> Reading | None:
    """`lsmod` or `/proc/modules`: each module, its reference count and its users."""
    modules: dict[str, Json] = {}
    strange = 0
    for line in rows(text):
        words = line.split()
        if not words or words[:2] == ["Module", "Size"]:
            continue
        if len(words) >= 5 and words[4] in ("Live", "Loading", "Unloading"):
            users = [user for user in words[3].split(",") if user not in ("", "-")]
            modules[words[0]] = {
                "refcount": int(words[2]) if words[2].lstrip("-").isdigit() else 0,
                "used_by": list(users),
            }
            continue
        match = _LSMOD.match(line)
        if not match:
            strange += 1
            continue
        users = [user for user in (match.group(4) or "").split(",") if user]
        modules[match.group(1)] = {"refcount": int(match.group(3)), "used_by": list(users)}
    if not modules or strange > len(modules):
        return None
    last = text[text.rfind("\n") + 1 :]
    if last.strip() and last.split()[0] not in modules:
        return Draft(command, "failed", note="the list breaks off").done()
    draft = Draft(command)
    draft.more["modules"] = modules
    return draft.done()


def loading(command: str, text: str, rc: int | None) -> Reading | None:
    """What modprobe, rmmod or insmod complain about. Silence is not an answer: see the module list."""
    lines = [line.strip() for line in rows(text) if line.strip()]
    held: dict[str, Json] = {}
    for line in lines:
        match = _IN_USE.search(line)
        if match:
            held[match.group(1).rstrip(".")] = {"used_by": list((match.group(2) or "").split())}
    draft = Draft(command)
    if held:
        draft.status, draft.note = "occupied", "a module is in use"
        draft.more["modules"] = held
        return draft.done()
    for line in lines:
        if not re.match(r"(?:modprobe|rmmod|insmod): ", line):
            continue
        draft.note = line
        if "Operation not permitted" in line or "Permission denied" in line:
            draft.status = "permission-denied"
        elif "Resource temporarily unavailable" in line or "Device or resource busy" in line:
            draft.status = "occupied"
        elif "is not currently loaded" in line or "not loaded" in line:
            draft.status = "driver-not-loaded"
        elif "ERROR" in line or "FATAL" in line or rc:
            draft.status = "failed"
        return draft.done()
    return None


def kernel_log(command: str, text: str) -> Reading | None:
    """dmesg, `/dev/kmsg` or `journalctl -k`: Xids and the messages that say why there is no GPU.

    Messages are wrapped over several `NVRM:` lines and are joined before they are read. An Xid 79 or the same words
    without a code make the reading `device-lost`.
    """
    joined: list[str] = []
    kernel_like = False
    draft = Draft(command)
    faults: dict[tuple[str, str], int] = {}
    init_words: set[tuple[str, str]] = set()
    peermem = False
    gone: list[str] = []  # named as fallen off the bus in a line that has no code
    for line in rows(text):
        if not line:
            continue
        if not kernel_like:
            stamp = _STAMP.match(line)
            body = line[stamp.end() :] if stamp else line
            kernel_like = bool(stamp and stamp.group().strip()) or body.startswith("nvidia") or "NVRM: " in body
        else:
            body = line
        at = body.find("NVRM:")
        if at >= 0:
            message = body[at + 5 :].strip()
            if len(joined) < _STORY:
                joined.append(message)
            if "Xid" in message:
                for match in _XID.finditer(message):
                    _count(faults, match.group(2), match.group(1))
            fallen = _FALLEN.search(message) if "fallen" in message else None
            if fallen and bus_id(fallen.group(1)):
                gone.append(bus_id(fallen.group(1)))
            init = _RM_INIT.search(message) if "nit" in message else None
            if init:
                key = ("RmInitAdapter", bus_id(init.group(1)))
                if init.group(2).startswith("RmInit") or key not in init_words:
                    _count(faults, "RmInitAdapter", init.group(1))
                init_words.add(key)
        elif "SXid" in body:
            match_s = _SXID.search(body)
            if match_s:
                _count(faults, f"SXid {match_s.group(2)}", match_s.group(1))
        elif "peermem" in body and ("disagrees about version of symbol" in body or "Unknown symbol" in body):
            peermem = True
    if not kernel_like:
        return None
    story = " ".join(" ".join(joined).split())
    refused = False
    coded = set(faults)
    for match in _REFUSED.finditer(story):
        card: dict[str, Json] = {"bus_id": bus_id(match.group(1)), "pci_id": match.group(2).lower()}
        if match.group(3).startswith("fallen"):
            if ("79", card["bus_id"]) not in coded:  # else the Xid has been counted
                _count(faults, "79", match.group(1))
            card["health"] = "lost"
        else:
            refused = True
        if card not in draft.accelerators:
            draft.accelerators.append(card)
    for bus in gone:
        faults.setdefault(("79", bus), 1)
    lost = [bus for code, bus in faults if code == "79"]
    for bus in lost:
        if not any(card.get("bus_id") == bus for card in draft.accelerators):
            draft.accelerators.append({"bus_id": bus, "health": "lost"})
    draft.faults = [{"code": code, "bus_id": bus, "count": count} for (code, bus), count in faults.items()]
    mismatch = _MISMATCH.search(story)
    if mismatch:
        draft.components["client"], draft.components["driver"] = mismatch.groups()
    if lost:
        draft.status, draft.note = "device-lost", "a GPU has fallen off the bus"
    elif mismatch or "API mismatch" in story:
        draft.status, draft.note = "driver-mismatch", "user space and kernel module differ"
    elif refused or re.search(
        r"GPU installed in this system is supported through the NVIDIA \S+ Legacy drivers", story
    ):
        draft.status, draft.note = "unsupported", "this driver or module flavour refuses the GPU"
    elif any(words in story for words in _OWNED):
        draft.status, draft.note = "occupied", "another kernel driver owns a GPU"
    elif peermem:
        draft.status, draft.note = "failed", "nvidia_peermem was built against another OFED"
    return draft.done()


def _count(faults: dict[tuple[str, str], int], code: str, where: str) -> None:
    bus = bus_id(where)
    if bus:
        faults[code, bus] = faults.get((code, bus), 0) + 1


def missing(command: Command, text: str) -> Reading | None:
    """`No such file or directory` of a file that only exists while the driver is loaded or installed."""
    if "No such file or directory" not in text or len(text) > 2000 or not re.match(r"\S+: ", text.lstrip()):
        return None
    if "/proc/driver/nvidia" in command.text or "/proc/driver/nvidia" in text:
        return Draft(command.text, "driver-not-loaded", note=text.strip().splitlines()[0]).done()
    return Draft(command.text, "failed", note=text.strip().splitlines()[0]).done()
