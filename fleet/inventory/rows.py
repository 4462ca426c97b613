"""Rows <-> core types. Pure: a row here is a plain mapping, a core type is a frozen dataclass."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from fleet.core.model import Accelerator, ComponentFact, Facts, Hold, Node, OsFacts

T = TypeVar("T")
NODE_COLUMNS = tuple(f.name for f in dataclasses.fields(Node) if f.name not in {"labels", "hold"})


def node_row(node: Node) -> dict[str, Any]:
    """The row of table `node`; labels are rows of their own."""
    hold = node.hold or Hold("", "")
    row = {name: getattr(node, name) for name in NODE_COLUMNS}
    return row | {"hold_who": hold.who, "hold_why": hold.why, "hold_until": hold.until}


def label_rows(node: Node) -> list[dict[str, str]]:
    """The rows of table `label` for one node."""
    return [{"node": node.name, "key": key, "value": value} for key, value in sorted(node.labels.items())]


def node(row: Mapping[str, Any], labels: Mapping[str, str]) -> Node:
    """A node from its row and its labels."""
    hold = Hold(row["hold_who"], row["hold_why"], row["hold_until"]) if row["hold_who"] else None
    return Node(**{name: row[name] for name in NODE_COLUMNS}, labels=labels, hold=hold)


def current_row(facts: Facts, digest: str) -> dict[str, Any]:
    """The row of table `fact_current`."""
    return {
        "node": facts.node,
        "digest": digest,
        "at": facts.at,
        "boot_id": facts.boot_id,
        "vendor": facts.vendor,
        "model": facts.accelerators[0].model if facts.accelerators else "",
        "count": len(facts.accelerators),
        "os_id": facts.os.id,
        "os_version": facts.os.version,
        "kernel": facts.os.kernel,
        "arch": facts.os.arch,
    }


def component_rows(facts: Facts) -> list[dict[str, Any]]:
    """The rows of table `component_fact` for one node."""
    return [
        {"node": facts.node, "component": name, **dataclasses.asdict(fact)}
        for name, fact in sorted(facts.components.items())
    ]


def accelerator_rows(facts: Facts) -> list[dict[str, Any]]:
    """The rows of table `accelerator` for one node.

    A node may say the same UUID twice, or none: the identity then gets the place in the list, so that no card is lost.
    """
    rows: list[dict[str, Any]] = []
    taken: set[str] = set()
    for place, card in enumerate(facts.accelerators):
        identity = card.identity
        if not identity or identity in taken:
            identity = f"{identity}#{place}"
        taken.add(identity)
        row = dataclasses.asdict(card)
        row["position"] = row.pop("index")
        rows.append({"node": facts.node, "identity": identity, **row})
    return rows


def facts(name: str, document: Mapping[str, Any], at: str, boot_id: str) -> Facts:
    """Facts from a stored document (`Facts.content()`). Fields that this release does not know are left out."""
    return Facts(
        node=name,
        os=_known(OsFacts, document.get("os", {})),
        vendor=document.get("vendor", ""),
        components={key: _known(ComponentFact, value) for key, value in document.get("components", {}).items()},
        accelerators=tuple(_known(Accelerator, card) for card in document.get("accelerators", ())),
        flags=document.get("flags", {}),
        statuses=document.get("statuses", {}),
        problems=tuple(document.get("problems", ())),
        faults=tuple(document.get("faults", ())),
        boot_id=boot_id,
        at=at,
    )


def _known(kind: type[T], values: Mapping[str, Any]) -> T:
    names = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]  # only ever given dataclasses
    return kind(**{key: value for key, value in values.items() if key in names})
