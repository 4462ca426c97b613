"""What a lab is made of: a YAML file of node classes and nodes, with the identities that a seed gives them.

`fleet/lab/specs/default.yaml` is the example; its head describes every key. Errors are BadInput with file and field.
"""

from __future__ import annotations

import random
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fleet.core.errors import BadInput
from fleet.core.model import Json
from fleet.core.nodeset import expand

MAX_NODES = 250  # one address each in the last number
SPECS = Path(__file__).parent / "specs"
DEFAULT = SPECS / "default.yaml"
# Where eight cards of a common two-socket server sit.
BUSES = ("1b", "43", "52", "61", "9d", "c3", "d1", "df", "2b", "3b", "4b", "5b", "ab", "bb", "cb", "db")


@dataclass(frozen=True)
class NodeClass:
    """Equal nodes: hardware, system and starting stack. `cards` and `switches` are the templates of their functions."""

    name: str
    vendor: str
    model: str
    os: Mapping[str, Any]  # a row of systems.yaml: id, version, name, kind (deb or rpm), files …
    kernel: str
    headers: str  # newest or older: which of the base's two header trees this kernel is made of
    user: str
    cards: Mapping[str, Any]
    switches: Mapping[str, Any]
    dmi: Mapping[str, str]
    start: Mapping[str, str]  # component -> version; empty = nothing installed
    targets: tuple[Mapping[str, str], ...]
    state: Mapping[str, Any]  # further keys of state.json

    def stack(self, name: str, components: Mapping[str, str], arch: str) -> dict[str, Json]:
        """The entry of VERSIONS.json for one set of versions."""
        return {
            "name": name,
            "vendor": self.vendor,
            "model": self.model,
            "arch": arch,
            "os": {"id": str(self.os["id"]), "version": str(self.os["version"])},
            "kind": str(self.os["kind"]),
            "kernel": self.kernel,
            "nvswitch": bool(self.switches),
            "pci_id": str(self.cards["pci_id"]),
            "components": dict(components),
        }


@dataclass(frozen=True)
class LabNode:
    """One simulated machine."""

    name: str
    node_class: NodeClass
    address: str
    port: int
    seed: str
    place: Mapping[str, str] = field(default_factory=dict)  # site, rack, leaf, nvlink_domain, superpod
    labels: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    guest: bool = False  # a QEMU guest with a real kernel and systemd, not namespaces of the host

    def functions(self, template: Mapping[str, Any], role: str) -> list[dict[str, Any]]:
        """The PCI functions of this node from a class's template; identities follow from the seed alone."""
        if not template:
            return []
        chance = random.Random(f"{self.seed}/{self.name}/{role}")
        plain = {k: v for k, v in template.items() if k not in {"count", "bus", "uuid", "serial", "also"}}
        out = []
        buses = template.get("bus") or [f"0000:{bus}:00.0" for bus in BUSES]
        for index in range(int(template["count"])):
            row: dict[str, Any] = {"index": index, "bus_id": str(buses[index]), **plain}
            for key in ("uuid", "serial"):
                row[key] = _fill(str(template.get(key, "")), chance, index)
            row.update({k: _fill_deep(v, chance, index) for k, v in template.get("also", {}).items()})
            out.append(row)
        return out


@dataclass(frozen=True)
class Spec:
    """A whole lab."""

    nodes: tuple[LabNode, ...]
    seed: int
    where: str

    @property
    def classes(self) -> tuple[NodeClass, ...]:
        return tuple({node.node_class.name: node.node_class for node in self.nodes}.values())


def _fill(text: str, chance: random.Random, index: int) -> str:
    """`{uuid}`, `{hex:8}`, `{HEX:8}`, `{digits:13}`, `{index}` in an identity."""

    def one(match: re.Match[str]) -> str:
        kind, _, count = match[1].partition(":")
        if kind == "uuid":
            return str(uuid.UUID(int=chance.getrandbits(128), version=4))
        if kind == "index":
            return str(index)
        letters = {"hex": "0123456789abcdef", "HEX": "0123456789ABCDEF", "digits": "0123456789"}[kind]
        return "".join(chance.choice(letters) for _ in range(int(count)))

    return re.sub(r"\{(uuid|index|(?:hex|HEX|digits):\d+)\}", one, text)


def _fill_deep(value: Any, chance: random.Random, index: int) -> Any:
    if isinstance(value, str):
        return _fill(value, chance, index)
    if isinstance(value, dict):
        return {k: _fill_deep(v, chance, index) for k, v in value.items()}
    if isinstance(value, list):
        return [_fill_deep(v, chance, index) for v in value]
    return value


