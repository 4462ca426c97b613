"""The order in which nodes go: canaries, one failure domain, growing sets. Units that move together stay so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fleet.core.model import Node


def unit_of(node: Node) -> str:
    """What the node moves together with: its NVLink domain or SuperPod, else itself."""
    if node.nvlink_domain:
        return f"nvlink_domain:{node.nvlink_domain}"
    return f"superpod:{node.superpod}" if node.superpod else f"node:{node.name}"


def units(nodes: Iterable[Node]) -> list[tuple[Node, ...]]:
    """Nodes folded into units, in order of their first name."""
    found: dict[str, list[Node]] = {}
    for node in sorted(nodes, key=lambda n: n.name):
        found.setdefault(unit_of(node), []).append(node)
    return [tuple(members) for members in found.values()]


def waves_of(
    cells: Sequence[tuple[str, tuple[Node, ...]]], by: str = "rack", *, split: bool = False
) -> tuple[tuple[str, ...], ...]:
    """Waves of node names. `cells` are (hardware cell, its nodes); `by` is the kind of domain that a wave takes whole.

    Wave 0 holds the smallest unit of each cell. Wave 1 is one domain: the smallest, and of one that is larger than a
    quarter of what is left only so much. Every later wave may be twice as large as the one before; it takes whole
    domains, as long as they fit. With `split`, nodes go one by one that else move together.
    """
    cell_by_node = {node.name: cell for cell, nodes in cells for node in nodes}
    there = [node for _, nodes in cells for node in nodes]
    left = [(node,) for node in sorted(there, key=lambda n: n.name)] if split else units(there)
    if not left:
        return ()
    canary: list[tuple[Node, ...]] = []
    covered: set[str] = set()
    for unit in sorted(left, key=lambda u: (len(u), u[0].name)):
        if not {cell_by_node[node.name] for node in unit} <= covered:
            canary.append(unit)
            covered |= {cell_by_node[node.name] for node in unit}
    chosen = {id(unit) for unit in canary}
    waves = [canary]
    queue = _domains([unit for unit in left if id(unit) not in chosen], by)
    room = max(1, (sum(_size(domain) for domain in queue) + 3) // 4)
    first = True
    while queue:
        wave: list[tuple[Node, ...]] = []
        while queue and (not wave or (not first and _size(wave) + _size(queue[0]) <= room)):
            taken, rest = _cut(queue.pop(0), room)
            wave += taken
            if rest:
                queue.insert(0, rest)
                break
        waves.append(wave)
        room, first = 2 * _size(wave) if first else 2 * room, False
    return tuple(tuple(node.name for unit in wave for node in unit) for wave in waves)


def _domains(left: Sequence[tuple[Node, ...]], by: str) -> list[list[tuple[Node, ...]]]:
    """The units of each domain of that kind: the smallest domain first, then by site and name."""
    found: dict[tuple[str, str], list[tuple[Node, ...]]] = {}
    for unit in left:
        name = unit[0].labels.get(by[6:], "") if by.startswith("label:") else str(getattr(unit[0], by, ""))
        found.setdefault((unit[0].site, name or f"node {unit[0].name}"), []).append(unit)
    keys = sorted(found)
    if keys:
        smallest = min(keys, key=lambda key: (_size(found[key]), key))
        keys.remove(smallest)
        keys.insert(0, smallest)
    return [found[key] for key in keys]


def _size(units_: Iterable[tuple[Node, ...]]) -> int:
    return sum(len(unit) for unit in units_)


def _cut(domain: list[tuple[Node, ...]], room: int) -> tuple[list[tuple[Node, ...]], list[tuple[Node, ...]]]:
    """As many of its units as there is room for, at least one, and the rest."""
    at, size = 1, len(domain[0])
    while at < len(domain) and size + len(domain[at]) <= room:
        size += len(domain[at])
        at += 1
    return domain[:at], domain[at:]
