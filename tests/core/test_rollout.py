"""The laws of a rollout, over every order of outcomes that hypothesis finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.core.gate import Sample, judge
from fleet.core.model import Group, Plan, Step, VersionChange
from fleet.core.move import Begin, Change, Do, Finish, Halt, Judge, Snapshot, summary
from fleet.core.plan import sealed
from fleet.core.rollout import next_moves
from fleet.core.task import (
    ENDS,
    STATES,
    TRIES,
    NodeTask,
    Outcome,
    Result,
    advance,
    begin,
    failing,
    path,
    reopened,
    step_of,
    turn,
    waits_for_person,
)
from fleet.core.view import failure_limit

UP = (VersionChange("driver", "1", "2"),)
DOWN = (VersionChange("driver", "2", "1"),)
THERE = (
    Step("preflight"), Step("cordon"), Step("drain", limit_s=100), Step("stage"), Step("stop"),
    Step("install", changes=UP), Step("reboot"), Step("verify", changes=UP), Step("validate"), Step("uncordon"),
)  # fmt: skip
BACK = (Step("stage"), Step("install", changes=DOWN), Step("reboot"), Step("verify", changes=DOWN), Step("validate"),
        Step("uncordon"))  # fmt: skip


def group(*names: str, back: Any = (BACK,), **more: Any) -> Group:
    return Group(names, "acme", more.pop("model", "A1"), {"driver": "1"}, {"driver": "2"}, (THERE,), back)


def plan(*waves: tuple[str, ...], groups: tuple[Group, ...] = (), **policy: Any) -> Plan:
    names = tuple(name for wave in waves for name in wave)
    rules = {"max_failures": "13%", "chunk": 4, **policy}
    return sealed(Plan("", groups or (group(*names),), waves, {}, dict.fromkeys(names, ""), "m", rules))


def tasks(made: Plan) -> tuple[NodeTask, ...]:
    where = {name: number for number, g in enumerate(made.groups) for name in g.nodes}
    return tuple(NodeTask(n, where[n], w) for w, wave in enumerate(made.waves) for n in wave)


def well(node: str) -> Sample:
    return Sample(node, "well")


def run(
    made: Plan,
    outcome: Callable[[NodeTask, Step], Outcome],
    limit: int = 3000,
    look: Callable[[str], Sample] = well,
    **more: Any,
) -> tuple[Snapshot, list[Any]]:
    """Carry a plan out in memory, every node getting `outcome`; the last snapshot and all that happened."""
    snapshot = Snapshot(made, "running", tasks(made), **more)
    log: list[Any] = []
    for now in range(limit):
        moves = next_moves(snapshot, float(now))
        log += moves
        by_name = {task.node: task for task in snapshot.tasks}
        for move in moves:
            match move:
                case Begin(units):
                    for name in [name for unit in units for name in unit]:
                        by_name[name] = begin(made.groups[by_name[name].group], by_name[name], float(now))
                case Do(nodes):
                    for name in nodes:
                        task = by_name[name]
                        by_name[name] = advance(made.groups[task.group], task, outcome(task, move.step), float(now))
                case Change(task):
                    by_name[task.node] = task
                case Judge(wave, treated, control):
                    said = {
                        cell: judge([look(n) for n in names], [look(n) for n in control[cell]], canary=wave == 0)
                        for cell, names in treated.items()
                    }
                    snapshot = replace(
                        snapshot, gates={**snapshot.gates, wave: {**snapshot.gates.get(wave, {}), **said}}
                    )
                case Halt():
                    return replace(snapshot, state="paused", tasks=tuple(by_name.values())), log
                case Finish(state):
                    return replace(snapshot, state=state, tasks=tuple(by_name.values())), log
        snapshot = replace(snapshot, tasks=tuple(by_name.values()))
    raise AssertionError("it never rested")


def always(result: Result) -> Callable[[NodeTask, Step], Outcome]:
    return lambda _task, _step: Outcome(result, "because")


def test_all_go_the_whole_way() -> None:
    made = plan(("a",), ("b", "c", "d", "e", "f", "g"))
    end, log = run(made, always("done"))
    assert end.state == "done" and {t.state for t in end.tasks} == {"done"}
    dos = [move for move in log if isinstance(move, Do)]
    assert {len(m.nodes) for m in dos if "a" in m.nodes} == {1}
    assert max(len(m.nodes) for m in dos) == 4
    assert str(summary(end.tasks)) == "7 done"


@pytest.mark.parametrize("cursor", range(len(THERE)))
def test_a_failure_at_each_step_ends_where_it_must(cursor: int) -> None:
    made = plan(("a",))

    def fail(task: NodeTask, step: Step) -> Outcome:
        bad = task.direction == "forward" and step == THERE[cursor] and task.cursor == cursor
        return Outcome("failed" if bad else "done", "broke" if bad else "")

    end, _ = run(made, fail)
    wanted = "failed" if cursor < 4 or cursor == 9 else "rolled-back"
    assert end.tasks[0].state == wanted
    assert "broke" in end.tasks[0].reason
    assert end.tasks[0].direction == ("leave" if cursor < 4 else "forward" if cursor == 9 else "back")


def test_without_a_way_back_the_node_is_failed_and_says_so() -> None:
    made = plan(("a",), groups=(group("a", back=None),))
    end, _ = run(made, lambda _t, s: Outcome("failed" if s.phase == "verify" else "done", "not loaded"))
    assert end.tasks[0].state == "failed" and "no way back" in end.tasks[0].reason
    assert end.tasks[0].owner and end.tasks[0].next_action


def test_a_failing_way_back_names_both_reasons() -> None:
    made = plan(("a",))
    end, _ = run(made, lambda _t, s: Outcome("failed" if s.phase == "validate" else "done", "sick"))
    assert end.tasks[0].state == "failed" and "the way back failed too" in end.tasks[0].reason


def test_ambiguous_is_tried_again_then_failed_and_one_way_asks_a_person() -> None:
    made = plan(("a",))
    asked: list[str] = []

    def lost(task: NodeTask, step: Step) -> Outcome:
        if task.direction == "forward" and step.phase == "install":
            asked.append(task.open)
            return Outcome("ambiguous", "connection lost")
        return Outcome("done")

    end, _ = run(made, lost)
    assert len(asked) == TRIES and asked[1:] == ["ambiguous"] * (TRIES - 1)
    assert end.tasks[0].state == "rolled-back"
    stages = (tuple(replace(s, effect="one_way") if s.phase == "install" else s for s in THERE),)
    made = plan(("a",), groups=(replace(group("a"), stages=stages),))
    end, _ = run(made, lost)
    held = end.tasks[0]
    assert (end.state, held.state, held.open) == ("paused", "held", "ambiguous") and held.next_action
    again = reopened(made.groups[0], held, 5.0)
    assert (again.state, again.open, step_of(made.groups[0], again)) == ("installing", "intent", stages[0][5])


def test_the_rest_of_a_failed_canarys_cell_is_held_and_other_cells_go_on() -> None:
    made = plan(("a", "x"), ("b", "y"), groups=(group("a", "b"), group("x", "y", model="A2")), max_failures="50%")
    end, _ = run(made, lambda t, s: Outcome("failed" if t.node == "a" and s.phase == "validate" else "done"))
    assert {t.node: t.state for t in end.tasks}["b"] == "held"
    assert {t.node: t.state for t in end.tasks}["y"] == "done"
    free = plan(("a",), ("b",), ignore_canary=True, max_failures="100%")
    end, _ = run(free, lambda t, s: Outcome("failed" if t.node == "a" and s.phase == "preflight" else "done"))
    assert {t.node: t.state for t in end.tasks} == {"a": "failed", "b": "done"}


def test_a_drain_that_does_not_end_gives_the_node_back() -> None:
    g = group("a")
    task = replace(begin(g, NodeTask("a", 0, 0), 0.0), cursor=2, state="draining", limit_s=100)
    waiting = advance(g, task, Outcome("waiting", "2 jobs"), 50.0)
    assert (waiting.state, waiting.reason) == ("draining", "2 jobs")
    late = advance(g, waiting, Outcome("waiting", "2 jobs"), 101.0)
    assert (late.state, late.direction) == ("uncordoning", "leave") and "did not end" in late.reason


def test_pause_begins_nothing_and_abort_takes_back() -> None:
    made = plan(("a",), ("b", "c"))
    g = made.groups[0]
    begun = replace(begin(g, NodeTask("a", 0, 0), 0.0), cursor=5, state="installing")
    rest = (NodeTask("b", 0, 1), NodeTask("c", 0, 1))
    paused = next_moves(Snapshot(made, "running", (begun, *rest), "pause"), 1.0)
    assert [type(m) for m in paused] == [Do]
    idle = next_moves(Snapshot(made, "running", (replace(begun, state="done"), *rest), "pause"), 1.0)
    assert idle == (Halt("paused by the operator"),)
    moves = next_moves(Snapshot(made, "running", (begun, *rest), "abort"), 1.0)
    changed = {m.task.node: m.task for m in moves if isinstance(m, Change)}
    assert (changed["a"].direction, changed["b"].state, changed["c"].state) == ("back", "held", "held")
    busy = next_moves(Snapshot(made, "running", (begun,), "abort", busy=frozenset({"a"})), 1.0)
    assert busy == ()


def test_units_begin_together_and_a_finished_rollout_is_left_alone() -> None:
    made = plan(("a", "b", "c"))
    moves = next_moves(Snapshot(made, "running", tasks(made), units=(("a", "c"),)), 0.0)
    assert moves == (Begin((("a", "c"), ("b",))),)
    assert next_moves(Snapshot(made, "done", tasks(made)), 0.0) == ()


def test_turning_before_the_first_step_holds() -> None:
    assert turn(group("a"), NodeTask("a", 0, 0), "aborted", 1.0).state == "held"


RESULTS = st.sampled_from(["done", "done", "done", "done", "already", "failed", "ambiguous", "stale", "hands"])


@settings(max_examples=150, deadline=None)
@given(st.data(), st.lists(st.integers(1, 4), min_size=1, max_size=3), st.sampled_from(["0%", "13%", "50%", "2"]))
def test_whatever_happens_it_rests_in_order_and_within_its_failures(
    data: st.DataObject, sizes: list[int], limit: str
) -> None:
    names = iter("abcdefghijklmnop")
    waves = tuple(tuple(next(names) for _ in range(size)) for size in sizes)
    made = plan(*waves, max_failures=limit)
    begun: list[int] = []

    def outcome(task: NodeTask, step: Step) -> Outcome:
        assert path(made.groups[0], task.direction)[task.cursor] == step
        assert task.state in STATES and task.state not in ENDS
        return Outcome(data.draw(RESULTS), "drawn")  # type: ignore[arg-type]

    end, log = run(made, outcome)
    snapshot = Snapshot(made, "running", tasks(made))
    assert all(t.ended or t.cursor < 0 for t in end.tasks)
    assert all(t.owner for t in end.tasks if t.state in ("failed", "held", "rolled-back"))
    seen: set[str] = set()  # one that begins again is on its way back
    for move in log:
        if isinstance(move, Begin) and (fresh := {n for unit in move.units for n in unit} - seen):
            seen |= fresh
            numbers = {t.wave for t in snapshot.tasks if t.node in fresh}
            assert len(numbers) == 1
            begun.append(numbers.pop())
    assert begun == sorted(begun)
    waiting = [t for t in end.tasks if not t.ended]
    if waiting:
        assert end.state == "paused"
        assert sum(map(failing, end.tasks)) > failure_limit(made) or any(map(waits_for_person, end.tasks))


@pytest.mark.parametrize(
    ("reason", "state"),
    [
        ("hands: it needs a power cycle", "back"),
        ("hands: identity-changed: other cards answer", "failed"),
        ("hands: key-changed: another host key", "failed"),
    ],
)
def test_an_abort_changes_nothing_on_what_may_be_another_machine(reason: str, state: str) -> None:
    made = plan(("a",))
    held = replace(tasks(made)[0], state="held", cursor=7, reason=reason, owner="operator", next_action="look")
    (move,) = next_moves(Snapshot(made, "paused", (held,), "abort"), 1.0)
    assert isinstance(move, Change)
    assert state == (move.task.state if move.task.ended else move.task.direction)
    assert "aborted by the operator" in move.task.reason and reason in move.task.reason


def test_what_a_person_takes_back_is_no_failure_of_the_node() -> None:
    for why, fails in (("rolled back by the operator", False), ("aborted by the operator", False), ("dkms", True)):
        task = NodeTask("a", 0, 0, "installing", direction="back", cursor=0, reason=why)
        assert failing(task) == failing(replace(task, state="rolled-back")) == fails
        assert failing(replace(task, state="failed"))
