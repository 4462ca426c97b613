"""One node as a file writes it -> `Node`: each field checked, each complaint with its file, line and field."""

from __future__ import annotations

import dataclasses
import difflib
import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from fleet.core import selector
from fleet.core.errors import BadInput
from fleet.core.model import DOMAINS, LIFECYCLES, Hold, Node

# The fields a file may give, in the order in which exports write them. `facts` is what `-o yaml` adds: not read back.
FIELDS = ("name", "address", "port", "user", "bmc", "arch", *DOMAINS, "lifecycle", "labels", "hold")
IGNORED = ("facts",)
_OTHER_NAMES = {"state": "lifecycle", "host": "address", "ip": "address"}
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?")
_HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62})(?:\.[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62}))*\.?")
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.@\\-]{0,63}")
# Control characters, those that reverse or hide text, halves of characters: none can be shown, or stored everywhere.
_STRANGE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
MAX_TEXT = 4096
_ARCHES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


@dataclass(frozen=True)
class Entry:
    """What a file says of one node. `lines` gives the line of a field where it is not that of the node."""

    line: int
    values: Mapping[str, Any]
    lines: Mapping[str, int] = field(default_factory=dict)

    def at(self, name: str) -> int:
        return self.lines.get(name, self.line)


def known_field(name: str) -> str | None:
    """The field meant by a column or key: hyphens and the usual other names are accepted; None when there is none."""
    wanted = name.strip().lower().replace("-", "_")
    wanted = _OTHER_NAMES.get(wanted, wanted)
    return wanted if wanted in FIELDS or wanted in IGNORED else None


def unknown_field(name: str, path: str, line: int, kind: str = "field") -> BadInput:
    """The complaint about a field that does not exist."""
    close = difflib.get_close_matches(name.lower().replace("-", "_"), FIELDS, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}?" if close else f"{kind}s are {', '.join(FIELDS)}"
    return BadInput(f"{kind} {name!r} is not known", where=f"{path}:{line}", hint=hint, slug="unknown-field")


def nodes(
    entries: Sequence[Entry], path: str, existing: Mapping[str, Node] | None = None, update: bool = False
) -> list[Node]:
    """The nodes of a file, all or none.

    Raises one BadInput for the first complaint; up to five more are its cause. A name or address (with port) that
    another node has is a complaint; with `update` a known name is that node, and fields not given stay as stored.
    """
    stored = existing or {}
    out: list[Node] = []
    wrong: list[BadInput] = []
    first_line: dict[str, int] = {}
    for entry in entries:
        try:
            new = _node(entry, path, stored if update else {})
            if new.name in first_line:
                raise BadInput(
                    f"name {new.name!r} is given twice, first in line {first_line[new.name]}",
                    where=f"{path}:{entry.at('name')}",
                    slug="duplicate-node",
                )
            first_line[new.name] = entry.at("name")
            if new.name in stored and not update:
                raise BadInput(
                    f"name {new.name!r} is in the inventory already",
                    where=f"{path}:{entry.at('name')}",
                    hint="leave it out, or import with --update",
                    slug="duplicate-node",
                )
            out.append(new)
        except BadInput as error:
            wrong.append(error)
    by_name = {node.name: node for node in out}
    owner = {(n.address, n.port): n.name for n in stored.values() if n.name not in by_name}
    for node, entry in zip(out, entries, strict=False) if not wrong else ():
        other = owner.setdefault((node.address, node.port), node.name)
        if other != node.name:
            wrong.append(
                BadInput(
                    f"address {node.address!r} port {node.port} of {node.name!r} is that of {other!r} already",
                    where=f"{path}:{entry.at('address')}",
                    slug="duplicate-address",
                )
            )
    if wrong:
        raise _first(wrong)
    if not out:
        raise BadInput("there is no node in it", where=path, slug="empty-file")
    return out


def _first(wrong: Sequence[BadInput]) -> BadInput:
    first, more = wrong[0], wrong[1:]
    if more:
        said = "; ".join(f"{error.where}: {error.what}" for error in more[:5])
        rest = f"; and {len(more) - 5} more" if len(more) > 5 else ""
        first.cause = f"further in the same file: {said}{rest}"
    return first


def _node(entry: Entry, path: str, stored: Mapping[str, Node]) -> Node:
    values: dict[str, Any] = {}
    for name, value in entry.values.items():
        if name in IGNORED:
            continue
        try:
            values[name] = _READ[name](value)
        except ValueError as error:
            where = f"{path}:{entry.at(name)}" if entry.line else path
            slug = "bad-address" if name in ("address", "bmc") else "bad-field"
            shown = repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:80]}…"
            raise BadInput(f"field {name!r} cannot be {shown}: {error}", where=where, slug=slug) from None
    where = f"{path}:{entry.line}" if entry.line else path
    if not values.get("name"):
        raise BadInput("field 'name' is missing", where=where, slug="bad-field")
    if values["name"] in stored:
        return dataclasses.replace(stored[values["name"]], **values)
    if "address" not in values:
        try:
            values["address"] = _address(values["name"])
        except ValueError as error:
            raise BadInput(
                f"field 'address' is missing, and the name {values['name']!r} is no address: {error}",
                where=where,
                slug="bad-address",
            ) from None
    return Node(**values)


# --- one function a field: a value as written -> as stored, ValueError with the reason -----------------------------


