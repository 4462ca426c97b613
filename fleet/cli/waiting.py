"""`fleet node why`: what a node waits for, and what comes next."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.output import document, emit, output_option, table
from fleet.cli.selection import now, opened
from fleet.core import errors

if TYPE_CHECKING:
    from fleet.core.model import Node
    from fleet.inventory.rollouts import Rollout, Stored


@click.command()
@click.argument("name", metavar="NODE")
@output_option("table", "json", "yaml")
@click.pass_context
def why(ctx: click.Context, name: str, output: str) -> int:
    """Say what a node waits for: in a rollout (state, since, limit, reason, owner, next action), or under a hold.

    Without an unfinished rollout, the last one that the node was in is told.
    """
    from fleet.engine import Progress
    from fleet.engine.leases import LeaseEngine
    from fleet.inventory.rollouts import Rollouts

    with opened(ctx) as (_, inventory):
        node = inventory.node(name)
        store = Rollouts(inventory.database)
        found = store.of_node(name)
        driver = ""
        if found is not None and not found[0].finished:
            running = LeaseEngine(store, lambda *_: Progress(True)).list()
            driver = next((r.owner for r in running if r.rollout == found[0].id), "")
        trusted, probed = name in inventory.host_keys(), name in inventory.facts([name])
    body = as_dict(node, found, driver, trusted, probed, now(), time.time())
    if output != "table":
        emit(document("NodeWhy", body), output)
        return errors.DONE
    click.echo(f"{name}: {body['summary']}")
    if body["rollout"] is not None:
        click.echo()
        table(("FIELD", "VALUE"), _lines(body["rollout"]))
    click.echo(f"\nnext: {body['next']}")
    return errors.DONE


def as_dict(
    node: Node, found: tuple[Rollout, Stored] | None, driver: str, trusted: bool, probed: bool, at: str, clock: float
) -> dict[str, Any]:
    """The body of `kind: NodeWhy`. Pure: `at` and `clock` are this moment, as text and in seconds."""
    hold = node.hold
    held = hold is not None and (not hold.until or hold.until > at)
    part = None if found is None else _rollout(*found, driver, clock)
    waits, summary, action = False, "it waits for nothing", "nothing"
    if part is not None and not part["finished"]:
        state = part["state"]
        ended = state in ("done", "failed", "rolled-back", "held")
        waits = not ended or state in ("failed", "held")
        summary = f"{state} in rollout {part['id']}, which is {part['rolloutState']}"
        summary += f": {part['reason']}" if part["reason"] else ""
        if part["overdue"]:
            summary += f"; it is past its limit of {part['limitS']} s"
        action = part["nextAction"] or (
            f"fleet rollout resume {part['id']}"
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


def _rollout(row: Rollout, stored: Stored, driver: str, clock: float) -> dict[str, Any]:
    task = stored.task
    return {
        "id": row.id,
        "rolloutState": row.state,
        "rolloutReason": row.reason,
        "finished": row.finished,
        "driver": driver,
        "state": task.state,
        "direction": task.direction,
        "wave": task.wave,
        "since": _at(task.since),
        "limitS": task.limit_s,
        "overdue": bool(task.begun and task.limit_s and task.since and clock - task.since > task.limit_s),
        "reason": task.reason,
        "owner": task.owner,
        "nextAction": task.next_action,
    }


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
        ("wave", str(part["wave"] + 1)),
        ("since", part["since"] or "-"),
        ("limit", f"{part['limitS']} s{', overdue' if part['overdue'] else ''}" if part["limitS"] else "-"),
        ("reason", part["reason"] or part["rolloutReason"] or "-"),
        ("owner", part["owner"] or "-"),
        ("next action", part["nextAction"] or "-"),
    ]


def _at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if seconds else ""
