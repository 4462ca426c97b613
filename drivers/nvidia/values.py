"""Small words of NVIDIA's outputs: versions, numbers with units, the health of one card."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fleet.core.model import Health, Json
from fleet.core.vendor import Reading, Status, unparsed

VENDOR_NAME = "nvidia"
LINE_LIMIT = 4000  # characters of a line that are looked at: no line of a table or log is longer

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_VERSION = re.compile(r"\d{3}\.\d{2,3}(?:\.\d{1,3})?(?!\S)")
_ABSENT = frozenset({"", "n/a", "[n/a]", "na", "not supported", "[not supported]", "none found", "redacted"})


@dataclass
class Draft:
    """A reading in the making; `done` freezes it."""

    command: str
    status: Status = "ok"
    note: str = ""

    def __post_init__(self) -> None:
        self.components: dict[str, str] = {}
        self.accelerators: list[dict[str, Json]] = []
        self.checks: list[dict[str, Json]] = []
        self.measure: dict[str, Json] = {}
        self.faults: list[dict[str, Json]] = []
        self.links: list[dict[str, Json]] = []
        self.more: dict[str, Json] = {}

    def done(self) -> Reading:
        """The finished reading."""
        return Reading(
            VENDOR_NAME,
            self.command,
            self.status,
            components=self.components,
            accelerators=tuple(self.accelerators),
            checks=tuple(self.checks),
            measure=self.measure,
            faults=tuple(self.faults),
            links=tuple(self.links),
            more=self.more,
            note=self.note,
        )


def nothing(command: str, note: str) -> Reading:
    """An `unparsed` reading of this vendor."""
    return unparsed(VENDOR_NAME, command, note)


def rows(text: str) -> list[str]:
    """The lines of `text`, each cut at LINE_LIMIT so that no pattern ever sees an endless one."""
    return [line if len(line) <= LINE_LIMIT else line[:LINE_LIMIT] for line in text.split("\n")]


def present(value: str | None) -> str | None:
    """The value, or None when the tool says that it has none (`N/A`, `[Not Supported]`, empty)."""
    if value is None:
        return None
    stripped = value.strip()
    if stripped.lower() in _ABSENT or stripped.startswith("["):
        return None
    return stripped


def number(value: str | None) -> int | float | None:
    """The number at the start of `69.62 W` or `81559 MiB`; whole numbers are int. None when there is none."""
    match = _NUMBER.match(value.strip()) if value else None
    if not match:
        return None
    return float(match.group()) if "." in match.group() else int(match.group())


def version(value: str | None) -> str | None:
    """The driver version at the start of the text (`610.57.04 [Deprecated ...]`), two or three parts; else None."""
    match = _VERSION.match(value.strip()) if value else None
    return match.group() if match else None


def put(card: dict[str, Json], key: str, value: Json) -> None:
    """Store a value that is known; leave the key out when it is not."""
    if value is not None and value != "":
        card[key] = value


def say(components: dict[str, str], name: str, value: str | None) -> None:
    """Store a component's version when it is known."""
    if value:
        components[name] = value


def one_value(candidates: Iterable[str | None]) -> int | float | None:
    """The number when all candidates that hold one agree; else None (average and instantaneous draw may differ)."""
    found = {value for value in map(number, candidates) if value is not None}
    return found.pop() if len(found) == 1 else None


def pci_id(device_id: str | None) -> str | None:
    """`0x233010DE` (device first, vendor last) -> `10de:2330`."""
    match = re.fullmatch(r"0x([0-9A-Fa-f]{4})([0-9A-Fa-f]{4})", (device_id or "").strip())
    return f"{match.group(2)}:{match.group(1)}".lower() if match else None


@dataclass
class Signs:
    """What an output shows of one card's health; `health` is the verdict, None when nothing was shown."""

    shown: bool = False
    critical: bool = False
    warning: bool = False

    def errors(self, value: str | None) -> None:
        """A count of volatile uncorrectable ECC errors."""
        count = number(present(value))
        if count is not None:
            self.shown = True
            self.critical |= count > 0

    def flag(self, value: str | None, *, critical: bool = False) -> None:
        """A Yes/No field: remap or page retirement pending, or (critical) a remapping failure."""
        word = (present(value) or "").lower()
        if word in ("yes", "no", "0", "1"):
            self.shown = True
            if word in ("yes", "1"):
                self.critical |= critical
                self.warning |= not critical

    def recovery(self, value: str | None) -> None:
        """`GPU Recovery Action`."""
        word = (present(value) or "").lower()
        if word:
            self.shown = True
            self.critical |= word in ("reset", "reboot", "drain and reset", "gpu reset", "node reboot")
            self.warning |= word not in ("none", "reset", "reboot", "drain and reset", "gpu reset", "node reboot")

    def unreadable(self, values: Iterable[str]) -> None:
        """A value that the tool could not read (`ERR!` in the table, `Unknown Error` elsewhere)."""
        self.warning |= any(value.strip(" []\n\t") in ("ERR!", "Unknown Error") for value in values)

    def count(self, value: str | None) -> None:
        """A count that shows that the field is there and says nothing bad by itself (retired pages)."""
        self.shown |= number(present(value)) is not None

    @property
    def health(self) -> Health | None:
        if self.critical:
            return "critical"
        if self.warning:
            return "warning"
        return "ok" if self.shown else None
