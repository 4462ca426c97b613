"""Plans: what is refused and why, what the steps are, and the laws of ids, waves and staleness."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.core import planfile
from fleet.core.errors import BadInput, Refused
from fleet.core.model import (
    Accelerator,
    ComponentFact,
    Conflict,
    Facts,
    Hold,
    Node,
    OsFacts,
    Plan,
    Reason,
    Solution,
    Source,
    Stage,
    Step,
    VersionChange,
)
from fleet.core.plan import Candidate, make, moved, start_digest
from fleet.core.policy import PlanPolicy
from fleet.core.stages import after, flat, package_kind
from fleet.core.vendor import Change, Gathered, Reading, Vendor
from fleet.core.waves import waves_of

NOW = "2031-05-01T08:00:00Z"
POLICY = PlanPolicy(wish={"driver": ">=2"}, limits={"fleet": "25%"})


def steps(change: Change) -> tuple[Step, ...]:
    if "dcgm" in {c.component for c in change.changes}:
        raise Refused("acme has no dcgm")
    return (
        Step("preflight", arguments={"kind": change.package_kind}),
        Step("stop"),
        Step("install", changes=change.changes, artifacts=tuple(f"acme-{c.new}.run" for c in change.changes)),
    )


def vendor(make_steps: Callable[[Change], tuple[Step, ...]] = steps) -> Vendor:
    return Vendor(
        name="acme",
        title="Acme",
        pci_vendors=frozenset({"1ace"}),
        is_accelerator=lambda _device: True,
        modules=("acme",),
        schemes={},
        probes=(),
        read=lambda _command, _text, _rc: Reading("acme", "", "ok"),
        gather=lambda _seen: Gathered(),
        steps=make_steps,
        artifact=lambda _name: None,
    )


def facts(name: str, driver: str = "1.0", **more: Any) -> Facts:
    cards = tuple(Accelerator("acme", "A1", uuid=f"{name}-{i}") for i in range(2))
    base = Facts(name, OsFacts("ubuntu", "22.04", "5.15.0", "x86_64"), "acme", accelerators=cards)
    return replace(base, components={"driver": ComponentFact(installed=driver, loaded=driver)}, **more)


def hop(old: str, new: str, reboot: Any = "reboot") -> Stage:
    return Stage((VersionChange("driver", old, new),), reboot)


ANSWER = Solution(
    {"driver": "2.0"}, (hop("1.0", "2.0"),), (hop("2.0", "1.0"),),
    {"driver": (Reason("it fits", Source("A guide", "3", "2031-01-01")),)},
)  # fmt: skip


def candidate(name: str, **more: Any) -> Candidate:
    return Candidate(Node(name, "192.0.2.1"), facts(name), **{"answer": ANSWER, **more})


def plan(*candidates: Candidate, policy: PlanPolicy = POLICY, stored: bool = True, **more: Any) -> Plan:
    return make(candidates, {"acme": more.get("vendor", vendor())}, lambda _: stored, policy, "sha256:m", NOW)


def phases(stage: tuple[Step, ...]) -> list[str]:
    return [step.phase for step in stage]


def test_the_steps_there_and_back() -> None:
    group = plan(candidate("n1")).groups[0]
    assert phases(group.stages[0]) == [
        "preflight", "cordon", "drain", "stage", "stop", "install", "reboot", "verify", "validate", "uncordon",
    ]  # fmt: skip
    assert group.stages[0][0].artifacts == group.stages[0][3].artifacts == ("acme-2.0.run",)
    assert group.back is not None
    assert phases(group.back[0]) == ["stage", "stop", "install", "reboot", "verify", "validate", "uncordon"]
    assert group.back[0][2].changes == (VersionChange("driver", "2.0", "1.0"),)


def test_with_a_drain_the_look_comes_after_it() -> None:
    group = plan(candidate("n1"), policy=replace(POLICY, drained=True)).groups[0]
    assert phases(group.stages[0])[:4] == ["cordon", "drain", "preflight", "stage"]


def test_two_stages_are_looked_at_and_staged_once() -> None:
    answer = Solution({"driver": "3.0"}, (hop("1.0", "2.0"), hop("2.0", "3.0")), (hop("3.0", "1.0"),))
    group = plan(candidate("n1", answer=answer)).groups[0]
    assert [step.phase for step in flat(group.stages)].count("stage") == 1
    assert phases(group.stages[0])[-1] == "verify" and phases(group.stages[1])[-1] == "uncordon"
    assert group.stages[0][3].artifacts == ("acme-2.0.run", "acme-3.0.run")
    proven = [[c.new for step in stage if step.phase == "verify" for c in step.changes] for stage in group.stages]
    assert proven == [["2.0"], ["3.0"]]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Candidate(Node("n1", ""), None), "never probed"),
        (Candidate(Node("n1", "", hold=Hold("li", "repair")), facts("n1"), ANSWER), "held by li"),
        (Candidate(Node("n1", "", lifecycle="retired"), facts("n1"), ANSWER), "retired"),
        (Candidate(Node("n1", ""), facts("n1", vendor="")), "no accelerator of a known vendor"),
        (Candidate(Node("n1", ""), facts("n1", vendor="other")), "'other' is not known"),
        (Candidate(Node("n1", ""), facts("n1", accelerators=())), "no accelerator was identified"),
        (Candidate(Node("n1", ""), facts("n1"), Conflict((Reason("a and b clash"),))), "a and b clash"),
        (Candidate(Node("n1", ""), facts("n1"), refusal="two baselines"), "two baselines"),
        (candidate("n1", answer=replace(ANSWER, back=None)), "no way back"),
        (candidate("n1", answer=replace(ANSWER, road=(Stage((VersionChange("dcgm", None, "4"),)),))), "no dcgm"),
    ],
)
def test_a_refusal_has_its_reason(given: Candidate, words: str) -> None:
    made = plan(given)
    assert words in made.refusals["n1"]
    assert made.waves == () and made.groups == ()


def test_mixed_models_are_refused() -> None:
    mixed = facts("n1", accelerators=(Accelerator("acme", "A1"), Accelerator("acme", "A2")))
    assert "mixed models" in plan(Candidate(Node("n1", ""), mixed, ANSWER)).refusals["n1"]


def test_an_ended_hold_holds_nothing() -> None:
    held = Candidate(Node("n1", "", hold=Hold("li", "x", "2031-04-30T00:00:00Z")), facts("n1"), ANSWER)
    assert plan(held).refusals == {}
    later = Candidate(Node("n1", "", hold=Hold("li", "x", "2031-06-01")), facts("n1"), ANSWER)
    assert "until" in plan(later).refusals["n1"]


def test_artifacts_must_be_there_for_both_ways() -> None:
    assert "missing artifact acme-2.0.run" in plan(candidate("n1"), stored=False).refusals["n1"]
    only_new = make([candidate("n1")], {"acme": vendor()}, lambda n: n == "acme-2.0.run", POLICY, "m", NOW)
    assert "acme-1.0.run for the way back" in only_new.refusals["n1"]
    free = replace(POLICY, no_return=True)
    made = make([candidate("n1")], {"acme": vendor()}, lambda n: n == "acme-2.0.run", free, "m", NOW)
    assert made.groups[0].back is None and "no way back" in made.groups[0].reasons["back"][0].text


def test_what_cannot_be_undone_asks() -> None:
    def one_way(change: Change) -> tuple[Step, ...]:
        return (Step("firmware", changes=change.changes, undo=None),)

    assert "cannot be taken back" in plan(candidate("n1"), vendor=vendor(one_way)).refusals["n1"]


def test_a_node_that_is_there_is_in_no_wave() -> None:
    made = plan(candidate("n1", answer=replace(ANSWER, road=(), back=())), candidate("n2"))
    assert made.waves == (("n2",),)
    assert {group.nodes for group in made.groups} == {("n1",), ("n2",)}


def test_equal_nodes_share_a_group_and_others_do_not() -> None:
    other = Candidate(Node("n3", ""), facts("n3", os=OsFacts("openEuler", "22.03", "5.10", "x86_64")), ANSWER)
    made = plan(candidate("n1"), candidate("n2"), other)
    assert [group.nodes for group in made.groups] == [("n1", "n2"), ("n3",)]
    assert made.waves[0] == ("n1", "n3")
    assert made.groups[1].stages[0][0].arguments["kind"] == "rpm"
    assert package_kind(facts("x", flags={"package_kind": "rpm"})) == "rpm"


def test_the_id_is_of_the_content_and_nothing_else() -> None:
    one = plan(candidate("n1"), candidate("n2"))
    assert one.id == plan(candidate("n2"), candidate("n1")).id
    assert one.id != plan(candidate("n1")).id
    assert one.id != plan(candidate("n1"), candidate("n2"), policy=replace(POLICY, chunk=4)).id
    later = make(
        [candidate("n1"), candidate("n2")], {"acme": vendor()}, lambda _: True, POLICY, "sha256:m", "2040-01-01"
    )
    assert later.id == one.id


def test_a_plan_file_comes_back_and_an_edited_one_does_not() -> None:
    made = plan(candidate("n1"), candidate("n2", answer=Conflict((Reason("no"),))))
    text = json.dumps(planfile.dump(made))
    assert planfile.load(json.loads(text)) == made
    with pytest.raises(BadInput) as caught:
        planfile.load(json.loads(text.replace('"2.0"', '"2.1"')), "plan.json")
    assert (caught.value.slug, caught.value.where) == ("edited-plan", "plan.json")
    for broken in ({}, {"kind": "Solution"}, {"id": "p-1", "groups": [1]}, {"id": 1, "groups": None}):
        with pytest.raises(BadInput):
            planfile.load(broken)


def test_staleness_is_per_node() -> None:
    made = plan(candidate("n1"), candidate("n2"), candidate("n3"))
    now = {"n1": facts("n1"), "n2": facts("n2", driver="1.1"), "n3": facts("n3", driver="2.0")}
    assert moved(made, now, {"n3": frozenset({start_digest(now["n3"])})}) == ("n2",)
    swapped = replace(facts("n1"), accelerators=facts("other").accelerators)
    assert moved(made, {**now, "n1": swapped}, {}) == ("n1", "n2", "n3")
    assert start_digest(facts("n1", at="later", boot_id="x")) == start_digest(facts("n1"))


@given(st.dictionaries(st.sampled_from("abc"), st.sampled_from("123")), st.lists(
    st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.sampled_from("123"))), max_size=4))  # fmt: skip
def test_after_says_what_is_there(stack: dict[str, str], moves: list[tuple[str, str | None]]) -> None:
    changes = [VersionChange(name, None, new) for name, new in moves]
    out = after(stack, changes)
    for name, new in dict(moves).items():
        assert out.get(name) == new
    assert all(out[name] == stack[name] for name in stack if name not in dict(moves))


@given(
    st.lists(
        st.tuples(st.sampled_from(["r1", "r2", ""]), st.sampled_from(["", "", "d1", "d2"]), st.integers(0, 2)),
        max_size=40,
    )
)
def test_waves_hold_every_node_once_units_whole_and_canaries_first(rows: list[tuple[str, str, int]]) -> None:
    nodes = [(Node(f"n{i:02}", "", rack=r, nvlink_domain=d), c) for i, (r, d, c) in enumerate(rows)]
    cells = [(str(c), tuple(n for n, cell in nodes if cell == c)) for c in range(3)]
    waves = waves_of([cell for cell in cells if cell[1]])
    assert sorted(name for wave in waves for name in wave) == [node.name for node, _ in nodes]
    where = {name: number for number, wave in enumerate(waves) for name in wave}
    for domain in ("d1", "d2"):
        assert len({where[n.name] for n, _ in nodes if n.nvlink_domain == domain}) <= 1
    for cell, members in cells:
        assert not members or any(where[n.name] == 0 for n in members), cell
