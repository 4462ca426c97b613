"""The order in which nodes go: canaries, one whole domain, growing sets of whole domains."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fleet.core.model import Node
from fleet.core.waves import unit_of, waves_of


def nodes(*racks: int, **more: Any) -> tuple[Node, ...]:
    """So many nodes in each rack."""
    return tuple(
        Node(f"r{rack}n{i:02}", "192.0.2.1", rack=f"r{rack}", **more)
        for rack, size in enumerate(racks)
        for i in range(size)
    )


def racks(wave: tuple[str, ...]) -> list[str]:
    return sorted({name.partition("n")[0] for name in wave})


def test_after_the_canary_comes_one_whole_rack_and_then_twice_as_many_in_whole_racks() -> None:
    waves = waves_of([("c", nodes(9, 4, 8, 8, 8, 8))])
    assert waves[0] == ("r0n00",)
    assert racks(waves[1]) == ["r1"] and len(waves[1]) == 4  # the smallest
    assert [racks(wave) for wave in waves[2:]] == [["r0"], ["r2", "r3"], ["r4", "r5"]]
    assert [len(wave) for wave in waves] == [1, 4, 8, 16, 16]


def test_of_a_rack_that_is_too_large_only_a_part_goes_first() -> None:
    waves = waves_of([("c", nodes(41))])
    assert [len(wave) for wave in waves] == [1, 10, 20, 10]


def test_waves_may_follow_another_kind_of_domain() -> None:
    both = (*nodes(4, 4, leaf="l1", labels={"hall": "east"}), *nodes(0, 0, 4, leaf="l2", labels={"hall": "west"}))
    by_leaf = waves_of([("c", both)], "leaf")
    assert racks(by_leaf[1]) == ["r2"] and len(by_leaf[1]) == 3  # of four, as many as a quarter of what is left
    assert waves_of([("c", both)], "label:hall") == by_leaf


def test_every_cell_has_its_canary_and_units_stay_whole() -> None:
    pod = nodes(3, superpod="sp1")
    alone = tuple(Node(f"x{i}", "192.0.2.1") for i in range(3))
    waves = waves_of([("a", pod), ("b", alone)])
    assert set(waves[0]) == {"r0n00", "r0n01", "r0n02", "x0"}
    assert waves_of([("a", pod)], split=True)[0] == ("r0n00",)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 4)), min_size=1, max_size=60),
    st.sampled_from(["rack", "leaf", "site", "superpod"]),
)
def test_laws(rows: list[tuple[int, int, int]], by: str) -> None:
    there = [
        Node(f"n{i:02}", "192.0.2.1", rack=f"r{rack}" if rack else "", superpod=f"p{pod}" if pod > 2 else "", leaf="l")
        for i, (_, rack, pod) in enumerate(rows)
    ]
    cells: dict[str, list[Node]] = {}
    for node, (cell, _, _) in zip(there, rows, strict=True):
        cells.setdefault(f"c{cell}", []).append(node)
    waves = waves_of([(cell, tuple(members)) for cell, members in cells.items()], by)
    names = [name for wave in waves for name in wave]
    assert sorted(names) == [node.name for node in there]  # each node once
    assert all(waves)
    where = {name: number for number, wave in enumerate(waves) for name in wave}
    for one in there:
        assert len({where[other.name] for other in there if unit_of(other) == unit_of(one)}) == 1
    assert all(any(where[node.name] == 0 for node in members) for members in cells.values())
