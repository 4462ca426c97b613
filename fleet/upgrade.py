"""The acting loop of a rollout: snapshot -> next moves -> write the intent -> do the step -> write what came of it.

`tick` is what an engine calls. It decides nothing by itself: `fleet.core.rollout` does, from the stored rows. Steps on
different groups of nodes run side by side in threads; everything that is stored is stored from the calling thread,
under the lease. A process may die at any instruction: what it left is an intent without a result, which the next one
takes up (see `fleet.step`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace

from fleet.act import Act, Cut, Did, Hands, Subject
from fleet.aftermath import Running, anew, evidence_of, lifecycle, result_of
from fleet.core.budget import OUT_OF_SERVICE, Verdict, limits_of
from fleet.core.errors import FleetError
from fleet.core.model import Node, Plan
from fleet.core.move import KILLING, Begin, Change, Do, Finish, Halt, Judge, RolloutState, Wait
from fleet.core.rollout import next_moves
from fleet.core.task import NodeTask, Outcome, advance, begin, no_place, waits_for_person
from fleet.engine import Progress
from fleet.evidence import EvidenceStore, Origin
from fleet.inventory.rollouts import Fenced, Lease, Rollouts, Stored
from fleet.judging import Judging
from fleet.places import Book, Places, no_place_because
from fleet.snapshot import snapshot_of
from fleet.step import do
from fleet.telling import Telling, Transition, trace

POLL_S = 5.0  # between two looks at something that takes its time: a drain, a full budget


class Upgrade:
    """Carries out a rollout, or several by turns; `close` waits for the steps under way."""

    def __init__(
        self,
        store: Rollouts,
        book: Book,
        hands: Hands,
        evidence: EvidenceStore,
        *,
        origin: Origin = "hardware",
        operator: str = "",
        parallel: int = 4,
        poll_s: float = POLL_S,
        watch: Callable[[Transition], None] = lambda _: None,
    ) -> None:
        self.store = store
        self.book = book
        self.hands = hands
        self.evidence = evidence
        self.origin = origin
        self.operator = operator
        self.parallel = parallel
        self.poll_s = poll_s
        self._pool = ThreadPoolExecutor(max_workers=parallel, thread_name_prefix="step")
        self._running: dict[str, list[Running]] = {}
        self._later: dict[tuple[str, str], float] = {}  # (rollout, node) -> not to be asked again before
        self._plans: dict[str, Plan] = {}
        self._full: dict[str, float] = {}  # rollout -> no place is asked for before, unless one of its own comes free
        self._cut: dict[str, threading.Event] = {}  # rollout -> set when it is killed
        self.places = Places(store, book, poll_s)
        self.telling = Telling(evidence, origin, hands.now, watch)
        self.judging = Judging(store, book, self._pool, self.telling, poll_s)

    def close(self) -> None:
        """Wait for the steps under way. Their results are lost to the tables and found again by the next process."""
        self._pool.shutdown(wait=True)

    # --- the tick -------------------------------------------------------------------------------------------------

    def tick(self, rollout: str, lease: Lease, ending: bool) -> Progress:
        """One round. With `ending` nothing new is begun. Raises Fenced when another process has taken over."""
        self._collect(rollout, lease, block=False)
        row = self.store.rollout(rollout)
        running = self._running.setdefault(rollout, [])
        if row.finished:
            return Progress(resting=True)
        if row.request in KILLING:
            self._cut.setdefault(rollout, threading.Event()).set()
            self._collect(rollout, lease, block=True)
        else:
            self._cut.pop(rollout, None)
        if ending:
            self._collect(rollout, lease, block=True)
            busy = bool(self._running[rollout])
            return Progress(resting=not busy, busy=busy)
        plan, tasks = self.plan(row.plan), self.store.tasks(rollout)
        self._settle(rollout, lease, tasks)
        now = self.hands.clock()
        for place in [place for place, until in list(self._later.items()) if until <= now]:
            self._later.pop(place, None)
        held_up = {name for of, name in self._later if of == rollout}
        at_work = frozenset(held_up | {name for run in running for name in run.tasks})
        judging = self.judging.busy(rollout, now)
        snapshot = snapshot_of(self.store, row, plan, tasks, at_work, now, judging=judging)
        moves = next_moves(snapshot, now)
        changed = [move.task for move in moves if isinstance(move, Change)]
        if changed:  # thousands at once, when a canary fails
            self._put(rollout, lease, tasks, changed)
        moved, blocked = bool(changed), False
        waits = ""
        todo: list[Do] = []
        for move in moves:
            match move:
                case Begin() if self._full.get(rollout, 0.0) > now:
                    blocked = True
                case Begin():
                    began, blocked = self._begin(rollout, lease, plan, tasks, move, running)
                    moved = moved or began
                case Do():
                    todo.append(move)
                case Judge() if not self.judging.looking(rollout):
                    self.judging.look(self.hands, rollout, move, tasks)
                case Judge():
                    pass
                case Wait(reason):
                    waits = "" if reason.startswith("gate:") else reason  # a look takes seconds
                    self.telling.once(rollout, f"waiting: {reason}")
                case Halt(reason) if row.state != "paused" or reason != row.reason:
                    self._state(rollout, lease, "paused", reason)
                case Halt():
                    pass
                case Finish(state, reason):
                    over = self._finish(rollout, lease, state, reason)
                    return Progress(resting=over, wait_s=0.0 if over else self.poll_s)
        if row.state == "running" and waits != row.reason and (waits or moved or todo):
            self.store.set_reason(lease, waits)
        for move in todo:
            if len(running) < self.parallel:
                self._launch(rollout, lease, plan, tasks, move, running)
        if self._collect(rollout, lease, block=True) or moved:
            return Progress(resting=False, busy=bool(self._running[rollout]))
        looking = self.judging.looking(rollout)
        if running or held_up or blocked or looking:
            soon = 0.0 if running else min(self.poll_s, 0.5) if looking else self.poll_s
            return Progress(resting=False, wait_s=soon, busy=bool(running))
        after = self.store.rollout(rollout)  # what was asked meanwhile is obeyed before it rests
        return Progress(resting=after.state != "running" and after.request == row.request, wait_s=self.poll_s)

    def plan(self, plan: str) -> Plan:
        """A stored plan by its id, read once."""
        if plan not in self._plans:
            self._plans[plan] = self.store.plan(plan)
        return self._plans[plan]

    def _begin(
        self,
        rollout: str,
        lease: Lease,
        plan: Plan,
        tasks: Mapping[str, Stored],
        move: Begin,
        running: Sequence[Running],
    ) -> tuple[bool, bool]:
        """Claim places and begin the nodes that got one: (some began, some wait for a place)."""
        chunk = int(str(plan.policy.get("chunk", 16)))
        at_work = sum(s.task.begun for s in tasks.values())
        wanted = move.units[: max(1, self.parallel * chunk - at_work)]
        fresh = self.places.nodes({name for unit in wanted for name in unit})
        if self._on_hold(rollout, lease, tasks, fresh):
            return True, False
        limits = limits_of(plan.policy)
        now = self.hands.clock()
        try:
            admitted, refused = self.places.claim(self.hands, lease, wanted, limits)
        except FleetError as error:  # no place is known to be free
            said = f"scheduler: {error.what}" + (f": {error.cause}" if error.cause else "")
            self.telling.once(rollout, f"waiting: {said}")
            self.store.set_reason(lease, f"{said}; next: {error.hint}")
            self._full[rollout] = self.hands.clock() + self.poll_s
            return False, True
        names = [name for unit in admitted for name in unit]
        if names:
            rows = []
            for name in names:
                stored = tasks[name]
                node = fresh[name]
                prior = anew(stored, node.lifecycle if node is not None else "ready")
                rows.append((begin(plan.groups[stored.task.group], stored.task, now), prior, None))
            self.store.set_wave(lease, min(tasks[name].task.wave for name in names), began=now)
            self.store.put(lease, rows)
            self.book.set_lifecycle(names, "maintenance")
            for task, _, _ in rows:
                self.telling.say(rollout, task.node, "waiting", task.state, "begin", "begun", "")
        self._blocked(rollout, lease, tasks, refused, alone=not names and not at_work and not running)
        self._full[rollout] = now + self.poll_s if refused else 0.0
        return bool(names), bool(refused)

    def _on_hold(
        self, rollout: str, lease: Lease, tasks: Mapping[str, Stored], wanted: Mapping[str, Node | None]
    ) -> bool:
        """End the part of nodes that a person has put on hold, or taken away, since they were planned."""
        ended, now, at = [], self.hands.clock(), self.hands.now()
        for name, node in wanted.items():
            if node is None:
                reason = "removed: it is no longer in the inventory"
            elif tasks[name].task.direction == "return":
                continue  # a person or a gate has decided that it goes back
            elif node.lifecycle == "retired":
                reason = "retired: it is no longer in use"
            elif node.hold is not None and node.hold.in_force(at):
                reason = f"hold: {node.hold.who}: {node.hold.why}"
            else:
                continue
            ended.append(
                replace(tasks[name].task, state="held", since=now, reason=reason, owner=self.operator or "operator")
            )
        self._put(rollout, lease, tasks, ended)
        return bool(ended)

    def _blocked(
        self, rollout: str, lease: Lease, tasks: Mapping[str, Stored], refused: Mapping[str, Verdict], *, alone: bool
    ) -> None:
        """Say why nodes wait; pause when waiting cannot help."""
        changed = []
        for name, verdict in refused.items():
            reason, action = no_place_because(verdict, rollout)
            task = no_place(tasks[name].task, reason, action if verdict.never else "")
            if task.reason != tasks[name].task.reason:
                changed.append(task)
        if changed:
            self.store.put(lease, [(task, None, None) for task in changed])
        never = next((v for v in refused.values() if v.never), None)
        others = any(of != rollout for of in self.store.claims().values())
        if alone and refused and (never is not None or not others):
            reason, action = no_place_because(never or next(iter(refused.values())), rollout)
            row, said = self.store.rollout(rollout), f"{reason}; {action}"
            if (row.state, row.reason) != ("paused", said):  # an abort goes on asking
                self._state(rollout, lease, "paused", said)
        elif refused:
            self.telling.once(rollout, f"waiting: budget: {next(iter(refused.values())).reason}")

    def _launch(
        self, rollout: str, lease: Lease, plan: Plan, tasks: Mapping[str, Stored], move: Do, running: list[Running]
    ) -> None:
        try:
            nodes = {node.name: node for node in self.book.nodes(move.nodes)}
        except FleetError as error:  # a node was removed from the inventory while its rollout was under way
            self._gone(rollout, lease, tasks, move, error)
            return
        facts = self.book.facts(move.nodes)
        owing = {name: tasks[name].task for name in move.nodes}
        attempts = self.store.intend(lease, list(owing.values()), move.step.phase, self.hands.clock())
        subjects = {
            name: Subject(
                nodes[name], plan.starts.get(name, ""), tasks[name].given, tasks[name].boot_id, tasks[name].prior,
                facts[name].current() if name in facts else {},
            )
            for name in move.nodes
        }  # fmt: skip
        cut = self._cut.setdefault(rollout, threading.Event())
        vendor = plan.groups[move.group].vendor
        act = Act(
            move, vendor, subjects, rollout, lease.fence, cut.is_set, lambda: self._ours(lease),
            lambda name: self._serves(rollout, name),
        )  # fmt: skip
        running.append(Running(act, attempts, owing, self._pool.submit(do, self.hands, act)))

    def _ours(self, lease: Lease) -> bool:
        """Whether this process still has the rollout, as far as the database can be asked."""
        try:
            return self.store.holds(lease)
        except FleetError:
            return False

    def _serves(self, rollout: str, name: str) -> bool | None:
        """Whether a node serves again, by what whoever has the rollout now stored; None while that is not known."""
        try:
            stored = self.store.tasks(rollout)[name]
        except FleetError:  # the database is away
            return None
        if stored.task.begun:  # will be uncordoned, or is this moment
            return None if stored.task.state == "uncordoning" else False
        return not waits_for_person(stored.task) and lifecycle(stored) not in OUT_OF_SERVICE

    def _gone(self, rollout: str, lease: Lease, tasks: Mapping[str, Stored], move: Do, error: FleetError) -> None:
        there = {node.name for node in self.book.nodes()}
        reason, now = f"removed: {error.what}", self.hands.clock()
        lost = [
            replace(tasks[name].task, state="failed", open="", since=now, reason=reason, owner=self.operator)
            for name in move.nodes
            if name not in there
        ]
        self._put(rollout, lease, tasks, lost)

    # --- results --------------------------------------------------------------------------------------------------

    def _collect(self, rollout: str, lease: Lease, *, block: bool) -> bool:
        """Write what finished steps came to; with `block`, wait a little for the first one. Whether any did."""
        running = self._running.setdefault(rollout, [])
        if block and running:
            wait([run.future for run in running], timeout=1.0, return_when=FIRST_COMPLETED)
        ended = [run for run in running if run.future.done()]
        for run in ended:
            running.remove(run)
            if not isinstance(run.future.exception(), Cut):  # else its intent stays, and the next one looks
                self._write(rollout, lease, run)
        now = self.hands.clock()
        judged = self.judging.collect(rollout, lease, lambda: self.plan(self.store.rollout(rollout).plan), now)
        return judged or bool(ended)

    def _write(self, rollout: str, lease: Lease, run: Running) -> None:
        error = run.future.exception()
        dids = (
            {name: Did(Outcome("ambiguous", f"internal: {error!r}"), output=trace(error)) for name in run.tasks}
            if error is not None
            else run.future.result()
        )
        now = self.hands.clock()
        group = self.plan(self.store.rollout(rollout).plan).groups[run.act.move.group]
        self._record(dids)
        results, proofs = [], []
        for name, did in dids.items():
            before = run.tasks[name]
            task = advance(group, before, did.outcome, now)
            if did.outcome.result in ("waiting", "ambiguous") and task.begun:
                self._later[rollout, name] = now + self.poll_s
            output = self.evidence.blob(did.output.encode()) if did.output else ""
            proofs.append(evidence_of(run.act, name, did, output))
            results.append(result_of(run, name, did, task, output))
        self.evidence.extend(rollout, self.hands.now(), self.origin, "step", proofs)
        self.store.finish(lease, results, now)
        for (name, did), task in zip(dids.items(), (result.task for result in results), strict=True):
            was = run.tasks[name].state
            if task.state != was or task.ended or did.outcome.result in ("failed", "ambiguous", "hands"):
                reason = did.outcome.reason or (task.reason if task.ended else "")
                if task.direction == "back" and run.tasks[name].direction == "forward":
                    reason = f"{reason}; the way back begins"
                self.telling.say(rollout, name, was, task.state, run.act.step.phase, did.outcome.result, reason)

    def _record(self, dids: Mapping[str, Did]) -> None:
        facts = [did.probed.facts for did in dids.values() if did.probed is not None and did.probed.facts is not None]
        raw = {key: data for did in dids.values() if did.probed is not None for key, data in did.probed.raw.items()}
        if facts:
            with contextlib.suppress(FleetError):  # a node that was removed meanwhile; its task says so later
                self.book.record(facts, raw)

    def _put(self, rollout: str, lease: Lease, tasks: Mapping[str, Stored], changed: Sequence[NodeTask]) -> None:
        self.store.put(lease, [(task, None, None) for task in changed])
        for task in changed:
            self.telling.say(rollout, task.node, tasks[task.node].task.state, task.state, "", "", task.reason)

    def _settle(self, rollout: str, lease: Lease, tasks: Mapping[str, Stored]) -> bool:
        """What the end of a node entails: its lifecycle state, then its place in the budgets. Repeated until done.

        The place of a node that stays out of service is kept until every census that may be used by anybody knows of
        it. Whether there are such.
        """
        ours = [name for name, of in self.store.claims().items() if of == rollout and name in tasks]
        free, now, kept = [], self.hands.clock(), False
        for name in ours:
            stored = tasks[name]
            if stored.task.queued or (stored.task.ended and not waits_for_person(stored.task)):
                state = lifecycle(stored)
                with contextlib.suppress(FleetError):  # removed from the inventory
                    before = stored.prior.get("lifecycle")  # none yet where a process died before it began the node
                    if before and self.book.nodes([name])[0].lifecycle in ("maintenance", before):
                        self.book.set_lifecycle([name], state)  # else a person has set another one since
                if state in OUT_OF_SERVICE and 0 <= now - stored.task.since < 1.5 * self.poll_s:
                    kept = True
                    continue
                free.append(name)
                if stored.task.state == "done":
                    self.places.serves(name)
        if free:
            self._full[rollout] = 0.0
            self.store.release(lease, free)
            for number in {tasks[name].task.wave for name in free}:
                if all(s.task.ended for s in tasks.values() if s.task.wave == number):
                    self.store.set_wave(lease, number, ended=now)
        return kept

    def _finish(self, rollout: str, lease: Lease, state: RolloutState, reason: str) -> bool:
        """End the rollout; False when it must wait a moment, see `_settle`."""
        tasks = self.store.tasks(rollout)
        if self._settle(rollout, lease, tasks):
            return False
        self.store.release(lease, list(tasks))
        self._state(rollout, lease, state, reason)
        return True

    def _state(self, rollout: str, lease: Lease, state: RolloutState, reason: str) -> None:
        at = self.hands.now()
        self.telling.note(rollout, "rollout", {"state": state, "reason": reason})
        self.store.set_state(lease, state, reason, at)
        self.book.audit(self.operator, f"rollout {state}", at, {"rollout": rollout, "reason": reason})
        self.telling.say(rollout, "", "", state, "", "", reason)


__all__ = ["Fenced", "Upgrade"]
