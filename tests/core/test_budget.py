"""Laws of the nested budgets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.core.budget import FLEET, Domain, Limit, admit, domains, fits, known_kind, unavailable
from fleet.core.errors import BadInput
from fleet.core.model import Accelerator, Facts, Hold, Lifecycle, Node, OsFacts


def node(name: str, rack: str = "", lifecycle: Lifecycle = "ready", labels: dict[str, str] | None = None) -> Node:
    return Node(name, "192.0.2.1", rack=rack, lifecycle=lifecycle, labels=labels or {})


def test_limits_are_read_and_written() -> None:
    assert Limit.parse("25%") == Limit("percent", 25)
    assert str(Limit.parse(" 3 ")) == "3"
    for bad in ("", "-1", "101%", "x", "2.5", "٣"):
        with pytest.raises(BadInput):
            Limit.parse(bad)


@pytest.mark.parametrize(
    ("text", "total", "allowed"),
    [("25%", 8, 2), ("25%", 2, 1), ("0%", 100, 0), ("100%", 3, 3), ("5", 3, 3), ("0", 3, 0), ("10%", 19, 1)],
)
def test_what_a_limit_allows(text: str, total: int, allowed: int) -> None:
    assert Limit.parse(text).of(total) == allowed


def test_kinds_of_domains() -> None:
    one = node("a", rack="r1", labels={"queue": "train"})
    assert domains(one, [FLEET, "rack", "leaf", "label:queue"]) == (
        Domain(FLEET, FLEET),
        Domain("rack", "r1"),
        Domain("label:queue", "train"),
    )
    assert known_kind("superpod") and known_kind("label:x") and not known_kind("label:") and not known_kind("room")


def test_why_a_node_is_out() -> None:
    now = "2031-05-01T08:00:00Z"
    assert unavailable(node("a"), None, now) == ""
    assert "broken" in unavailable(node("a", lifecycle="broken"), None, now)
    assert "repair" in unavailable(Node("a", "", hold=Hold("li", "repair")), None, now)
    sick = Facts("a", OsFacts(), accelerators=(Accelerator("acme", "A1", uuid="u1", health="lost"),))
    assert "u1 is lost" in unavailable(node("a"), sick, now)


@pytest.mark.parametrize(
    ("until", "counts"),
    [("", True), ("2031-05-01T08:00:01Z", True), ("2031-05-01T08:00:00Z", False), ("2031-05-01", False),
     ("2031-05-01T09:00:00+02:00", False), ("some day", True)],
)  # fmt: skip
def test_a_hold_ends_by_itself(until: str, counts: bool) -> None:
    held = Node("a", "", hold=Hold("li", "repair", until))
    assert bool(unavailable(held, None, "2031-05-01T08:00:00Z")) is counts


def test_a_unit_larger_than_its_limit_never_fits() -> None:
    nodes = {n.name: n for n in (node("a", "r1"), node("b", "r1"), node("c", "r2"))}
    verdict = fits({"rack": Limit.parse("1")}, nodes, (), ("a", "b"))
    assert verdict.never and "rack r1" in verdict.reason


def test_a_node_that_is_out_costs_nothing() -> None:
    nodes = {n.name: n for n in (node("a", lifecycle="broken"), node("b"))}
    assert fits({FLEET: Limit.parse("1")}, nodes, ("a",), ("a",)).ok
    assert not fits({FLEET: Limit.parse("1")}, nodes, ("a",), ("b",)).ok


LIMITS = st.dictionaries(
    st.sampled_from([FLEET, "rack", "site"]),
    st.builds(lambda p, v: Limit("percent" if p else "absolute", v), st.booleans(), st.integers(0, 100)),
    min_size=1,
)
FLEETS = st.lists(st.tuples(st.sampled_from(["r1", "r2", "r3", ""]), st.sampled_from(["s1", "s2"])), max_size=14).map(
    lambda rows: {f"n{i}": Node(f"n{i}", "", rack=r, site=s, lifecycle="ready") for i, (r, s) in enumerate(rows)}
)


@given(LIMITS, FLEETS, st.data())
def test_no_budget_is_ever_exceeded(limits: dict[str, Limit], nodes: dict[str, Node], data: st.DataObject) -> None:
    names = sorted(nodes)
    out = set(data.draw(st.lists(st.sampled_from(names))) if names else [])
    order = data.draw(st.permutations(names))
    size = data.draw(st.integers(1, 3))
    units = [tuple(order[i : i + size]) for i in range(0, len(order), size)]
    admitted, refused = admit(limits, nodes, out, units)
    taken = {name for unit in admitted for name in unit}
    assert taken | set(refused) == set(names)
    for kind, limit in limits.items():
        for domain in {d for n in nodes.values() for d in domains(n, [kind])}:
            inside = {name for name, n in nodes.items() if domain in domains(n, [kind])}
            before = len(inside & out)
            after = len(inside & (out | taken))
            assert after <= max(before, limit.of(len(inside)))


@given(LIMITS, FLEETS, st.data())
def test_fewer_out_never_refuses_more(limits: dict[str, Limit], nodes: dict[str, Node], data: st.DataObject) -> None:
    names = sorted(nodes)
    if not names:
        return
    out = set(data.draw(st.lists(st.sampled_from(names))))
    fewer = out - {data.draw(st.sampled_from(names))}
    wanted = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    if fits(limits, nodes, out, wanted).ok and not set(wanted) & (out - fewer):
        assert fits(limits, nodes, fewer, wanted).ok
