"""Laws of a whole rollout under any outcomes, verdicts and requests: it never gets stuck, and units stay together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.core.gate import Sample, judge
from fleet.core.model import Group, Plan, Step, VersionChange
from fleet.core.move import (
    FINISHED,
    GOING_BACK,
    Begin,
    Change,
    Do,
    Finish,
    Halt,
    Judge,
    Request,
    Snapshot,
    Wait,
    asked_after,
    going_on,
)  # fmt: skip
from fleet.core.plan import sealed
from fleet.core.rollout import next_moves
from fleet.core.stages import SAFE_PHASES
from fleet.core.task import NodeTask, Outcome, advance, begin, failing, path, reopened, waits_for_person
from fleet.core.turning import condemned
from fleet.core.view import View, failure_limit, lost_early

UP, DOWN = (VersionChange("driver", "1", "2"),), (VersionChange("driver", "2", "1"),)
THERE = (
    Step("preflight"), Step("cordon"), Step("drain", limit_s=100), Step("stage"), Step("stop"),
    Step("install", changes=UP), Step("reboot"), Step("verify", changes=UP), Step("validate"),
    Step("uncordon", limit_s=100),
)  # fmt: skip
BACK = (Step("stage"), Step("install", changes=DOWN), Step("reboot"), Step("verify", changes=DOWN), Step("validate"),
        Step("uncordon", limit_s=100))  # fmt: skip
OUTCOMES = ["done"] * 12 + ["failed", "ambiguous", "waiting", "hands", "stale", "outage"]


@st.composite
def plans(draw: st.DrawFn) -> tuple[Plan, tuple[tuple[str, ...], ...]]:
    """A plan of one or two cells in a few waves, and some units within waves."""
    cells = draw(st.integers(1, 2))
    waves = [[f"w0c{c}n{i}" for c in range(cells) for i in range(draw(st.integers(1, 2)))]]
    for number in range(1, draw(st.integers(1, 3)) + 1):
        waves.append([f"w{number}c{c}n{i}" for c in range(cells) for i in range(draw(st.integers(0, 3)))])
    waves = [wave for wave in waves if wave]
    names = [name for wave in waves for name in wave]
    groups = tuple(
        Group(tuple(n for n in names if f"c{c}n" in n), "acme", f"A{c}", {"driver": "1"}, {"driver": "2"}, (THERE,),
              (BACK,) if draw(st.booleans()) or c == 0 else None)
        for c in range(cells)
    )  # fmt: skip
    units = tuple(
        tuple(n for n in wave if f"c{c}n" in n) for wave in waves for c in range(cells) if draw(st.booleans())
    )
    policy: dict[str, Any] = {
        "max_failures": draw(st.sampled_from(["0%", "13%", "100%"])), "chunk": 2,
        "soak_s": draw(st.sampled_from([0, 50])),
        "gate": draw(st.booleans()), "ignore_canary": draw(st.booleans()), "revisits": 1, "revisit_s": 200,
    }  # fmt: skip
    made = Plan("", groups, tuple(map(tuple, waves)), {}, dict.fromkeys(names, ""), "m", policy)
    return sealed(made), tuple(unit for unit in units if len(unit) > 1)


class Run:
    """A rollout in memory: every outcome, verdict and request is drawn."""

    def __init__(self, data: st.DataObject, made: Plan, units: tuple[tuple[str, ...], ...]) -> None:
        self.data = data
        self.plan = made
        where = {name: number for number, g in enumerate(made.groups) for name in g.nodes}
        tasks = tuple(NodeTask(n, where[n], w) for w, wave in enumerate(made.waves) for n in wave)
        self.snapshot = Snapshot(made, "running", tasks, units=units)
        self.now = 0.0
        self.full = 5
        self.changed: set[str] = set()  # nodes on which a step outside the safe phases was done, and not undone since

    def __str__(self) -> str:
        of = self.snapshot
        rows = [(t.node, t.state, t.direction, t.cursor, t.reason, t.revisits) for t in of.tasks]
        return f"{of.state} {of.request!r} at {self.now}: {rows} {of.gates} {of.units} {dict(self.plan.policy)}"

    def tasks(self) -> dict[str, NodeTask]:
        return {task.node: task for task in self.snapshot.tasks}

    def outcome(self) -> Outcome:
        said = self.data.draw(st.sampled_from(OUTCOMES))
        if said == "outage":
            return Outcome("waiting", "no scheduler", outage=True)
        return Outcome(said, "drawn")  # type: ignore[arg-type]  # one of the results

    def round(self) -> bool:
        """One round; whether anything moved."""
        moves = next_moves(self.snapshot, self.now)
        by_node = self.tasks()
        for move in moves:
            match move:
                case Begin(units):
                    self.begins(units, by_node)
                case Do(nodes):
                    for name in nodes:
                        self.does(by_node, name, move)
                case Change(task):
                    by_node[task.node] = task
                case Judge(wave, treated, control):
                    found = st.sampled_from(["well"] * 6 + ["ill", "unknown"])
                    seen = [n for some in (*treated.values(), *control.values()) for n in some]
                    look: dict[str, Any] = {n: self.data.draw(found) for n in seen}
                    said = {
                        cell: judge([Sample(n, look[n]) for n in names], [Sample(n, look[n]) for n in control[cell]],
                                    canary=wave == 0)
                        for cell, names in treated.items()
                    }  # fmt: skip
                    gates = {**self.snapshot.gates, wave: {**self.snapshot.gates.get(wave, {}), **said}}
                    self.snapshot = replace(self.snapshot, gates=gates)
                case Halt(reason):
                    assert reason
                    self.snapshot = replace(self.snapshot, state="paused")
                case Finish(state):
                    self.snapshot = replace(self.snapshot, state=state)
                case Wait(reason):
                    assert reason
        self.snapshot = replace(self.snapshot, tasks=tuple(by_node.values()))
        return any(not isinstance(move, Wait | Halt) for move in moves)

    def begins(self, units: tuple[tuple[str, ...], ...], by_node: dict[str, NodeTask]) -> None:
        forward = [by_node[n] for unit in units for n in unit if by_node[n].direction == "forward"]
        if forward:
            assert sum(map(failing, self.snapshot.tasks)) <= failure_limit(self.plan, self.snapshot.forgiven)
            assert not self.snapshot.request
        for task in forward:
            assert all(t.ended or t.revisits or t.direction == "return" or waits_for_person(t) or
                       self.parked(t, by_node) for t in by_node.values() if t.wave < task.wave), task  # fmt: skip
            for wave, said in self.snapshot.gates.items():
                if wave < task.wave:
                    assert all(j.open or lost_early(wave, j) for j in said.values())
        for unit in units:
            for name in unit:
                full = self.full > 0 and len(unit) == 1 and self.data.draw(st.booleans())
                self.full -= full  # now and then no place is free
                if not full:
                    by_node[name] = begin(self.plan.groups[by_node[name].group], by_node[name], self.now)

    @staticmethod
    def parked(task: NodeTask, by_node: dict[str, NodeTask]) -> bool:
        """Whether the canary of its cell waits."""
        return any(t.wave == 0 and t.group == task.group and ((t.queued and t.revisits) or waits_for_person(t))
                   for t in by_node.values())  # fmt: skip

    def does(self, by_node: dict[str, NodeTask], name: str, move: Do) -> None:
        task = by_node[name]
        if move.step.phase not in SAFE_PHASES and move.step.phase != "uncordon":
            mates = next((unit for unit in self.snapshot.units if name in unit), ())
            for mate in mates:  # nothing is changed while one of them may still have jobs
                other = by_node[mate]
                if other.direction == "forward" and other.begun and move.direction == "forward":
                    before = path(self.plan.groups[other.group], "forward")[: other.cursor]
                    assert any(step.phase == "stage" for step in before), (task, other)
        by_node[name] = advance(self.plan.groups[task.group], task, self.outcome(), self.now)

    def ask(self) -> None:
        wants: tuple[Request, ...] = ("pause", "abort", "rollback", "kill")
        request = asked_after(self.snapshot.request, self.data.draw(st.sampled_from(wants)))
        self.snapshot = replace(self.snapshot, request=request)

    def resume(self) -> None:
        tasks = tuple(reopened(self.plan.groups[t.group], t, self.now) for t in self.snapshot.tasks)
        gates = {
            wave: {cell: replace(j, accepted=not lost_early(wave, j)) for cell, j in said.items()}
            for wave, said in self.snapshot.gates.items()
        }
        request = going_on(self.snapshot.request)
        assert (request in GOING_BACK) == (self.snapshot.request in GOING_BACK)
        self.snapshot = replace(self.snapshot, state="running", request=request, tasks=tasks, gates=gates,
                                forgiven=sum(map(failing, tasks)))  # fmt: skip


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.data(), plans())
def test_it_always_comes_to_rest(data: st.DataObject, made: tuple[Plan, tuple[tuple[str, ...], ...]]) -> None:
    run = Run(data, *made)
    asked, idle, resumed = data.draw(st.sets(st.integers(0, 60), max_size=3)), 0, 0
    for number in range(1500):
        if number in asked:
            run.ask()
        idle = 0 if run.round() else idle + 1
        assert idle < 12, f"stuck: {run}"
        run.now += 30.0
        if run.snapshot.state in FINISHED:
            break
        if run.snapshot.state == "paused" and idle and run.snapshot.request != "abort":
            resumed += 1
            run.resume()
    tasks = run.snapshot.tasks
    assert run.snapshot.state in FINISHED, f"never over: {run}"
    assert all(task.ended and not waits_for_person(task) for task in tasks)
    ill = [task for task in tasks if task.state in ("failed", "held", "rolled-back")]
    assert all(task.owner and task.reason for task in ill), f"nobody's: {run}"
    if run.snapshot.state == "done":
        assert {task.state for task in tasks} == {"done"}
    if run.snapshot.state == "rolled-back":
        assert "done" not in {task.state for task in tasks}


def test_thousands_of_failures_are_looked_through_once() -> None:
    names = tuple(f"n{i}" for i in range(300))
    group = Group(names, "acme", "A", {"driver": "1"}, {"driver": "2"}, (THERE,), (BACK,))
    made = sealed(Plan("", (group,), (names[:1], names[1:]), {}, dict.fromkeys(names, ""), "m", {}))
    tasks = [NodeTask(name, 0, min(number, 1)) for number, name in enumerate(names)]
    failed = [replace(task, state="failed", cursor=5) if task.wave else task for task in tasks]

    class Counting(View):
        looks = 0

        def current(self) -> int:
            self.looks += 1
            return super().current()

    view = Counting(Snapshot(made, "running", tuple(failed)), 0.0)
    assert list(condemned(view)) == [] and view.stopped()
    assert view.looks <= 1
