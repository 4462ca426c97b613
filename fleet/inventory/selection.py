"""Which nodes are meant: nodesets with groups from the inventory, and label selectors; both given, both must hold."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import drivers
from fleet.core import nodeset as nodesets
from fleet.core import selector as selectors
from fleet.core.errors import NotFound, UsageError
from fleet.core.model import LIFECYCLES, Node
from fleet.inventory.ansible import GROUP_LABEL
from fleet.inventory.store import Inventory


def select(
    inventory: Inventory,
    nodeset: str | None,
    exclude: str | None = None,
    selector: str | None = None,
    default_all: bool = False,
    vendor_path: Iterable[str] = (),
) -> list[Node]:
    """The nodes meant, in natural order.

    With neither nodeset nor selector: all for `default_all`, else UsageError, since a command that changes nodes never
    takes all of them by default. Raises BadInput for what cannot be read, NotFound for a name or group that is not
    there. A selector that matches nothing gives an empty list.
    """
    if nodeset is None and selector is None and not default_all:
        raise UsageError("no nodes are named", hint="name them, or select with -l; @all means all", slug="no-nodes")
    picked = selectors.parse(selector) if selector is not None else selectors.Selector()
    nodes = {node.name: node for node in inventory.nodes()}
    asks_facts = picked.asks_facts or "@" in (nodeset or "") + (exclude or "")
    facts = {row["node"]: row for row in inventory.summaries()} if asks_facts else {}
    values = {name: node_values(node, facts.get(name)) for name, node in nodes.items()}
    chosen = set(nodes) if nodeset is None else set(_names(nodeset, values))
    if exclude is not None:
        chosen -= set(_names(exclude, values))
    schemes = partial(scheme, tuple(vendor_path))
    return [
        node
        for name, node in nodes.items()
        if name in chosen and picked.matches(values[name], partial(schemes, values[name].get("vendor", "")))
    ]


def node_values(node: Node, facts: Mapping[str, Any] | None = None) -> dict[str, str]:
    """What selectors and groups may ask of a node: labels, then fields, then `facts` (a row of `summaries()`)."""
    values = dict(node.labels) | {"name": node.name, "state": node.lifecycle}
    for name in ("arch", "site", "rack", "leaf", "nvlink_domain", "superpod"):
        if text := getattr(node, name):
            values[name] = text
    if node.hold is not None:
        values["hold"] = "true"
    if facts is not None:
        values["count"] = str(facts["count"])
        found = {"vendor": facts["vendor"], "model": facts["model"], "os": facts["os_id"]}
        found |= {
            "os_version": facts["os_version"],
            "kernel": facts["kernel"],
            "arch": values.get("arch") or facts["arch"],
        }
        values |= {name: text for name, text in found.items() if text}
        values |= {name: text for name, text in facts["components"].items() if name != "os"}
    return values


def _names(nodeset: str, values: Mapping[str, Mapping[str, str]]) -> list[str]:
    names = nodesets.expand(nodeset, lambda group: _group(group, values))
    unknown = [name for name in names if name not in values]
    if unknown:
        close = difflib.get_close_matches(unknown[0], values, n=1)
        hint = f"did you mean {close[0]}?" if close else "fleet node list"
        raise NotFound(f"node {nodesets.fold(unknown)} is not in the inventory", hint=hint, slug="unknown-node")
    return names


def _group(group: str, values: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The members of `all`, of `key:value` for a label, field or component, or of an imported Ansible group."""
    if group in ("all", "*"):
        return list(values)
    key, colon, value = group.partition(":")
    if not colon:  # a group of an Ansible inventory, kept as a label
        key, colon, value = GROUP_LABEL + key, ":", "true"
    key = selectors.field(key) or key
    if not value:
        raise NotFound(
            f"there is no group @{group}", hint="@all, or @KEY:VALUE such as @rack:r07", slug="unknown-group"
        )
    members = [name for name, node in values.items() if node.get(key) == value]
    if members or (key == "state" and value in LIFECYCLES) or (key == "hold" and value == "true"):
        return members
    there = sorted({node[key] for node in values.values() if key in node} | set(LIFECYCLES if key == "state" else ()))
    if there:
        close = difflib.get_close_matches(value, there, n=3) or there[:5]
        hint = f"{key} is one of {', '.join(close)}"
    else:
        hint = f"no node has a {key}" + (": run fleet probe first" if key in ("vendor", "model") else "")
    raise NotFound(f"the group @{group} has no node", hint=hint, slug="unknown-group")


def scheme(vendor_path: tuple[str, ...], vendor: str, part: str) -> str:
    """The version scheme of a component as its vendor says; generic where no vendor says."""
    usual = "kernel" if part == "kernel" else "generic"
    found = drivers.vendors(vendor_path).get(vendor) if vendor else None
    return found.schemes.get(part, usual) if found is not None else usual
