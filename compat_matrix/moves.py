"""What a change of tables does: rows that came, went or changed, and node classes whose answer moves from A to B."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from compat_matrix.document import MAX_BYTES, Problem
from compat_matrix.load import identity
from compat_matrix.schema import SECTIONS, Raw
from compat_matrix.solve import solve
from compat_matrix.table import Matrix
from fleet.core.errors import BadInput, FleetError
from fleet.core.model import Conflict, Request, canonical

NO_STACK = "no stack"


@dataclass(frozen=True)
class Move:
    """Classes whose answers moved in the same way. `old` and `new` are sentences such as `driver 580.95.05`."""

    old: str
    new: str
    classes: tuple[str, ...]

    def __str__(self) -> str:
        number = f"{len(self.classes)} node class" + ("es" if len(self.classes) > 1 else "")
        return f"this change moves {number} from {self.old} to {self.new}: {', '.join(self.classes)}"


@dataclass(frozen=True)
class RowChange:
    """A row that is only in one of two states of the tables, or that says something else in them."""

    what: str  # added | removed | changed
    vendor: str
    section: str
    row: str  # what the row is of
    at: str  # file:line, in the newer state where it is there


@dataclass(frozen=True)
class Answers:
    """The stacks chosen for named classes; a class without one has {}."""

    matrix: str
    stacks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return {"matrix": self.matrix, "answers": {name: dict(stack) for name, stack in sorted(self.stacks.items())}}


def answers(matrix: Matrix, requests: Mapping[str, Request]) -> Answers:
    """The stack of each named class; {} where nothing fits or the tables cannot be asked."""
    out: dict[str, Mapping[str, str]] = {}
    for name, request in requests.items():
        try:
            found = solve(matrix, request)
        except FleetError:
            out[name] = {}
            continue
        out[name] = {} if isinstance(found, Conflict) else dict(found.stack)
    return Answers(matrix.digest, out)


def parse_answers(text: str, path: str) -> Answers:
    """A stored set of answers (JSON as `Answers.as_dict`). Raises BadInput."""
    wrong = BadInput(
        "the file is no stored set of answers", where=f"{path}:1", hint="fleet matrix check --write-answers"
    )
    if len(text) > MAX_BYTES:
        raise BadInput("the file is larger than 4 MB", where=f"{path}:1", slug="too-large")
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise wrong from error
    found = raw.get("answers") if isinstance(raw, dict) else None
    if not isinstance(found, dict):
        raise wrong
    for stack in found.values():
        if not isinstance(stack, dict) or not all(isinstance(v, str) for v in stack.values()):
            raise wrong
    return Answers(str(raw.get("matrix", "")), found)


def moves(before: Answers, after: Answers) -> list[Move]:
    """The classes of both whose stacks differ, those that moved alike in one; the largest first."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, old in before.stacks.items():
        new = after.stacks.get(name)
        if new is not None and dict(old) != dict(new):
            alike.setdefault(_words(old, new), []).append(name)
    found = [Move(old, new, tuple(sorted(names))) for (old, new), names in alike.items()]
    return sorted(found, key=lambda move: (-len(move.classes), move.old, move.new))


def _words(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[str, str]:
    """Both stacks in words, only where they differ."""
    if not old or not new:
        return tuple(", ".join(f"{c} {v}" for c, v in stack.items()) or NO_STACK for stack in (old, new))  # type: ignore[return-value]
    differ = [c for c in dict.fromkeys((*old, *new)) if old.get(c) != new.get(c)]
    a, b = (", ".join(f"{c} {s[c]}" if c in s else f"no {c}" for c in differ) for s in (old, new))
    return a, b


def check_answers(matrix: Matrix, stored: Answers, requests: Mapping[str, Request], path: str) -> list[Problem]:
    """An error for each move away from the stored answers, one for classes that are stored or asked alone."""
    out = [Problem(path, 1, str(move), "moved-classes") for move in moves(stored, answers(matrix, requests))]
    for name in sorted(set(stored.stacks) ^ set(requests)):
        text = "no request has this class" if name in stored.stacks else "no answer is stored for this class"
        out.append(Problem(path, 1, f"{name}: {text}", "stored-answers"))
    return out


def row_changes(
    before: Mapping[str, Mapping[str, list[Raw]]], after: Mapping[str, Mapping[str, list[Raw]]]
) -> list[RowChange]:
    """What rows came, went or say something else. Rows are the same when they are of the same thing; a rule without an
    id is of its whole content, so that a changed one went and came."""
    out: list[RowChange] = []
    for vendor in sorted({*before, *after}):
        for section in SECTIONS:
            old, new = (_by_name(tables.get(vendor, {}).get(section, ()), section) for tables in (before, after))
            for name in dict.fromkeys((*old, *new)):
                if name not in new:
                    out.append(RowChange("removed", vendor, section, _short(old[name], section), old[name]["at"]))
                elif name not in old:
                    out.append(RowChange("added", vendor, section, _short(new[name], section), new[name]["at"]))
                elif _content(old[name]) != _content(new[name]):
                    out.append(RowChange("changed", vendor, section, _short(new[name], section), new[name]["at"]))
    return out


def _content(raw: Raw) -> str:
    return canonical({k: v for k, v in raw.items() if k != "at"})


def _by_name(rows: Iterable[Raw], section: str) -> dict[str, Raw]:
    out: dict[str, Raw] = {}
    for raw in rows:
        out[identity(raw, section) or _content(raw)] = raw
    return out


def _short(raw: Raw, section: str) -> str:
    if section == "releases":
        return f"{raw['component']} {raw['version']}"
    if section in ("models", "components"):
        return str(raw["model" if section == "models" else "component"])
    if section == "systems":
        return f"{raw['id']} {raw['version']}"
    if section == "notes":
        return f"{raw['topic']}: {raw['because']}"
    if section == "order":
        return f"{raw['case']}: {', '.join(raw['sequence'])}"
    if section == "records":
        return ", ".join(f"{c} {v}" for c, v in raw["stack"].items())
    return f"{raw['relation']} {raw.get('id') or raw.get('because', '')}"
