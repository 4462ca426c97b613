"""The words of fleet as frozen dataclasses: what a node is, what it said, what it should be.

A component has up to three values on a node, never merged: installed (package or file), loaded (kernel module, card
flash) and runtime (what user space sees). *Current* is loaded, else installed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, TypeAlias, get_args

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Item: TypeAlias = Mapping[str, Json]

Lifecycle = Literal["discovered", "enrolled", "provisioning", "ready", "in-service", "maintenance", "broken", "retired"]
LIFECYCLES: tuple[Lifecycle, ...] = get_args(Lifecycle)
Health = Literal["ok", "warning", "critical", "lost", "unknown"]
SICK: tuple[Health, ...] = ("critical", "lost")  # one such accelerator takes its node out of service

# What has a version: a closed list. A new name goes here first.
COMPONENTS = (
    "os", "kernel", "driver", "driver_flavour", "bundle", "firmware", "vbios", "mcu", "toolkit", "fabricmanager",
    "nscq", "nvsdm", "nvlsm", "imex", "dcgm", "container_toolkit", "nic_driver", "nic_firmware", "gdrcopy", "gcc",
)  # fmt: skip
DOMAINS = ("site", "rack", "leaf", "nvlink_domain", "superpod")


def component(name: str) -> str | None:
    """The component of that name, hyphens accepted; None when there is none."""
    wanted = name.strip().lower().replace("-", "_")
    return wanted if wanted in COMPONENTS else None


def canonical(value: object) -> str:
    """One text for one value: JSON with sorted keys and no blanks. Two equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: object) -> str:
    """`sha256:<hex>` of bytes, of text, or of the canonical JSON of anything else."""
    data = value if isinstance(value, bytes) else (value if isinstance(value, str) else canonical(value)).encode()
    return "sha256:" + hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Hold:
    """A person's word that a node is not to be changed. `until` is an ISO 8601 time, empty = until released."""

    who: str
    why: str
    until: str = ""

    def in_force(self, now: str) -> bool:
        """Whether it still counts at `now` (ISO 8601; a time without a zone is UTC)."""
        if not self.until:
            return True
        try:
            until, at = (datetime.fromisoformat(text) for text in (self.until, now))
        except ValueError:
            return True  # a time that cannot be read does not end a hold
        return (until if until.tzinfo else until.replace(tzinfo=UTC)) > (at if at.tzinfo else at.replace(tzinfo=UTC))


@dataclass(frozen=True)
class Node:
    """A machine we own. `name` is unique; empty text means not known."""

    name: str
    address: str
    port: int = 22
    user: str = ""
    bmc: str = ""
    arch: str = ""
    site: str = ""
    rack: str = ""
    leaf: str = ""
    nvlink_domain: str = ""
    superpod: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    lifecycle: Lifecycle = "enrolled"
    hold: Hold | None = None


@dataclass(frozen=True)
class Accelerator:
    """One card or die. UUID or serial is the identity: index and bus id move."""

    vendor: str
    model: str
    bus_id: str = ""  # lower case, 4-digit domain: 0000:0b:00.0
    pci_id: str = ""  # 10de:2330
    index: int | None = None
    uuid: str = ""
    serial: str = ""
    firmware: str = ""
    memory_mib: int | None = None
    health: Health = "unknown"

    @property
    def identity(self) -> str:
        """What stays when the card is moved to another slot, as far as it is known."""
        return self.uuid or self.serial or self.bus_id


@dataclass(frozen=True)
class ComponentFact:
    """What is known of one component on one node; None = this place was not read or said nothing."""

    installed: str | None = None
    loaded: str | None = None
    runtime: str | None = None

    @property
    def current(self) -> str | None:
        """What is in force: loaded, else installed."""
        return self.loaded if self.loaded is not None else self.installed

    @property
    def pending(self) -> bool:
        """Installed and loaded are both known and differ: a reload or reboot is owed."""
        return self.loaded is not None and self.installed is not None and self.loaded != self.installed


@dataclass(frozen=True)
class OsFacts:
    """ID and VERSION_ID as in os-release, `uname -r`, `uname -m`."""

    id: str = ""
    version: str = ""
    kernel: str = ""
    arch: str = ""


@dataclass(frozen=True)
class Facts:
    """What one node said at one moment. Values that change by themselves (temperature, counters) are not in here."""

    node: str
    os: OsFacts
    vendor: str = ""  # of its accelerators; "" = none seen on the PCI bus
    components: Mapping[str, ComponentFact] = field(default_factory=dict)
    accelerators: tuple[Accelerator, ...] = ()
    flags: Mapping[str, Json] = field(default_factory=dict)  # nvswitch, flash_floor, superpod …: what rules may ask for
    statuses: Mapping[str, str] = field(default_factory=dict)  # probe name -> Reading.status
    problems: tuple[str, ...] = ()  # sentences: vendor and banner disagree, counts differ …
    faults: tuple[Item, ...] = ()
    boot_id: str = ""
    at: str = ""  # ISO 8601, UTC; not part of the digest

    def current(self) -> dict[str, str]:
        """component -> version now in force, for those known."""
        return {name: fact.current for name, fact in sorted(self.components.items()) if fact.current is not None}

    def content(self) -> dict[str, Json]:
        """The document whose digest decides whether this is a new revision: no time, no boot id."""
        return {
            "os": vars(self.os).copy(),
            "vendor": self.vendor,
            "components": {name: vars(fact).copy() for name, fact in sorted(self.components.items())},
            "accelerators": [vars(card).copy() for card in self.accelerators],
            "flags": dict(self.flags),
            "statuses": dict(self.statuses),
            "problems": list(self.problems),
            "faults": [dict(fault) for fault in self.faults],
        }


