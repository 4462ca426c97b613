"""What has happened and how it stands, counted in the database: for the live screen, metrics and estimates.

A fleet has ten thousand nodes and a million past steps. So a question here is answered by an aggregate, by the rows
that moved since a moment, or by the first rows of a list; never by reading everything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Float, and_, case, cast, func, not_, or_, select

from fleet.core.budget import FLEET, NOT_COUNTED
from fleet.core.errors import NotFound
from fleet.core.estimate import History, Tally
from fleet.core.model import DOMAINS, Json
from fleet.core.move import FINISHED
from fleet.core.task import DECIDED, ENDS, REVISIT
from fleet.inventory.database import Database, chunks
from fleet.inventory.tables import nodes as node_tables
from fleet.inventory.tables import rollouts as tables
from fleet.inventory.tables import table

NODE = table(node_tables.NodeRow)
LABEL = table(node_tables.LabelRow)
FACT = table(node_tables.FactCurrentRow)
PLAN = table(tables.PlanRow)
ROLLOUT = table(tables.RolloutRow)
TASK = table(tables.NodeTaskRow)
ATTEMPT = table(tables.StepAttemptRow)
CLAIM = table(tables.BudgetClaimRow)
LEASE = table(tables.LeaseRow)

NEWEST = 20_000  # attempts that durations are learnt from
BUCKETS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 21600.0)  # seconds
_BEGUN = and_(TASK.c.cursor >= 0, TASK.c.state.not_in(ENDS))
_OVERDUE_AT = TASK.c.since + TASK.c.limit_s
_PLACE = (TASK.c.wave, TASK.c.grp, TASK.c.state, TASK.c.direction, TASK.c.cursor)


@dataclass(frozen=True)
class Head:
    """A rollout without its nodes, and who drives it: `owner` is empty when nobody does, `until` ends the lease."""

    id: str
    plan: str
    state: str
    request: str
    reason: str
    who: str
    at: str
    ended_at: str
    owner: str
    until: float

    @property
    def finished(self) -> bool:
        """Whether nothing can happen any more."""
        return self.state in FINISHED


@dataclass(frozen=True)
class Standing:
    """One node of a rollout as the screen shows it. `phase` is the step that it owes, "" where none is known."""

    node: str
    wave: int
    state: str
    direction: str
    phase: str
    since: float
    limit_s: int
    reason: str
    owner: str
    next_action: str


@dataclass(frozen=True)
class View:
    """How a rollout stands at one moment: all of it in counts, and the nodes that a person wants to see."""

    head: Head
    tallies: tuple[Tally, ...]
    under_way: tuple[Standing, ...]  # the longest in their state first
    troubled: tuple[Standing, ...]  # failed, held or rolled back, the newest first
    waiting: str = ""  # why nodes wait that have not begun, where a reason is known


@dataclass(frozen=True)
class StepCounts:
    """The steps of one phase: how many by result, and how long those took that ended well or badly.

    `buckets` counts the durations up to each of `BUCKETS`, cumulatively; `seconds` is their sum.
    """

    phase: str
    results: Mapping[str, int]
    buckets: tuple[int, ...]
    ended: int
    seconds: float


@dataclass(frozen=True)
class Claimed:
    """One kind of domain in the policy of a rollout: claimed nodes in its fullest domain, and that domain's nodes."""

    kind: str
    limit: str
    claimed: int
    total: int


# --- the screen -------------------------------------------------------------------------------------------------------


def head(connection: Connection, rollout: str) -> Head:
    """The rollout of that whole id. NotFound when there is none."""
    query = (
        select(
            ROLLOUT.c.id, ROLLOUT.c.plan, ROLLOUT.c.state, ROLLOUT.c.request, ROLLOUT.c.reason, ROLLOUT.c.who,
            ROLLOUT.c.at, ROLLOUT.c.ended_at, func.coalesce(LEASE.c.owner, ""), func.coalesce(LEASE.c.expires, 0.0),
        )
        .select_from(ROLLOUT.outerjoin(LEASE, LEASE.c.name == ROLLOUT.c.id))
        .where(ROLLOUT.c.id == rollout)
    )  # fmt: skip
    row: Any = connection.execute(query).first()
    if row is None:
        raise NotFound(f"no rollout is called {rollout!r}", hint="fleet rollout list --all", slug="unknown-rollout")
    return Head(*row)


