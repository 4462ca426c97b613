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


def waves_of(cells: Sequence[tuple[str, tuple[Node, ...]]]) -> tuple[tuple[str, ...], ...]:
    """Waves of node names. `cells` are (hardware cell, its nodes).

    Wave 0 holds the smallest unit of each cell. Wave 1 is the rest of one rack (at most a quarter of what is left, at
    least one unit); every later wave may be twice as large as the one before.
    """
    cell_by_node = {node.name: cell for cell, nodes in cells for node in nodes}
    left = units(node for _, nodes in cells for node in nodes)
    if not left:
        return ()
    canary: list[tuple[Node, ...]] = []
    covered: set[str] = set()
    for unit in sorted(left, key=lambda u: (len(u), u[0].name)):
        if not {cell_by_node[node.name] for node in unit} <= covered:
            canary.append(unit)
            covered |= {cell_by_node[node.name] for node in unit}
    chosen = {id(unit) for unit in canary}
    rest = [unit for unit in left if id(unit) not in chosen]
    waves = [canary]
    if rest:
        rack = rest[0][0].rack
        room = max(1, (sum(len(u) for u in rest) + 3) // 4)
        first: list[tuple[Node, ...]] = []
        size = 0
        for unit in [u for u in rest if rack and u[0].rack == rack] or rest:
            if not first or size + len(unit) <= room:
                first.append(unit)
                size += len(unit)
        waves.append(first)
        taken = {id(unit) for unit in first}
        rest = sorted((u for u in rest if id(u) not in taken), key=lambda u: (u[0].site, u[0].rack, u[0].name))
    at = 0
    while at < len(rest):
        size *= 2
        wave: list[tuple[Node, ...]] = []
        fill = 0
        while at < len(rest) and (not wave or fill + len(rest[at]) <= size):
            wave.append(rest[at])
            fill += len(rest[at])
            at += 1
        waves.append(wave)
    return tuple(tuple(node.name for unit in wave for node in unit) for wave in waves)
