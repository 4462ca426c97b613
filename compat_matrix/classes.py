"""Equal nodes are one class: what ten thousand nodes said, as some hundred requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compat_matrix.request import request_of
from fleet.core.errors import Refused
from fleet.core.model import Facts, Policy, Request


def node_classes(
    facts: Mapping[str, Facts], policy: Policy, wish: Mapping[str, str] | None = None
) -> tuple[list[tuple[Request, list[str]]], dict[str, Refused]]:
    """(each class as a request with the names of its nodes, why other nodes have none), in the order of the nodes."""
    seen: dict[Any, tuple[Request, list[str]]] = {}
    classes: dict[str, tuple[Request, list[str]]] = {}
    refused: dict[str, Refused] = {}
    for name, said in facts.items():
        mark = _mark(said)
        found = seen.get(mark)
        if found is None:
            try:
                request = request_of(said, policy, wish)
            except Refused as error:  # names the node
                refused[name] = error
                continue
            found = seen[mark] = classes.setdefault(repr(request), (request, []))
        found[1].append(name)
    return list(classes.values()), refused


def _mark(said: Facts) -> Any:
    """What a request is made of, without making one: two nodes of one mark have one request."""
    return (
        said.vendor,
        tuple(sorted(card.model for card in said.accelerators)),
        said.os,
        tuple((name, fact.current) for name, fact in sorted(said.components.items())),
        tuple(sorted((name, repr(value)) for name, value in said.flags.items())),
    )
