"""The matrix in memory: rows by vendor and kind, and the one place that knows which name means which model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from compat_matrix import row as rows
from compat_matrix.row import ComponentRow, Model, Note, Order, Record, Release, Rule, System


@dataclass
class VendorTables:
    """All rows of one vendor."""

    name: str
    strip: tuple[str, ...] = ()
    models: tuple[Model, ...] = ()
    components: Mapping[str, ComponentRow] = field(default_factory=dict)
    order: tuple[Order, ...] = ()
    releases: Mapping[str, tuple[Release, ...]] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    records: tuple[Record, ...] = ()
    notes: tuple[Note, ...] = ()

    @classmethod
    def of(cls, name: str, raw: Mapping[str, list[dict[str, Any]]]) -> VendorTables:
        releases: dict[str, list[Release]] = {}
        for item in raw.get("releases", ()):
            releases.setdefault(item["component"], []).append(rows.release(item))
        return cls(
            name,
            tuple(word for item in raw.get("strip", ()) for word in item["words"]),
            tuple(map(rows.model, raw.get("models", ()))),
            {item["component"]: rows.component(item) for item in raw.get("components", ())},
            tuple(map(rows.order, raw.get("order", ()))),
            {component: tuple(found) for component, found in releases.items()},
            tuple(map(rows.rule, raw.get("rules", ()))),
            tuple(map(rows.record, raw.get("records", ()))),
            tuple(map(rows.note, raw.get("notes", ()))),
        )

    @cached_property
    def tables(self) -> dict[str, tuple[Rule, ...]]:
        """name of a pairs table -> its rows."""
        out: dict[str, list[Rule]] = {}
        for rule in self.rules:
            if rule.relation == "pairs":
                out.setdefault(rule.table, []).append(rule)
        return {name: tuple(found) for name, found in out.items()}

    @cached_property
    def _names(self) -> dict[str, Model]:
        out: dict[str, Model] = {}
        for model in self.models:
            for name in (model.name, *model.aliases):
                out.setdefault(self.fold(name), model)
        return out

    @cached_property
    def _ids(self) -> dict[str, Model]:
        out: dict[str, Model] = {}
        for model in self.models:
            for pci in model.pci:
                out.setdefault(pci, model)
        return out

    def fold(self, name: str) -> str:
        """A name without case, vendor words, blanks, signs; `80GB` and `80G` are the same."""
        return "".join(self._split(name))

    def words(self, name: str) -> tuple[str, ...]:
        """The words of a folded name, sorted: `H100 PCIe 80GB` and `H100-80GB-PCIe` have the same."""
        return tuple(sorted(self._split(name)))

    def _split(self, name: str) -> list[str]:
        text = re.sub(r"\bpci-e\b", "pcie", name.lower())
        for word in self.strip:
            text = re.sub(rf"(?<![a-z0-9]){re.escape(word.lower())}(?![a-z])", " ", text)
        return re.sub(r"(\d)\s*g(?:i?b)?\b", r"\1g", re.sub(r"[^a-z0-9.]+", " ", text)).split()

    @cached_property
    def _words(self) -> dict[tuple[str, ...], Model | None]:
        """The words of a name in any order; None where two models have the same words."""
        out: dict[tuple[str, ...], Model | None] = {}
        for model in self.models:
            for name in (model.name, *model.aliases):
                words = self.words(name)
                out[words] = model if out.get(words, model) is model else None
        return out

    def find(self, text: str) -> Model | None:
        """The model that a person, a tool or the PCI bus calls `text`; None when it is in no row.

        A name is found without regard to case, blanks and signs, then by its words in any order.
        """
        wanted = text.strip()
        pci = re.fullmatch(r"([0-9a-f]{4}:[0-9a-f]{4})(/[0-9a-f]{4}:[0-9a-f]{4})?", wanted.lower())
        if pci:
            return self._ids.get(wanted.lower()) or self._ids.get(pci.group(1))
        if not wanted or len(wanted) > 200:
            return None
        return self._names.get(self.fold(wanted)) or self._words.get(self.words(wanted))


class Matrix:
    """The tables of all vendors. `digest` changes when any table changes."""

    def __init__(self, digest: str, vendors: Mapping[str, VendorTables], systems: Iterable[System] = ()) -> None:
        self.digest = digest
        self.tables = dict(vendors)
        self.systems = tuple(systems)
        self.cache: dict[str, Any] = {}  # answers by digest of the request; belongs to `solve`
        self.ladders: dict[tuple[str, tuple[str, ...]], Any] = {}  # masks of ranges; belongs to `problem`

    @classmethod
    def of(cls, digest: str, raw: Mapping[str, Mapping[str, list[dict[str, Any]]]]) -> Matrix:
        """From checked raw rows, vendor -> section -> rows; the folder `os` holds the operating systems."""
        vendors = {name: VendorTables.of(name, sections) for name, sections in raw.items() if name != "os"}
        return cls(digest, vendors, map(rows.system, raw.get("os", {}).get("systems", ())))

    @property
    def vendors(self) -> tuple[str, ...]:
        return tuple(sorted(self.tables))

    def model(self, vendor: str, name: str) -> str | None:
        """Canonical model from a human name, a name printed by a tool, or `10de:2330[/10de:16c1]`."""
        found = self.find(vendor, name)
        return found.name if found else None

    def find(self, vendor: str, name: str) -> Model | None:
        """The row of that model."""
        tables = self.tables.get(vendor)
        return tables.find(name) if tables else None