def tallies(connection: Connection, rollout: str) -> tuple[Tally, ...]:
    """The nodes of a rollout, counted by the place where they stand."""
    query = select(*_PLACE, func.count(), func.max(TASK.c.since)).where(TASK.c.rollout == rollout).group_by(*_PLACE)
    return tuple(
        Tally(row[0], row[1], row[2], row[3], row[4], int(row[5]), float(row[6])) for row in connection.execute(query)
    )


def view(database: Database, rollout: str, rows: int) -> View:
    """How the rollout stands, with at most `rows` nodes under way and as many in trouble."""
    columns = (
        TASK.c.node, TASK.c.wave, TASK.c.state, TASK.c.direction, TASK.c.since, TASK.c.limit_s, TASK.c.reason,
        TASK.c.owner, TASK.c.next_action,
    )  # fmt: skip
    of = TASK.c.rollout == rollout
    going = select(*columns).where(of, _BEGUN).order_by(TASK.c.since, TASK.c.node).limit(rows)
    bad = TASK.c.state.in_(("failed", "held", "rolled-back"))
    trouble = select(*columns).where(of, bad).order_by(TASK.c.since.desc(), TASK.c.node).limit(rows)
    why = select(TASK.c.reason).where(of, TASK.c.cursor < 0, TASK.c.state == "waiting", TASK.c.reason != "").limit(1)
    with database.reading() as connection:
        first, counts = head(connection, rollout), tallies(connection, rollout)
        active = list(connection.execute(going))
        phases = _phases(connection, rollout, [row.node for row in active])
        return View(
            first, counts, tuple(_standing(row, phases) for row in active),
            tuple(_standing(row, {}) for row in connection.execute(trouble)), connection.execute(why).scalar() or "",
        )  # fmt: skip


def _standing(row: Any, phases: Mapping[str, str]) -> Standing:
    return Standing(
        row.node, row.wave, row.state, row.direction, phases.get(row.node, ""), row.since, row.limit_s, row.reason,
        row.owner, row.next_action,
    )  # fmt: skip


def _phases(connection: Connection, rollout: str, names: Sequence[str]) -> dict[str, str]:
    """node -> the phase of its last attempt."""
    newest = select(func.max(ATTEMPT.c.id)).where(ATTEMPT.c.rollout == rollout, ATTEMPT.c.node.in_(list(names)))
    query = select(ATTEMPT.c.node, ATTEMPT.c.phase).where(ATTEMPT.c.id.in_(newest.group_by(ATTEMPT.c.node)))
    return {row.node: row.phase for row in connection.execute(query)} if names else {}


def moved(database: Database, rollout: str, since: float) -> list[tuple[str, str, str, float]]:
    """(node, state, reason, since) of the nodes that came into their state at `since` or later, in that order."""
    query = (
        select(TASK.c.node, TASK.c.state, TASK.c.reason, TASK.c.since)
        .where(TASK.c.rollout == rollout, TASK.c.since >= since)
        .order_by(TASK.c.since, TASK.c.node)
    )
    with database.reading() as connection:
        return [(row.node, row.state, row.reason, row.since) for row in connection.execute(query)]


# --- estimates --------------------------------------------------------------------------------------------------------


def durations(database: Database, newest: int = NEWEST) -> History:
    """How long each phase took on the nodes of each vendor, from the newest steps that were done."""
    last = (
        select(ATTEMPT.c.node, ATTEMPT.c.phase, (ATTEMPT.c.ended - ATTEMPT.c.began).label("seconds"))
        .where(ATTEMPT.c.state == "done", ATTEMPT.c.ended > 0)
        .order_by(ATTEMPT.c.id.desc())
        .limit(newest)
        .subquery()
    )
    vendor = func.coalesce(FACT.c.vendor, "")
    query = select(vendor, last.c.phase, last.c.seconds).select_from(last.outerjoin(FACT, FACT.c.node == last.c.node))
    with database.reading() as connection:
        return History.of((row[0], row[1], float(row[2])) for row in connection.execute(query))


