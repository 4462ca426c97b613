"""The rows of the matrix as frozen dataclasses. What each field means is told in compat_matrix/README.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from fleet.core.model import LEVELS, Activation, Channel, Level, Reason, Source
from fleet.core.version import Range

Relation = Literal["requires", "forbids", "equals", "pairs", "prefers", "transition", "unit"]
RELATIONS: tuple[Relation, ...] = get_args(Relation)
CHANNELS: tuple[Channel, ...] = get_args(Channel)
Choose = Literal["always", "keep"]
Verdict = Literal["supported", "via", "forbidden"]


def level_rank(level: str) -> int:
    """0 for the weakest evidence (community) to 3 (validated)."""
    return [str(name) for name in LEVELS].index(level)


@dataclass(frozen=True)
class Scope:
    """Where a row holds: every condition that is written must hold; an empty one holds everywhere."""

    model: tuple[str, ...] = ()
    architecture: tuple[str, ...] = ()
    tag: tuple[str, ...] = ()
    arch: tuple[str, ...] = ()
    os: tuple[tuple[str, Range], ...] = ()  # (id, range of VERSION_ID)
    kernel: Range | None = None
    count: Range | None = None
    flags: Mapping[str, Range] = field(default_factory=dict)
    components: Mapping[str, Range] = field(default_factory=dict)

    @classmethod
    def of(cls, raw: Mapping[str, Any] | None) -> Scope:
        raw = raw or {}

        def range_(name: str) -> Range | None:
            return Range.parse(raw[name]) if name in raw else None

        return cls(
            tuple(raw.get("model", ())),
            tuple(raw.get("architecture", ())),
            tuple(raw.get("tag", ())),
            tuple(raw.get("arch", ())),
            tuple((i, Range.parse(v)) for i, v in raw.get("os", ())),
            range_("kernel"),
            range_("count"),
            {k: Range.parse(v) for k, v in raw.get("flags", {}).items()},
            {k: Range.parse(v) for k, v in raw.get("components", {}).items()},
        )


@dataclass(frozen=True)
class Row:
    """What every row has. `because` is the sentence that an explanation prints."""

    vendor: str
    at: str
    source: Source
    level: Level
    because: str = ""

    def reason(self, text: str = "") -> Reason:
        return Reason(text or self.because, self.source)


@dataclass(frozen=True)
class Model(Row):
    """One accelerator model."""

    name: str = ""
    architecture: str = ""
    pci: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    flags_from_count: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ComponentRow(Row):
    """How one component of a vendor is versioned, chosen and activated."""

    component: str = ""
    scheme: str = "generic"
    choose: Choose = "keep"
    when: tuple[Scope, ...] = ()  # one of them must hold; none = everywhere
    activation: Activation = "reboot"
    releases_of: str = ""
    removable: bool = True
    alone: bool = False
    prefer: tuple[str, ...] = ()


@dataclass(frozen=True)
class Order(Row):
    """In which order the components of one stage are changed."""

    case: Literal["first_install", "upgrade"] = "upgrade"
    sequence: tuple[str, ...] = ()
    when: Scope = Scope()


@dataclass(frozen=True)
class Release(Row):
    """A version that exists."""

    component: str = ""
    version: str = ""
    channel: Channel = "stable"
    released: str = ""
    eol: str = ""
    when: Scope = Scope()
    artifacts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule(Row):
    """A constraint between components and facts."""

    relation: Relation = "requires"
    id: str = ""
    when: Scope = Scope()
    needs: Scope = Scope()  # requires, prefers
    pairs: Mapping[str, Range] = field(default_factory=dict)
    table: str = ""  # pairs
    components: tuple[str, ...] = ()  # equals, unit
    component: str = ""  # transition
    from_: Range | None = None
    to: Range | None = None
    verdict: Verdict = "supported"
    via: Range | None = None
    flag: str = ""  # unit


@dataclass(frozen=True)
class Record(Row):
    """One validation run: this very set on this hardware passed or failed."""

    stack: Mapping[str, str] = field(default_factory=dict)
    when: Scope = Scope()
    result: Literal["pass", "fail"] = "pass"
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class Note(Row):
    """Information beside the rules: it decides nothing. `because` is its sentence, `facts` are its values."""

    topic: str = ""
    component: str = ""  # told among the reasons of this component, where `when` holds
    when: Scope = Scope()
    pci: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class System(Row):
    """A release of an operating system."""

    id: str = ""
    version: str = ""
    name: str = ""
    aliases: tuple[str, ...] = ()
    kernel_tags: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def _base(raw: Mapping[str, Any]) -> dict[str, Any]:
    source = Source(**raw["source"], level=raw["level"], at=raw["at"])
    return {
        "vendor": raw["vendor"],
        "at": raw["at"],
        "source": source,
        "level": raw["level"],
        "because": raw.get("because", ""),
    }


def model(raw: Mapping[str, Any]) -> Model:
    """The dataclass of a checked row, as are all functions below."""
    return Model(
        **_base(raw), name=raw["model"], architecture=raw["architecture"], pci=tuple(raw.get("pci", ())),
        aliases=tuple(raw.get("aliases", ())), tags=tuple(raw.get("tags", ())),
        flags_from_count={k: int(v) for k, v in raw.get("flags_from_count", {}).items()},
    )  # fmt: skip


def component(raw: Mapping[str, Any]) -> ComponentRow:
    return ComponentRow(
        **_base(raw), component=raw["component"], scheme=raw["scheme"], choose=raw.get("choose", "keep"),
        when=tuple(Scope.of(s) for s in raw.get("when", ())), activation=raw.get("activation", "reboot"),
        releases_of=raw.get("releases_of", ""), removable=raw.get("removable", True), alone=raw.get("alone", False),
        prefer=tuple(raw.get("prefer", ())),
    )  # fmt: skip


def order(raw: Mapping[str, Any]) -> Order:
    return Order(
        **_base(raw), case=raw["case"], sequence=tuple(raw["sequence"]), when=Scope.of(raw.get("when")),
    )  # fmt: skip


def release(raw: Mapping[str, Any]) -> Release:
    return Release(
        **_base(raw), component=raw["component"], version=raw["version"], channel=raw["channel"],
        released=raw.get("released", ""), eol=raw.get("eol", ""), when=Scope.of(raw.get("when")),
        artifacts=tuple(raw.get("artifacts", ())),
    )  # fmt: skip


def rule(raw: Mapping[str, Any]) -> Rule:
    def range_(name: str) -> Range | None:
        return Range.parse(raw[name]) if raw.get(name) else None

    return Rule(
        **_base(raw), relation=raw["relation"], id=raw.get("id", ""), when=Scope.of(raw.get("when")),
        needs=Scope.of(raw.get("needs")), pairs={k: Range.parse(v) for k, v in raw.get("pairs", {}).items()},
        table=raw.get("table", ""), components=tuple(raw.get("components", ())), component=raw.get("component", ""),
        from_=range_("from"), to=range_("to"), verdict=raw.get("verdict", "supported"), via=range_("via"),
        flag=raw.get("flag", ""),
    )  # fmt: skip


def record(raw: Mapping[str, Any]) -> Record:
    return Record(
        **_base(raw), stack=dict(raw["stack"]), when=Scope.of(raw.get("when")), result=raw["result"],
        evidence=tuple(raw.get("evidence", ())),
    )  # fmt: skip


def note(raw: Mapping[str, Any]) -> Note:
    return Note(
        **_base(raw), topic=raw["topic"], component=raw.get("component", ""), when=Scope.of(raw.get("when")),
        pci=tuple(raw.get("pci", ())), facts=dict(raw.get("facts", {})),
    )  # fmt: skip


def system(raw: Mapping[str, Any]) -> System:
    return System(
        **_base(raw), id=raw["id"], version=raw["version"], name=raw.get("name", ""),
        aliases=tuple(raw.get("aliases", ())), kernel_tags=tuple(raw.get("kernel_tags", ())),
        facts=dict(raw.get("facts", {})),
    )  # fmt: skip
