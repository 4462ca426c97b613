"""`fleet node why`: what a node waits for, and what comes next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.output import document, emit, output_option, table
from fleet.cli.selection import moment, now, opened
from fleet.core import errors

if TYPE_CHECKING:
    from fleet.core.model import Node
    from fleet.inventory import Inventory
    from fleet.inventory.rollouts import Attempt, Rollout, Rollouts, Stored

TOLD = 5  # attempts


@click.command()
@click.argument("name", metavar="NODE")
@output_option("table", "json", "yaml")
@click.pass_context
def why(ctx: click.Context, name: str, output: str) -> int:
    """Say what a node waits for: in a rollout (state, since, limit, reason, owner, next action), or under a hold.

    Without an unfinished rollout, the last one that the node was in is told.
    """
    from fleet.inventory.rollouts import Rollouts

    with opened(ctx) as (_, inventory):
        store = Rollouts(inventory.database)
        body = answer(inventory, store, name, store.of_node(name), now())
    if output != "table":
        emit(document("NodeWhy", body), output)
    else:
        print_answer(body)
    return errors.DONE


def answer(
    inventory: Inventory, store: Rollouts, name: str, found: tuple[Rollout, Stored] | None, at: str
) -> dict[str, Any]:
    """The body of `kind: NodeWhy` for a node and its task in a rollout. NotFound for a node that is not there.

    A node that was removed while its rollout was under way is still told of, by what the rollout knows.
    """
    from fleet.core.model import Node
    from fleet.engine import Progress
    from fleet.engine.leases import LeaseEngine

    try:
        node = inventory.node(name)
    except errors.NotFound:
        if found is None:
            raise
        node = Node(name, "", lifecycle="retired")
    driver, attempts = "", []
    if found is not None:
        attempts = store.attempts(found[0].id, name)[-TOLD:]
        if not found[0].finished:
            running = LeaseEngine(store, lambda *_: Progress(True)).list()
            driver = next((r.owner for r in running if r.rollout == found[0].id), "")
    trusted, probed = name in inventory.host_keys(), name in inventory.facts([name])
    return as_dict(node, found, driver, trusted, probed, at, store.clock(), attempts)


def print_answer(body: dict[str, Any]) -> None:
    """The same for a person."""
    click.echo(f"{body['name']}: {body['summary']}")
    part = body["rollout"]
    if part is not None:
        click.echo()
        table(("FIELD", "VALUE"), _lines(part))
    if part is not None and part["attempts"]:
        click.echo()
        rows = [
            [a["began"], a["direction"], a["phase"], a["state"], a["seconds"] if a["seconds"] is not None else "-",
             a["detail"] or "-"]
            for a in part["attempts"]
        ]  # fmt: skip
        table(("TRIED", "DIRECTION", "STEP", "RESULT", "SECONDS", "DETAIL"), rows)
    click.echo(f"\nnext: {body['next']}")


def as_dict(
    node: Node,
    found: tuple[Rollout, Stored] | None,
    driver: str,
    trusted: bool,
    probed: bool,
    at: str,
    clock: float,
    attempts: Sequence[Attempt] = (),
) -> dict[str, Any]:
    """The body of `kind: NodeWhy`. Pure: `at` and `clock` are this moment, as text and in seconds."""
    from fleet.core.task import ENDS

    hold = node.hold
    held = hold is not None and (not hold.until or hold.until > at)
    part = None if found is None else _rollout(*found, driver, clock, attempts)
    waits, summary, action = False, "it waits for nothing", "nothing"
    if part is not None and not part["finished"]:
        state = part["state"]
        ended = state in ENDS
        waits = not ended or state in ("failed", "held")
        summary = f"{state} in rollout {part['id']}, which is {part['rolloutState']}"
        summary += f": {part['reason']}" if part["reason"] else ""
        if part["overdue"]:
            summary += f"; it is past its limit of {part['limitS']} s: {part['atLimit']}"
        asked = part["rolloutReason"].startswith("approval:") and part["rolloutState"] == "paused"
        action = part["nextAction"] or (
            f"somebody else: fleet rollout approve {part['id']}"
            if asked
            else f"fleet rollout resume {part['id']}"
            if not driver or part["rolloutState"] == "paused"
            else f"wait: {driver} carries the rollout out"
        )
    elif held and hold is not None:
        waits = True
        until = f" until {hold.until}" if hold.until else ""
        summary, action = f"on hold by {hold.who}{until}: {hold.why}", f"fleet node release {node.name}"
    elif not trusted:
        waits, summary, action = True, "its host key is not trusted yet", f"fleet node trust {node.name}"
    elif not probed:
        waits, summary, action = True, "it was never looked at", f"fleet probe {node.name}"
    elif part is not None:
        summary += f"; {part['state']} in rollout {part['id']}" + (f": {part['reason']}" if part["reason"] else "")
        action = part["nextAction"] or action
    return {
        "name": node.name,
        "lifecycle": node.lifecycle,
        "waits": waits,
        "summary": summary,
        "next": action,
        "hold": None if hold is None else {**vars(hold), "inForce": held},
        "rollout": part,
    }


def _rollout(row: Rollout, stored: Stored, driver: str, clock: float, attempts: Sequence[Attempt]) -> dict[str, Any]:
    from fleet.core.task import LIMIT_ENDS, overdue

    task = stored.task
    limited = bool(task.limit_s and task.since) and not row.finished
    return {
        "id": row.id,
        "rolloutState": row.state,
        "rolloutReason": row.reason,
        "finished": row.finished,
        "driver": driver,
        "state": task.state,
        "direction": task.direction,
        "wave": task.wave + 1,
        "since": moment(task.since, ""),
        "limitS": task.limit_s,
        "until": moment(task.since + task.limit_s, "") if limited else "",
        "atLimit": LIMIT_ENDS.get(task.state, "") if limited else "",
        "overdue": limited and overdue(task, clock),
        "reason": task.reason,
        "owner": task.owner,
        "nextAction": task.next_action,
        "attempts": [
            {
                "direction": a.direction, "phase": a.phase, "state": a.state, "began": moment(a.began, ""),
                "seconds": round(a.ended - a.began) if a.ended else None, "detail": a.detail,
            }
            for a in attempts
        ],
    }  # fmt: skip


def _lines(part: dict[str, Any]) -> list[tuple[str, str]]:
    if part["finished"]:
        who = "nobody: it is over"
    else:
        who = part["driver"] or f"nobody: fleet rollout resume {part['id']}"
    return [
        ("rollout", f"{part['id']} ({part['rolloutState']})"),
        ("driven by", who),
        ("state", part["state"]),
        ("direction", part["direction"]),
        ("wave", str(part["wave"])),
        ("since", part["since"] or "-"),
        ("limit", f"{part['limitS']} s{', overdue' if part['overdue'] else ''}" if part["limitS"] else "-"),
        ("until", part["until"] or "-"),
        ("then", part["atLimit"] or "-"),
        ("reason", part["reason"] or part["rolloutReason"] or "-"),
        ("owner", part["owner"] or "-"),
        ("next action", part["nextAction"] or "-"),
    ]
