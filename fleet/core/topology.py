"""What fails together: the failure domains that nodes share. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from fleet.core.model import DOMAINS, Node


@dataclass(frozen=True)
class Domain:
    """One rack, leaf, NVLink domain, SuperPod or site, and the names of its nodes."""

    kind: str
    name: str
    members: frozenset[str]

    def __str__(self) -> str:
        return f"{self.kind.replace('_', ' ')} {self.name}"


def domains(nodes: Iterable[Node]) -> list[Domain]:
    """Every domain that a node names, in the order of `DOMAINS` and then by name."""
    found: dict[tuple[str, str], set[str]] = {}
    for node in nodes:
        for kind in DOMAINS:
            if name := getattr(node, kind):
                found.setdefault((kind, name), set()).add(node.name)
    order = sorted(found, key=lambda key: (DOMAINS.index(key[0]), key[1]))
    return [Domain(kind, name, frozenset(found[kind, name])) for kind, name in order]


def whole(names: Collection[str], nodes: Iterable[Node]) -> list[Domain]:
    """The domains of two nodes and more that lie wholly in `names`: look there before you look at each node.

    Of domains with the same nodes only the first kind is named, and none that lies inside a larger one given.
    """
    out: list[Domain] = []
    wanted = set(names)
    for domain in sorted(domains(nodes), key=lambda d: -len(d.members)):
        if len(domain.members) > 1 and domain.members <= wanted and not any(domain.members <= d.members for d in out):
            out.append(domain)
    return out