def checked_text(value: Any) -> str:
    """Text that can be shown on one line and stored. Raises ValueError with the reason."""
    if not isinstance(value, str):
        if value is None:
            raise ValueError("nothing is given: is the file only half written?")
        kind = "a list or mapping" if isinstance(value, list | dict) else "a number or yes/no: put it in quotes"
        raise ValueError(f"it must be text, not {kind}")
    if not value.isprintable() and (strange := next((c for c in value if _STRANGE.match(c)), "")):
        raise ValueError(f"it holds a control character, {strange!r}")
    if len(value) > MAX_TEXT:
        raise ValueError(f"it is longer than {MAX_TEXT} characters")
    return value.strip()


def _name(value: Any) -> str:
    text = checked_text(value)
    if not _NAME.fullmatch(text):
        raise ValueError("a name is letters, digits, '.', '_', '-', and begins and ends with a letter or digit")
    return text


def _address(value: Any) -> str:
    text = checked_text(value)
    if not text:
        raise ValueError("it is empty")
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        if re.fullmatch(r"[0-9.]+", text) or ":" in text or "/" in text or not _HOST.fullmatch(text):
            raise ValueError("it is neither an IP address nor a host name" + _port_hint(text)) from None
        return text
    if address.is_unspecified or address.is_multicast:
        raise ValueError("no machine can have this address")
    return str(address)


def _port_hint(text: str) -> str:
    return " (the port is a field of its own)" if re.fullmatch(r"[^:]+:[0-9]+", text) else ""


def _bmc(value: Any) -> str:
    text = checked_text(value)
    match = re.fullmatch(r"https?://(\[[0-9A-Fa-f:]+\]|[^/:@\s]+)(?::[0-9]{1,5})?(?:/\S*)?", text)
    if "@" in text:
        raise ValueError("a BMC is given without user or password: secrets live in files named by the settings")
    if text:
        _address(match[1].strip("[]") if match else text)
    return text


def _port(value: Any) -> int:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | str)
        or not re.fullmatch(r"[0-9]{1,5}", str(value).strip())
    ):
        raise ValueError("a port is a whole number from 1 to 65535")
    if not 1 <= int(value) <= 65535:
        raise ValueError("a port is a whole number from 1 to 65535")
    return int(value)


def _user(value: Any) -> str:
    text = checked_text(value)
    if text and not _USER.fullmatch(text):
        raise ValueError("it is no login name")
    return text


def _arch(value: Any) -> str:
    text = checked_text(value)
    if text and text.lower() not in _ARCHES:
        raise ValueError(f"known are {', '.join(_ARCHES)}")
    return _ARCHES[text.lower()] if text else ""


def _domain(value: Any) -> str:
    text = checked_text(value)
    if not selector.value_ok(text):
        raise ValueError("it is up to 63 letters, digits, '-', '_', '.', with no sign at an end")
    return text


def _lifecycle(value: Any) -> str:
    text = checked_text(value)
    if text not in LIFECYCLES:
        close = difflib.get_close_matches(text, LIFECYCLES, n=1)
        raise ValueError(f"did you mean {close[0]}?" if close else f"it is one of {', '.join(LIFECYCLES)}")
    return text


def _labels(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ValueError("labels are a mapping of key to text")
    out: dict[str, str] = {}
    for key, text in value.items():
        try:
            selector.check_label(checked_text(key), checked_text(text))
        except ValueError as error:
            raise ValueError(f"label {key!r}: {error}") from None
        except BadInput as error:
            raise ValueError(error.what) from None
        out[key] = text.strip()
    return out


def _hold(value: Any) -> Hold | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or not set(value) <= {"who", "why", "until"}:
        raise ValueError("a hold is a mapping with who, why and until")
    hold = Hold(checked_text(value.get("who", "")), checked_text(value.get("why", "")), until(value.get("until", "")))
    if not hold.who:
        raise ValueError("a hold says who")
    return hold


def until(value: Any) -> str:
    """A time as stored: ISO 8601 in UTC; a day alone is its beginning; a time without a zone is UTC. ValueError."""
    text = checked_text(value)
    if not text:
        return ""
    try:
        at = datetime.fromisoformat(text)
        shifted = at.replace(tzinfo=None) - (at.utcoffset() or timedelta())
    except (ValueError, OverflowError):
        raise ValueError("it is no ISO 8601 time such as 2030-01-31 or 2030-01-31T08:00:00Z") from None
    if shifted.year < 1000:  # stored times are compared as text
        raise ValueError("the year has four digits")
    return shifted.strftime("%Y-%m-%dT%H:%M:%SZ")


_READ: dict[str, Callable[[Any], Any]] = {
    "name": _name,
    "address": _address,
    "port": _port,
    "user": _user,
    "bmc": _bmc,
    "arch": _arch,
    **dict.fromkeys(DOMAINS, _domain),
    "lifecycle": _lifecycle,
    "labels": _labels,
    "hold": _hold,
}


def plain(node: Node, facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A node as plain values for YAML and JSON; fields that are not known are left out."""
    out: dict[str, Any] = {}
    for name in FIELDS:
        value = getattr(node, name)
        if name == "labels":
            value = dict(sorted(node.labels.items()))
        elif name == "hold" and node.hold is not None:
            value = {key: text for key, text in vars(node.hold).items() if text}
        if value not in ("", None, {}):
            out[name] = value
    if facts is not None:
        out["facts"] = dict(facts)
    return out


def from_fields(values: Mapping[str, Any], existing: Iterable[Node]) -> Node:
    """One node from the command line's options, checked as a file's would be."""
    stored = {node.name: node for node in existing}
    return nodes([Entry(0, values)], "command line", stored)[0]
