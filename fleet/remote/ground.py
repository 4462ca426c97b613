"""The ground under every vendor: operating system, kernel, PCI bus, loaded modules, packages, DKMS, disks.

`sections` is what to ask, `read` what the answers mean. Facts of the kernel are read from sysfs and procfs by the
shell itself; loaded modules from /sys/module, since /proc/modules is not everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fleet.core.model import Json, OsFacts
from fleet.core.vendor import PciDevice, Vendor
from fleet.remote.frame import Frame
from fleet.remote.script import Section

# 3D controllers, processing accelerators and co-processors are named also when no vendor here knows them.
_CLASSES = ("0x0302*", "0x1200*", "0x0b40*")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_LOW_MIB = {"/boot": 200}
_LOW_MIB_ELSE = 2048
_RPM_FILES = (
    "/var/lib/rpm/Packages /var/lib/rpm/rpmdb.sqlite /var/lib/rpm/Packages.db /usr/lib/sysimage/rpm/rpmdb.sqlite "
    "/usr/lib/sysimage/rpm/Packages.db"
)
_DEB_FAMILY = frozenset({"debian", "ubuntu", "uos", "deepin"})
_RPM_FAMILY = frozenset(
    {"rhel", "fedora", "centos", "openeuler", "kylin", "suse", "sles", "opensuse", "anolis", "rocky"}
)

_DISKS = "df -Pk / /boot /usr /opt /var /var/lib /lib/modules /tmp 2>/dev/null"
_OS = (
    "cat /etc/os-release 2>/dev/null || cat /usr/lib/os-release 2>/dev/null || "
    "{ printf 'RELEASE='; cat /etc/redhat-release /etc/SuSE-release /etc/debian_version 2>/dev/null; }"
)
_KERNEL = """\
_r=$(uname -r); printf 'release=%s\\nmachine=%s\\nuid=%s\\n' "$_r" "$(uname -m)" "$(id -u)"
_v=; read _v </proc/sys/kernel/random/boot_id; echo "boot_id=$_v"
if [ -d "/lib/modules/$_r/build/" ]; then echo headers=yes; else echo headers=no; fi
[ -s /var/lib/dpkg/status ] && echo packages=deb
for _v in @RPM@; do if [ -s "$_v" ]; then echo packages=rpm; break; fi; done
printf 'cmdline='; cat /proc/cmdline"""
_PCI = """\
if [ -d /sys/bus/pci/devices ]; then echo bus; fi
for _d in /sys/bus/pci/devices/*; do
_v=; _c=; _i=; _s=; _t=
read _v <"$_d/vendor" || continue; read _c <"$_d/class"
case $_v in
@CASES@*) case $_c in @CLASSES@) ;; *) continue ;; esac ;;
esac
read _i <"$_d/device"; read _s <"$_d/subsystem_vendor"; read _t <"$_d/subsystem_device"
_l=; if [ -h "$_d/driver" ]; then _l=$(readlink "$_d/driver"); fi
echo "${_d##*/} $_v $_i ${_c:--} ${_s:--} ${_t:--} ${_l##*/}"
done 2>/dev/null"""
_MODULES = """\
for _d in @NAMES@; do
[ -d "/sys/module/$_d" ] || continue
_v=; [ -r "/sys/module/$_d/version" ] && read _v <"/sys/module/$_d/version"
echo "$_d $_v"
done"""


@dataclass(frozen=True)
class Ground:
    """What the common sections said. `pci` holds the functions of known vendors and every unknown accelerator."""

    os: OsFacts
    pci: tuple[PciDevice, ...]
    modules: Mapping[str, str] = field(default_factory=dict)
    boot_id: str = ""
    uid: int | None = None
    flags: Mapping[str, Json] = field(default_factory=dict)


def variable(vendor: str) -> str:
    """The shell variable that the PCI section sets to 1 when it sees this vendor."""
    return "FLEET_SEES_" + re.sub(r"[^A-Za-z0-9]", "_", vendor)


def sections(vendors: Iterable[Vendor]) -> list[Section]:
    """The common sections; the one called `pci` must come before any section with a `when`."""
    known = list(vendors)
    ids: dict[str, list[str]] = {}
    names: dict[str, None] = {}
    for vendor in known:
        for pci_id in sorted(vendor.pci_vendors):
            ids.setdefault(pci_id.lower(), []).append(f"{variable(vendor.name)}=1")
        names.update(dict.fromkeys(_safe(module) for module in vendor.modules))
    cases = "".join(f"0x{_safe(pci_id)}) {'; '.join(sets)} ;;\n" for pci_id, sets in ids.items())
    return [
        Section("os", _OS, 0),
        Section("kernel", _KERNEL.replace("@RPM@", _RPM_FILES), 0),
        Section("pci", _PCI.replace("@CASES@", cases).replace("@CLASSES@", "|".join(_CLASSES)), 0),
        *([Section("modules", _MODULES.replace("@NAMES@", " ".join(names)), 0)] if names else []),
        Section("disks", _DISKS, 10, needs="df"),
        Section("dkms", "dkms status", 20, needs="dkms"),
    ]


def _safe(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise ValueError(f"{name!r} cannot stand in a script")
    return name.replace("-", "_")


def read(frames: Mapping[str, Frame]) -> Ground | None:
    """What the common sections mean; None when operating system, kernel or PCI bus did not come over whole."""
    if any(name not in frames or frames[name].state != "complete" for name in ("os", "kernel", "pci")):
        return None
    kernel = _pairs(_text(frames["kernel"]))
    pci = _text(frames["pci"]).splitlines()
    if not kernel.get("release") or "bus" not in pci:
        return None
    os_id, version, family = _os(_text(frames["os"]))
    modules = {}
    for line in _text(frames.get("modules")).splitlines():
        name, _, module_version = line.partition(" ")
        modules[name] = module_version.strip()
    flags: dict[str, Json] = {"kernel_headers": kernel.get("headers") == "yes"}
    if kind := _package_kind(family, kernel.get("packages", "")):
        flags["package_kind"] = kind
    if iommu := re.search(r"(?:^|\s)(?:intel_iommu|amd_iommu|iommu)=(\S+)", kernel.get("cmdline", "")):
        flags["iommu"] = iommu[1]
    if low := _low_disks(_text(frames.get("disks"))):
        flags["disk_low"] = low
    if builds := _dkms(_text(frames.get("dkms"))):
        flags["dkms"] = builds
    uid = kernel.get("uid", "")
    return Ground(
        OsFacts(os_id, version, kernel["release"], kernel.get("machine", "")),
        tuple(device for line in pci if (device := _device(line))),
        modules,
        kernel.get("boot_id", ""),
        int(uid) if uid.isdigit() else None,
        flags,
    )


def _text(frame: Frame | None) -> str:
    """What a section said; zero bytes and other control characters become U+FFFD, since they can not be stored."""
    text = frame.output.decode("utf-8", "replace") if frame is not None else ""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def _pairs(text: str) -> dict[str, str]:
    out: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals:
            out.setdefault(name.strip(), value.strip().strip("\"'"))
    return out


def _os(text: str) -> tuple[str, str, frozenset[str]]:
    """(ID, VERSION_ID, ID and ID_LIKE in lower case) of os-release, or of what old systems have instead."""
    values = _pairs(text)
    if "RELEASE" in values:
        old = re.match(r"(\w+).*?release ([\d.]+)", values["RELEASE"])
        if old:
            name = {"red": "rhel"}.get(old[1].lower(), old[1].lower())
            return name, old[2], frozenset({name, "rhel"})
        debian = re.match(r"\d+(?:\.\d+)*\Z", values["RELEASE"])
        return ("debian", values["RELEASE"], _DEB_FAMILY) if debian else ("", "", frozenset())
    family = {values.get("ID", "").lower(), *values.get("ID_LIKE", "").lower().split()}
    return values.get("ID", ""), values.get("VERSION_ID", ""), frozenset(family)


def _package_kind(family: frozenset[str], databases: str) -> str:
    """The family of the system decides, since a database of the other kind may lie about too."""
    if family & _DEB_FAMILY:
        return "deb"
    if family & _RPM_FAMILY:
        return "rpm"
    return databases


def _device(line: str) -> PciDevice | None:
    """`0000:0b:00.0 0x10de 0x2330 0x030200 0x10de 0x16c1 nvidia` -> the function; None for any other line."""
    words = line.split()
    if len(words) < 6 or not re.fullmatch(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]", words[0]):
        return None
    vendor, device, pci_class, sub_vendor, sub_device = (word.lower().removeprefix("0x") for word in words[1:6])
    subsystem = f"{sub_vendor}:{sub_device}" if "-" not in (sub_vendor, sub_device) else ""
    domain, _, place = words[0].lower().partition(":")
    bus_id = f"{domain[-4:] if int(domain, 16) < 0x10000 else domain}:{place}"
    return PciDevice(bus_id, vendor, device, pci_class.strip("-"), subsystem, words[6] if len(words) > 6 else "")


def _low_disks(text: str) -> list[Json]:
    low: dict[str, None] = {}
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) >= 6 and words[3].isdigit():
            mount = " ".join(words[5:])
            if int(words[3]) // 1024 < _LOW_MIB.get(mount, _LOW_MIB_ELSE):
                low[mount] = None
    return [*sorted(low)]


def _dkms(text: str) -> list[Json]:
    """`nvidia/535.1, 5.15.0-91-generic, x86_64: installed`, and the older form with a comma after the name."""
    found: list[Json] = []
    for line in text.splitlines():
        match = re.match(r"([\w.+-]+)(?:/|, )([^,:\s]+)(?:, ([^,:\s]+), (\w+))?: ([\w-]+)", line.strip())
        if match:
            found.append({"name": match[1], "version": match[2], "kernel": match[3] or "", "state": match[5]})
    return found
