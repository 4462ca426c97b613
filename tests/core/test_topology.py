"""What fails together."""

from __future__ import annotations

from fleet.core.model import Node
from fleet.core.topology import domains, whole

NODES = [
    Node("a1", "a1", site="bj", rack="r1", leaf="l1"),
    Node("a2", "a2", site="bj", rack="r1", leaf="l1"),
    Node("b1", "b1", site="bj", rack="r2", leaf="l1"),
    Node("c1", "c1", rack="r3"),
    Node("d1", "d1"),
]


def test_every_domain_with_its_members() -> None:
    assert [(str(domain), sorted(domain.members)) for domain in domains(NODES)] == [
        ("site bj", ["a1", "a2", "b1"]),
        ("rack r1", ["a1", "a2"]),
        ("rack r2", ["b1"]),
        ("rack r3", ["c1"]),
        ("leaf l1", ["a1", "a2", "b1"]),
    ]


def test_a_whole_domain_is_named_once_and_by_its_largest() -> None:
    assert [str(domain) for domain in whole(["a1", "a2"], NODES)] == ["rack r1"]
    assert [str(domain) for domain in whole(["a1", "a2", "b1", "d1"], NODES)] == ["site bj"]
    assert whole(["a1", "b1", "c1", "d1"], NODES) == []  # a rack of one node says nothing