@cache
def systems() -> dict[str, dict[str, Any]]:
    """The operating systems a node may pretend to be: systems.yaml."""
    loaded: dict[str, dict[str, Any]] = yaml.safe_load((SPECS / "systems.yaml").read_text())
    return loaded


def _need(row: Mapping[str, Any], key: str, where: str) -> Any:
    if row.get(key) in (None, ""):
        raise BadInput(f"{key!r} is missing", where=where, slug="bad-lab-spec")
    return row[key]


def _strings(row: Any, key: str, where: str) -> dict[str, str]:
    if not isinstance(row, dict) or not all(isinstance(v, str) for v in row.values()):
        raise BadInput(f"{key!r} must map names to quoted texts", where=where, slug="bad-lab-spec")
    return dict(row)


def _class(name: str, row: Mapping[str, Any], where: str) -> NodeClass:
    where = f"{where}: classes.{name}"
    known = {
        "vendor", "model", "os", "kernel", "headers", "user", "cards", "switches", "dmi", "start", "targets", "state",
    }  # fmt: skip
    if set(row) - known:
        raise BadInput(f"unknown key {sorted(set(row) - known)[0]!r}", where=where, slug="bad-lab-spec")
    system = str(_need(row, "os", where))
    if system not in systems():
        raise BadInput(
            f"os {system!r} is not known", where=where, hint=f"known are: {', '.join(systems())}", slug="bad-lab-spec"
        )
    cards = _need(row, "cards", where)
    for key in ("count", "pci_id", "class"):
        _need(cards, key, f"{where}.cards")
    headers = str(row.get("headers", "newest"))
    if headers not in {"newest", "older"}:
        raise BadInput(f"headers must be newest or older, not {headers!r}", where=where, slug="bad-lab-spec")
    return NodeClass(
        name=name,
        vendor=str(_need(row, "vendor", where)),
        model=str(_need(row, "model", where)),
        os=systems()[system],
        kernel=str(_need(row, "kernel", where)),
        headers=headers,
        user=str(row.get("user", "root")),
        cards=cards,
        switches=row.get("switches") or {},
        dmi=_strings(row.get("dmi", {}), "dmi", where),
        start=_strings(row.get("start", {}), "start", where),
        targets=tuple(_strings(target, "targets", where) for target in row.get("targets", [])),
        state=row.get("state", {}),
    )


def load(path: Path, seed: int) -> Spec:
    """Read a spec. BadInput names the file and the place; nothing is guessed."""
    try:
        document = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"not a readable lab spec: {error}", where=str(path), slug="bad-lab-spec") from error
    if not isinstance(document, dict):
        raise BadInput("a lab spec is a mapping with classes and nodes", where=str(path), slug="bad-lab-spec")
    classes = {name: _class(name, row, str(path)) for name, row in _need(document, "classes", str(path)).items()}
    network = str(document.get("network", "127.77.0"))
    if not re.fullmatch(r"127\.\d{1,3}\.\d{1,3}", network):
        raise BadInput(f"network must be 127.x.y, not {network!r}", where=str(path), slug="bad-lab-spec")
    rows = [(name, row) for names, row in _need(document, "nodes", str(path)).items() for name in expand(str(names))]
    if len(rows) > MAX_NODES:
        raise BadInput(f"a lab has at most {MAX_NODES} nodes, not {len(rows)}", where=str(path), slug="bad-lab-spec")
    nodes: list[LabNode] = []
    for number, (name, row) in enumerate(rows, start=1):
        where = f"{path}: nodes.{name}"
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,40}", name):
            raise BadInput(f"{name!r} is no host name", where=where, slug="bad-lab-spec")
        wanted = str(_need(row, "class", where))
        if wanted not in classes:
            raise BadInput(f"class {wanted!r} is not in this file", where=where, slug="bad-lab-spec")
        guest = row.get("guest", False)
        if not isinstance(guest, bool) or (guest and classes[wanted].os["kind"] != "deb"):
            raise BadInput(
                "guest must be true or false, and a guest's system one of deb packages",
                where=where,
                slug="bad-lab-spec",
            )
        if any(node.name == name for node in nodes):
            raise BadInput(f"node {name!r} is given twice", where=where, slug="bad-lab-spec")
        nodes.append(
            LabNode(
                name=name,
                node_class=classes[wanted],
                address=f"{network}.{number}",
                port=int(document.get("port", 2222)),
                seed=str(seed),
                place={k: str(row[k]) for k in ("site", "rack", "leaf", "nvlink_domain", "superpod") if k in row},
                labels=_strings(row.get("labels", {}), "labels", where),
                faults=tuple(str(fault) for fault in row.get("faults", [])),
                guest=guest,
            )
        )
    return Spec(tuple(nodes), seed, str(path))