def standing(database: Database, rollout: str) -> tuple[Tally, ...]:
    """The nodes of a rollout, counted by the place where they stand."""
    with database.reading() as connection:
        return tallies(connection, rollout)


def capacity(database: Database) -> int:
    """How many nodes are capacity: the total that a limit in percent of the fleet is taken of."""
    with database.reading() as connection:
        query = select(func.count()).select_from(NODE).where(NODE.c.lifecycle.not_in(NOT_COUNTED))
        return int(connection.execute(query).scalar_one())


# --- metrics ----------------------------------------------------------------------------------------------------------


def recent(database: Database, after: str) -> list[Head]:
    """The rollouts that are unfinished, or ended after that time (ISO 8601)."""
    query = (
        select(ROLLOUT.c.id)
        .where(or_(ROLLOUT.c.state.not_in(FINISHED), ROLLOUT.c.ended_at > after))
        .order_by(ROLLOUT.c.at, ROLLOUT.c.id)
    )
    with database.reading() as connection:
        return [head(connection, row.id) for row in connection.execute(query).all()]


def states(database: Database, rollouts: Sequence[str]) -> dict[str, dict[str, tuple[int, float]]]:
    """rollout -> node state -> (how many, since when the first of them is in it)."""
    found: dict[str, dict[str, tuple[int, float]]] = {name: {} for name in rollouts}
    with database.reading() as connection:
        for some in chunks(list(rollouts)):
            query = (
                select(TASK.c.rollout, TASK.c.state, func.count(), func.min(TASK.c.since))
                .where(TASK.c.rollout.in_(some))
                .group_by(TASK.c.rollout, TASK.c.state)
            )
            for row in connection.execute(query):
                found[row[0]][row[1]] = int(row[2]), float(row[3])
    return found


def failing(database: Database, rollouts: Sequence[str]) -> dict[str, int]:
    """rollout -> nodes that failed, or are on the way back because they did: those of `fleet.core.task.failing`."""
    of = TASK.c
    told = or_(*(of.reason.startswith(word, autoescape=True) for word in (REVISIT, *DECIDED)), of.direction == "return")
    back = or_(of.state == "rolled-back", and_(_BEGUN, of.direction != "forward"))
    bad = or_(of.state == "failed", and_(not_(told), back))
    query = select(of.rollout, func.count()).where(of.rollout.in_(list(rollouts)), bad)
    with database.reading() as connection:
        return {row[0]: int(row[1]) for row in connection.execute(query.group_by(TASK.c.rollout))}


def overdue(database: Database, now: float, grace_s: float = 0.0) -> list[tuple[str, Standing]]:
    """(rollout, node) of every node of an unfinished rollout that is past the limit of its state, the oldest first."""
    query = (
        select(TASK, ROLLOUT.c.id.label("of"))
        .join(ROLLOUT, ROLLOUT.c.id == TASK.c.rollout)
        .where(ROLLOUT.c.state.not_in(FINISHED), TASK.c.limit_s > 0, _OVERDUE_AT + grace_s < now)
        .order_by(TASK.c.since, TASK.c.node)
    )
    with database.reading() as connection:
        return [(row.of, _standing(row, {})) for row in connection.execute(query)]


def overdue_body(late: Standing) -> dict[str, Json]:
    """The body of the event of a node past its limit."""
    return {
        "nodes": late.node, "count": 1, "state": late.state, "since": iso(late.since), "limitS": late.limit_s,
        "reason": late.reason, "owner": late.owner, "nextAction": late.next_action,
    }  # fmt: skip