# --- what should be there, and the way ------------------------------------------------------------------------------

Channel = Literal["lts", "stable", "candidate", "developer", "legacy"]
Level = Literal["community", "observed", "vendor", "validated"]
LEVELS: tuple[Level, ...] = get_args(Level)  # from weak to strong


@dataclass(frozen=True)
class Policy:
    """What a solver may use: the least stable channel and the weakest evidence allowed."""

    channel: Channel = "stable"
    min_level: Level = "observed"
    strategy: Literal["validated", "newest", "minimal"] = "validated"
    allow_unknown: bool = False


@dataclass(frozen=True)
class Request:
    """One node class and a wish. `wish` maps a component to a range such as `>=570.26,<580`."""

    vendor: str
    model: str
    count: int
    os: OsFacts
    current: Mapping[str, str] = field(default_factory=dict)
    wish: Mapping[str, str] = field(default_factory=dict)
    policy: Policy = Policy()
    flags: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """Where a statement about the world comes from."""

    title: str
    section: str = ""
    seen: str = ""  # ISO date on which it was read
    url: str = ""
    level: Level = "observed"
    at: str = ""  # file:line of the row


@dataclass(frozen=True)
class Reason:
    """One sentence and its source."""

    text: str
    source: Source | None = None


@dataclass(frozen=True)
class VersionChange:
    """One component moving; None = not there (before a first install, after a removal)."""

    component: str
    old: str | None
    new: str | None


@dataclass(frozen=True)
class Stage:
    """What happens between two reboots. `allowed` = the stack after it may serve; else the node stays drained."""

    changes: tuple[VersionChange, ...]
    reboot: Literal["none", "reload", "reboot", "power_cycle"] = "reboot"
    allowed: bool = True
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class Solution:
    """The chosen stack, the road to it, the way back, and why."""

    stack: Mapping[str, str]
    road: tuple[Stage, ...]
    back: tuple[Stage, ...] | None = None  # None = there is no way back
    reasons: Mapping[str, tuple[Reason, ...]] = field(default_factory=dict)
    level: Level = "observed"  # the weakest evidence it rests on
    matrix: str = ""  # digest of the tables


@dataclass(frozen=True)
class Conflict:
    """Nothing fits: the facts, rules and wishes that clash."""

    causes: tuple[Reason, ...]
    matrix: str = ""


# --- steps and plans --------------------------------------------------------------------------------------------------

Delivery = Literal["package", "runfile", "image", "redfish", "mcu", "none"]
Effect = Literal["idempotent", "probeable", "one_way"]
Activation = Literal["none", "reload", "reboot", "power_cycle", "hands"]
Phase = Literal[
    "preflight", "cordon", "drain", "stage", "stop", "remove", "install", "firmware", "activate", "reboot", "verify",
    "validate", "uncordon",
]  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One action on a node. `phase` is also the task file of the vendor's role (see playbooks/README.md).

    `changes` is one entry, or several that move in one transaction. `artifacts` are names in the artifact store.
    `undo` says how to take it back; None = it cannot be.
    """

    phase: Phase
    changes: tuple[VersionChange, ...] = ()
    delivery: Delivery = "none"
    effect: Effect = "idempotent"
    activation: Activation = "none"
    off_seconds: int = 0  # for power_cycle
    undo: str | None = ""
    artifacts: tuple[str, ...] = ()
    arguments: Mapping[str, Json] = field(default_factory=dict)
    limit_s: int = 900
    why: str = ""


@dataclass(frozen=True)
class Group:
    """Equal nodes of a plan: the same start, target, road and way back."""

    nodes: tuple[str, ...]
    vendor: str
    model: str
    start: Mapping[str, str]
    target: Mapping[str, str]
    stages: tuple[tuple[Step, ...], ...]  # one tuple of steps for each stage of the road
    back: tuple[tuple[Step, ...], ...] | None  # the way back, planned before; None = there is none
    reasons: Mapping[str, tuple[Reason, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """Immutable. `id` is the hash of its content: no times, no counters."""

    id: str
    groups: tuple[Group, ...]
    waves: tuple[tuple[str, ...], ...]
    refusals: Mapping[str, str]  # node -> why it is not in the plan
    starts: Mapping[str, str]  # node -> digest of its identities and component values at planning time
    matrix: str
    policy: Mapping[str, Json]
