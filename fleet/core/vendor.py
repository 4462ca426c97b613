"""What a vendor adapter must say. `drivers/<name>/__init__.py` exports one object, `VENDOR: Vendor`.

A vendor is data plus pure functions: text in, facts out; a change in, steps out. It opens no file and runs no program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from fleet.core.model import Accelerator, ComponentFact, Delivery, Item, Json, OsFacts, Step, VersionChange

Status = Literal[
    "ok", "no-devices", "driver-not-loaded", "driver-mismatch", "device-lost", "not-ready", "occupied",
    "permission-denied", "unsupported", "tool-missing", "failed", "unparsed",
]  # fmt: skip
STATUSES: tuple[Status, ...] = get_args(Status)
Capability = Literal["Unknown", "Unsupported", "NotImplemented", "Versioned", "Full"]
CAPABILITIES = ("probe", "install", "upgrade", "rollback", "firmware", "live_reload", "validate", "reset")
Severity = Literal["info", "warning", "critical"]


@dataclass(frozen=True)
class Reading:
    """What one command's output means. Keys that are not asserted are simply absent.

    `more` holds the further top-level keys of the JSON form: install, switches, modules, packages, changes, ranges,
    attached, runtime. An `unparsed` reading carries nothing but a `note`.
    """

    vendor: str
    command: str
    status: Status
    components: Mapping[str, str] = field(default_factory=dict)
    accelerators: tuple[Item, ...] = ()
    checks: tuple[Item, ...] = ()
    measure: Mapping[str, Json] = field(default_factory=dict)
    faults: tuple[Item, ...] = ()
    links: tuple[Item, ...] = ()
    more: Mapping[str, Json] = field(default_factory=dict)
    note: str = ""

    def as_dict(self) -> dict[str, Json]:
        """The reading as plain JSON values."""
        out: dict[str, Json] = {
            "vendor": self.vendor,
            "command": self.command,
            "status": self.status,
            "components": dict(self.components),
            "accelerators": [dict(item) for item in self.accelerators],
            "checks": [dict(item) for item in self.checks],
            "measure": dict(self.measure),
            "faults": [dict(item) for item in self.faults],
            "links": [dict(item) for item in self.links],
        }
        out.update(self.more)
        if self.note:
            out["note"] = self.note
        return out


def unparsed(vendor: str, command: str, note: str) -> Reading:
    """The one way to say that an output was not understood."""
    return Reading(vendor, command, "unparsed", note=note)


@dataclass(frozen=True)
class Probe:
    """One read-only command of a probe. `command` runs under sh with LC_ALL=C and its own time limit.

    `name` is the key under which `gather` finds the reading. `read_as` is the command given to `read` where it differs
    from the shell text (an absolute path, a fallback). `needs` = a file that must exist, else the section is
    left out (a tool that is not there is then no error).
    """

    name: str
    command: str
    timeout_s: int = 20
    read_as: str = ""
    needs: str = ""


@dataclass(frozen=True)
class PciDevice:
    """One function on the PCI bus as sysfs tells it, hex digits in lower case."""

    bus_id: str
    vendor: str  # "10de"
    device: str  # "2330"
    pci_class: str  # "030200"
    subsystem: str = ""  # "10de:16c1"
    driver: str = ""  # kernel driver bound to it

    @property
    def pci_id(self) -> str:
        """Vendor and device, `10de:2330`."""
        return f"{self.vendor}:{self.device}"


@dataclass(frozen=True)
class Seen:
    """All that one probe brought home, for `Vendor.gather`."""

    os: OsFacts
    pci: tuple[PciDevice, ...]  # every function of this vendor
    readings: Mapping[str, Reading]  # probe name -> reading
    modules: Mapping[str, str] = field(default_factory=dict)  # loaded kernel module -> version ("" = no version file)


@dataclass(frozen=True)
class Gathered:
    """What the vendor sees. `accelerators[].model` may be what the tool printed: the caller makes it canonical."""

    components: Mapping[str, ComponentFact] = field(default_factory=dict)
    accelerators: tuple[Accelerator, ...] = ()
    flags: Mapping[str, Json] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    faults: tuple[Item, ...] = ()


@dataclass(frozen=True)
class Change:
    """One stage of a road for one class of nodes: what `Vendor.steps` turns into steps."""

    model: str
    count: int
    os: OsFacts
    now: Mapping[str, str]  # the whole stack before this stage
    changes: tuple[VersionChange, ...]  # in the order in which the road names them
    reboot: Literal["none", "reload", "reboot", "power_cycle"]
    flags: Mapping[str, Json] = field(default_factory=dict)
    delivery: Mapping[str, Delivery] = field(default_factory=dict)  # component -> how, from policy; else the vendor's
    package_kind: Literal["deb", "rpm"] = "deb"


@dataclass(frozen=True)
class ArtifactName:
    """What a file name tells: which component in which version, for which machines."""

    vendor: str
    component: str
    version: str
    kind: Literal["deb", "rpm", "run", "tar", "bin", "zip"]
    arch: str = ""  # "" = any
    chip: str = ""  # "" = any


@dataclass(frozen=True)
class Check:
    """A smoke check: judged from facts before and after, or from one reading. Pure."""

    name: str
    judge: Callable[[Mapping[str, Reading], int], Item]
    """(readings by probe name, accelerators expected) -> {name, result, detail}

    result is pass, fail, warn, skip, unsupported or unknown; skip is not pass.
    """


@dataclass(frozen=True)
class Fault:
    """What a fault code means."""

    code: str
    severity: Severity
    action: str
    text: str


@dataclass(frozen=True)
class Vendor:
    """One vendor of accelerators."""

    name: str
    title: str
    pci_vendors: frozenset[str]
    is_accelerator: Callable[[PciDevice], bool]
    modules: tuple[str, ...]  # kernel modules whose loaded version matters, the main one first
    schemes: Mapping[str, str]  # component -> scheme of fleet.core.version
    probes: tuple[Probe, ...]
    read: Callable[[str, str, int | None], Reading]  # (command, decoded output, exit status)
    gather: Callable[[Seen], Gathered]
    steps: Callable[[Change], tuple[Step, ...]]
    artifact: Callable[[str], ArtifactName | None]  # file name -> what it is
    checks: tuple[Check, ...] = ()
    faults: Mapping[str, Fault] = field(default_factory=dict)
    capabilities: Mapping[str, Capability] = field(default_factory=dict)
