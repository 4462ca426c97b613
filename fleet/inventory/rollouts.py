"""Rollouts as stored: the truth of every plan being carried out, and the transactions that keep it true.

Every write of a rollout names the fence number of its lease and is refused when another holder has taken over, so that
a process that was stopped and wakes up again changes nothing. What must be decided and written together (an owner of a
node, a claim on a budget, a lease) is one writing transaction.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from fleet.core import planfile
from fleet.core.budget import Limit, Verdict, admit
from fleet.core.errors import Locked
from fleet.core.gate import Judgement
from fleet.core.gate import dump as gate_rows
from fleet.core.model import Json, Node, Plan, canonical
from fleet.core.move import FINISHED, Request, RolloutState, asked_after, going_on
from fleet.core.nodeset import fold
from fleet.core.task import NodeTask
from fleet.inventory import outbox, rollout_rows
from fleet.inventory.database import chunks, upsert
from fleet.inventory.leases import LEASE
from fleet.inventory.rollout_rows import Approval, Attempt, Fenced, Lease, Result, Rollout, Stored, Wave
from fleet.inventory.stored_rollouts import APPROVAL, CLAIM, PLAN, ROLLOUT, WAVE, StoredRollouts
from fleet.inventory.tables import rollouts as tables
from fleet.inventory.tables import table
from fleet.inventory.task_rows import ATTEMPT, TASK, last_attempts, write

OWNER = table(tables.NodeOwnerRow)

__all__ = ["Approval", "Attempt", "Fenced", "Lease", "Result", "Rollout", "Rollouts", "Stored", "Wave"]


class Rollouts(StoredRollouts):
    """The rollouts of one database, and the leases under which they are written."""

    # --- making ---------------------------------------------------------------------------------------------------

    def create(
        self, rollout: str, plan: Plan, command: str, units: Sequence[Sequence[str]], who: str, at: str
    ) -> Rollout:
        """Store the plan and a rollout of it. Locked when a node of it belongs to an unfinished rollout."""
        group_by_node = {node: number for number, group in enumerate(plan.groups) for node in group.nodes}
        names = [name for wave in plan.waves for name in wave]
        row = {
            "id": rollout, "plan": plan.id, "command": command, "state": "running", "request": "", "forgiven": 0,
            "reason": "", "who": who, "at": at, "ended_at": "", "units": [list(unit) for unit in units],
        }  # fmt: skip
        tasks = [
            rollout_rows.task_row(rollout, NodeTask(name, group_by_node[name], number), {}, "", ())
            for number, wave in enumerate(plan.waves)
            for name in wave
        ]
        with self.database.writing() as connection:
            _free(connection, names)
            body = {"id": plan.id, "body": canonical(planfile.dump(plan)), "at": at, "who": who}
            upsert(connection, PLAN, [body], ("id",), replace=False)
            connection.execute(insert(ROLLOUT), [row])
            for some in chunks(tasks):
                connection.execute(insert(TASK), list(some))
            _own(connection, rollout, names)
            waves = [
                {"rollout": rollout, "number": n, "size": len(w), "began": 0.0, "ended": 0.0}
                for n, w in enumerate(plan.waves)
            ]
            if waves:
                connection.execute(insert(WAVE), waves)
            outbox.enqueue(connection, rollout, "rollout.started", {"plan": plan.id, "who": who}, time.time())
        return self.rollout(rollout)

    # --- carrying out: under the lease ----------------------------------------------------------------------------

    @contextmanager
    def _fenced(self, lease: Lease) -> Iterator[Connection]:
        with self.database.writing() as connection:
            held = connection.execute(select(LEASE.c.fence).where(LEASE.c.name == lease.name)).scalar()
            if held != lease.fence:
                raise Fenced(
                    f"rollout {lease.name} was taken over by another process",
                    cause=f"its fence is {held}, ours was {lease.fence}",
                    hint=f"fleet rollout show {lease.name}",
                )
            yield connection

    def put(self, lease: Lease, changes: Iterable[tuple[NodeTask, Mapping[str, Json] | None, str | None]]) -> None:
        """Write tasks that moved without a step; with each, what it was before and its boot id where they are new."""
        rows: list[tuple[NodeTask, dict[str, Any]]] = []
        for task, prior, boot_id in changes:
            more: dict[str, Any] = {} if prior is None else {"prior": dict(prior)}
            rows.append((task, {**more, **({} if boot_id is None else {"boot_id": boot_id})}))
        with self._fenced(lease) as connection:
            write(connection, lease.name, rows)
            outbox.enqueue_endings(connection, lease.name, (task for task, _ in rows), time.time())

    def intend(self, lease: Lease, tasks: Sequence[NodeTask], phase: str, now: float) -> dict[str, int]:
        """Write an intent for each of those nodes before anything is done; node -> id of the attempt.

        A node whose last attempt at this step has no final result goes on with that attempt.
        """
        found: dict[str, int] = {}
        with self._fenced(lease) as connection:
            last = last_attempts(connection, lease.name, tasks)
            fresh = []
            for task in tasks:
                number, state = last.get(task.node, (0, ""))
                if state in ("intent", "ambiguous", "waiting", "hands"):
                    found[task.node] = number
                else:
                    fresh.append({
                        "rollout": lease.name, "node": task.node, "direction": task.direction, "cursor": task.cursor,
                        "attempt": task.attempt, "phase": phase, "state": "intent", "fence": lease.fence, "began": now,
                        "ended": 0.0, "detail": "", "evidence": "",
                    })  # fmt: skip
            for again in chunks(list(found.values())):
                connection.execute(
                    update(ATTEMPT).where(ATTEMPT.c.id.in_(again)).values(state="intent", fence=lease.fence)
                )
            if fresh:
                made = connection.execute(insert(ATTEMPT).returning(ATTEMPT.c.node, ATTEMPT.c.id), fresh)
                found |= {node: int(number) for node, number in made}
            for names in chunks([task.node for task in tasks]):
                of_tasks = (TASK.c.rollout == lease.name, TASK.c.node.in_(names))
                connection.execute(update(TASK).where(*of_tasks).values(open="intent"))
        return found

    def finish(self, lease: Lease, results: Iterable[Result], now: float) -> None:
        """Write the results of attempts and the nodes' new tasks, together."""
        results = list(results)
        rows: list[tuple[NodeTask, dict[str, Any]]] = []
        with self._fenced(lease) as connection:
            ends = [
                {"of": r.attempt, "state": r.state, "ended": now, "detail": r.detail, "evidence": r.evidence}
                for r in results
            ]
            if ends:
                connection.execute(update(ATTEMPT).where(ATTEMPT.c.id == bindparam("of")), ends)
            before: dict[str, Any] = {}
            for names in chunks([r.task.node for r in results]):
                query = select(TASK.c.node, TASK.c.prior, TASK.c.given).where(TASK.c.rollout == lease.name)
                before |= {row.node: row for row in connection.execute(query.where(TASK.c.node.in_(names)))}
            for result in results:
                old = before[result.task.node]
                more: dict[str, Any] = {}
                if result.prior is not None:
                    more["prior"] = {**old.prior, **result.prior}
                if result.boot_id is not None:
                    more["boot_id"] = result.boot_id
                if result.given is not None:
                    more["given"] = sorted({*old.given, result.given})
                rows.append((result.task, more))
            write(connection, lease.name, rows)
            outbox.enqueue_endings(connection, lease.name, (task for task, _ in rows), now)

    def set_state(self, lease: Lease, state: RolloutState, reason: str, at: str) -> None:
        """Pause, go on with, or end a rollout. Ending it sets its nodes free."""
        with self._fenced(lease) as connection:
            values: dict[str, Any] = {"state": state, "reason": reason}
            plan = connection.execute(select(ROLLOUT.c.plan).where(ROLLOUT.c.id == lease.name)).scalar()
            kind = "approval.needed" if reason.startswith("approval:") else f"rollout.{state}"
            outbox.enqueue(connection, lease.name, kind, {"state": state, "reason": reason, "plan": plan}, time.time())
            if state in FINISHED:
                values["ended_at"] = at
                connection.execute(delete(OWNER).where(OWNER.c.rollout == lease.name))
            connection.execute(update(ROLLOUT).where(ROLLOUT.c.id == lease.name).values(**values))

    def set_reason(self, lease: Lease, reason: str) -> None:
        """Say why a running rollout begins nothing just now; "" when it does."""
        with self._fenced(lease) as connection:
            connection.execute(update(ROLLOUT).where(ROLLOUT.c.id == lease.name).values(reason=reason))

    def set_gate(self, lease: Lease, number: int, judged: Mapping[str, Judgement]) -> None:
        """Store what the gate of a wave said of some hardware cells; of the others it stays as it was."""
        with self._fenced(lease) as connection:
            of = (WAVE.c.rollout == lease.name, WAVE.c.number == number)
            before = connection.execute(select(WAVE.c.gate).where(*of)).scalar_one()
            connection.execute(update(WAVE).where(*of).values(gate={**before, **gate_rows(judged)}))
            for said in judged.values():
                body: dict[str, Json] = {"wave": number + 1, "verdict": said.verdict, "reason": said.reason}
                outbox.enqueue(connection, lease.name, "gate.verdict", body, time.time())

    def set_wave(self, lease: Lease, number: int, *, began: float | None = None, ended: float | None = None) -> None:
        """Note when a wave began, which stands once it is noted, or when it ended."""
        of = (WAVE.c.rollout == lease.name, WAVE.c.number == number)
        with self._fenced(lease) as connection:
            if began is not None:
                connection.execute(update(WAVE).where(*of, WAVE.c.began == 0).values(began=began))
            if ended is not None:
                connection.execute(update(WAVE).where(*of).values(ended=ended))

    # --- what a person asks of a rollout --------------------------------------------------------------------------

    def request(self, rollout: str, what: Request) -> bool:
        """`pause`, `abort`, `rollback`, `kill`, or "" to go on; read at the next tick. False when it is over by now.

        What was asked before is not forgotten (see fleet.core.move). A rollback that is asked of a paused rollout sets
        it going.
        """
        of = ROLLOUT.c
        with self.database.writing() as connection:
            query = select(of.state, of.request).where(of.id == rollout).with_for_update()
            row = connection.execute(query).first()
            if row is None or row.state in FINISHED:
                return False
            what = asked_after(row.request, what)
            goes = {"state": "running", "reason": ""} if what == "rollback" else {}
            connection.execute(update(ROLLOUT).where(of.id == rollout).values(request=what, **goes))
        return True

    def reopen(
        self,
        lease: Lease,
        tasks: Iterable[NodeTask],
        forgiven: int,
        gates: Mapping[int, Mapping[str, Judgement]],
        request: Request | None = None,
    ) -> None:
        """A person says: go on, or back. These tasks, gates and forgiven failures hold from now on.

        Without a `request` an abort or a rollback that was under way stays one.

        A rollout that was over owns its nodes again: Locked when one of them belongs to another by now.
        """
        with self._fenced(lease) as connection:
            query = select(ROLLOUT.c.state, ROLLOUT.c.request).where(ROLLOUT.c.id == lease.name)
            row = connection.execute(query.with_for_update()).one()
            if request is None:
                request = going_on(row.request)
            if row.state in FINISHED:
                names = list(connection.execute(select(TASK.c.node).where(TASK.c.rollout == lease.name)).scalars())
                _free(connection, names)
                _own(connection, lease.name, names)
            write(connection, lease.name, [(task, {}) for task in tasks])
            for number, judged in gates.items():
                of = (WAVE.c.rollout == lease.name, WAVE.c.number == number)
                connection.execute(update(WAVE).where(*of).values(gate=gate_rows(judged)))
            values = {"state": "running", "request": request, "reason": "", "forgiven": forgiven, "ended_at": ""}
            connection.execute(update(ROLLOUT).where(ROLLOUT.c.id == lease.name).values(**values))
            outbox.enqueue(connection, lease.name, "rollout.resumed", {"request": request}, time.time())

    def approve(self, said: Approval) -> None:
        """Note a person's yes or no. The rollout, if it waits for it, goes on, or stays paused for a no."""
        waits = (
            ROLLOUT.c.id == said.rollout, ROLLOUT.c.plan == said.plan, ROLLOUT.c.state == "paused",
            ROLLOUT.c.reason.startswith("approval:"),
        )  # fmt: skip
        with self.database.writing() as connection:
            connection.execute(insert(APPROVAL), [dict(vars(said))])
            then = {"reason": f"approval: {said.refusal}"} if said.refusal else {"state": "running", "reason": ""}
            waited = connection.execute(update(ROLLOUT).where(*waits).values(**then)).rowcount
            if waited and not said.refusal:
                body: dict[str, Json] = {"request": "", "plan": said.plan, "who": said.who}
                outbox.enqueue(connection, said.rollout, "rollout.resumed", body, time.time())

    # --- budgets --------------------------------------------------------------------------------------------------

    def claim(
        self,
        lease: Lease,
        units: Sequence[Sequence[str]],
        limits: Mapping[str, Limit],
        nodes: Mapping[str, Node],
        out: Collection[str],
        now: float,
    ) -> tuple[tuple[tuple[str, ...], ...], dict[str, Verdict]]:
        """Take units of nodes out of service as far as the budgets allow: (units taken, node -> why not).

        `nodes` is the whole inventory, `out` what is unavailable for other reasons than a claim. Check and claim are
        one transaction: no two rollouts can both take the last place.
        """
        with self._fenced(lease) as connection:
            claimed = {row.node: row.rollout for row in connection.execute(select(CLAIM))}
            ours = {name for name, rollout in claimed.items() if rollout == lease.name}
            admitted, refused = admit(limits, nodes, {*out, *claimed}, units)
            rows = [
                {"node": name, "rollout": lease.name, "at": now}
                for unit in admitted
                for name in unit
                if name not in ours
            ]
            upsert(connection, CLAIM, rows, ("node", "rollout"), replace=False)
        return admitted, refused

    def release(self, lease: Lease, names: Iterable[str]) -> None:
        """Give the places of nodes back; a node without a claim stays as it is."""
        with self._fenced(lease) as connection:
            for some in chunks(list(names)):
                connection.execute(delete(CLAIM).where(CLAIM.c.rollout == lease.name, CLAIM.c.node.in_(some)))


def _free(connection: Connection, names: Sequence[str]) -> None:
    """Locked when one of those nodes belongs to an unfinished rollout."""
    owned: dict[str, str] = {}
    for some in chunks(names):
        for found in connection.execute(select(OWNER).where(OWNER.c.node.in_(some))):
            owned[found.node] = found.rollout
    if owned:
        others = ", ".join(sorted(set(owned.values())))
        raise Locked(
            f"{fold(owned)} belongs to the unfinished rollout {others}",
            hint=f"fleet rollout show {others.split(',')[0]}: it must end or be aborted first",
            slug="nodes-locked",
        )


def _own(connection: Connection, rollout: str, names: Sequence[str]) -> None:
    for some in chunks(names):
        connection.execute(insert(OWNER), [{"node": name, "rollout": rollout} for name in some])