def steps(database: Database) -> list[StepCounts]:
    """All attempts by phase: their results and durations. One pass over the table."""
    took = cast(ATTEMPT.c.ended - ATTEMPT.c.began, Float)
    over = and_(ATTEMPT.c.ended > 0, ATTEMPT.c.state.in_(("done", "failed")))
    sums = [func.sum(case((and_(over, took <= edge), 1), else_=0)) for edge in BUCKETS]
    query = select(
        ATTEMPT.c.phase, ATTEMPT.c.state, func.count(), func.sum(case((over, 1), else_=0)),
        func.sum(case((over, took), else_=0.0)), *sums,
    ).group_by(ATTEMPT.c.phase, ATTEMPT.c.state)  # fmt: skip
    found: dict[str, StepCounts] = {}
    with database.reading() as connection:
        for row in connection.execute(query):
            old = found.get(row[0]) or StepCounts(row[0], {}, (0,) * len(BUCKETS), 0, 0.0)
            found[row[0]] = StepCounts(
                row[0], {**old.results, row[1]: int(row[2])},
                tuple(a + int(b) for a, b in zip(old.buckets, row[5:], strict=True)),
                old.ended + int(row[3]), old.seconds + float(row[4]),
            )  # fmt: skip
    return [found[phase] for phase in sorted(found)]


def claims(database: Database, rollouts: Sequence[Head]) -> dict[str, list[Claimed]]:
    """rollout -> for each kind of domain that its policy limits, how full its fullest domain is.

    Claims of all rollouts count, as they do in the budget itself.
    """
    with database.reading() as connection:
        bodies = select(PLAN.c.id, PLAN.c.body).where(PLAN.c.id.in_({row.plan for row in rollouts}))
        limits = {row.id: _limits(row.body) for row in connection.execute(bodies)}
        kinds = {kind for each in limits.values() for kind in each}
        fullest = {kind: _fullest(connection, kind) for kind in sorted(kinds)}
    return {
        row.id: [
            Claimed(kind, text, *fullest[kind]) for kind, text in sorted(limits.get(row.plan, {}).items())
        ]
        for row in rollouts
    }  # fmt: skip


def _limits(body: str) -> dict[str, str]:
    policy = json.loads(body).get("policy", {})
    return {str(kind): str(text) for kind, text in (policy.get("limits") or {}).items()}


def _fullest(connection: Connection, kind: str) -> tuple[int, int]:
    """(claimed nodes, nodes) of the domain of that kind with the largest share of its nodes claimed."""
    source: Any = NODE.outerjoin(CLAIM, CLAIM.c.node == NODE.c.name)
    if kind == FLEET:
        name: Any = func.max(FLEET)
        grouping: tuple[Any, ...] = ()
        wanted: tuple[Any, ...] = ()
    elif kind.startswith("label:"):
        source = source.join(LABEL, and_(LABEL.c.node == NODE.c.name, LABEL.c.key == kind[6:]))
        name, grouping, wanted = LABEL.c.value, (LABEL.c.value,), (LABEL.c.value != "",)
    elif kind in DOMAINS:
        name, grouping, wanted = NODE.c[kind], (NODE.c[kind],), (NODE.c[kind] != "",)
    else:
        return 0, 0
    taken = func.count(func.distinct(CLAIM.c.node))
    query = select(name, taken, func.count(func.distinct(NODE.c.name))).select_from(source)
    rows = connection.execute(query.where(NODE.c.lifecycle.not_in(NOT_COUNTED), *wanted).group_by(*grouping)).all()
    found = [(int(row[1]), int(row[2])) for row in rows if row[2]]
    return max(found, key=lambda pair: (pair[0] / pair[1], pair[0]), default=(0, 0))


# --- the audit log ----------------------------------------------------------------------------------------------------


def with_plan(connection: Connection, detail: Mapping[str, Json]) -> dict[str, Json]:
    """The detail of a line of the audit log; where it names a rollout, with the plan that the rollout carries out."""
    found = dict(detail)
    if isinstance(rollout := found.get("rollout"), str) and "plan" not in found:
        plan = connection.execute(select(ROLLOUT.c.plan).where(ROLLOUT.c.id == rollout)).scalar()
        found |= {} if plan is None else {"plan": plan}
    return found


def iso(seconds: float) -> str:
    """A moment as it is shown: ISO 8601 in UTC, "" for 0."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds else ""


__all__ = [
    "BUCKETS", "Claimed", "Head", "Standing", "StepCounts", "View", "capacity", "claims", "durations", "failing", "iso",
    "moved", "overdue", "overdue_body", "recent", "standing", "states", "steps", "view", "with_plan",
]  # fmt: skip
