"""`fleet upgrade`: a plan shown, confirmed, carried out; the same command again goes on with what it began."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.output import document, emit, output_option, say
from fleet.cli.plan import duration, make_plan, planning, show
from fleet.cli.selection import Pick, confirm, now, opened, selecting
from fleet.core import errors

if TYPE_CHECKING:
    from fleet.config import Settings
    from fleet.core.model import Plan
    from fleet.inventory import Inventory
    from fleet.inventory.rollouts import Rollout


@click.command()
@selecting()
@planning
@click.option("--parallel", type=click.IntRange(1, 64), default=4, show_default=True, help="Playbook runs at a time.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option("table", "json", "yaml")
@click.pass_context
def upgrade(ctx: click.Context, /, pick: Pick, parallel: int, yes: bool, output: str, **options: Any) -> int:
    """Bring NODES to a stack: drain, install, reboot, validate, or roll back. In place of NODES, a plan file (JSON).

    The plan is shown first and must be confirmed. Ctrl-C lets running steps end. The same command again, or
    `fleet rollout resume`, goes on. Exit status: 6 when a node failed, 8 when the rollout is paused, 5 when nodes were
    refused, 7 when they belong to another rollout.
    """
    from fleet.cli.driving import as_dict, drive, outcome
    from fleet.core.model import digest
    from fleet.inventory.rollouts import Rollouts

    with opened(ctx) as (settings, inventory):
        store = Rollouts(inventory.database)
        file = _plan_file(pick)
        plan: Plan | None = _read(file) if file else None
        command = plan.id if plan else digest([pick.nodeset, pick.exclude, pick.selector, {**options}])
        row = store.unfinished(command=command)
        codes = []
        if row is None:
            plan = plan or make_plan(settings, inventory, pick, **options)
            codes = [errors.REFUSED] if plan.refusals else []
            row = store.unfinished(plan=plan.id)
            if row is None:
                show(plan, say)
                if plan.waves:
                    say(f"time: {duration(inventory, plan, parallel)}")
                if not plan.waves:
                    return _nothing(plan)
                _fresh(settings, inventory, plan)
                names = [name for wave in plan.waves for name in wave]
                confirm(names, len(inventory.nodes()), "upgrade", yes)
                rollout = f"r-{now()[:10].replace('-', '')}-{secrets.token_hex(3)}"
                row = drive(settings, inventory, rollout, parallel=parallel, plan=plan, command=command)
            else:
                row = _go_on(settings, inventory, row, parallel)
        else:
            row = _go_on(settings, inventory, row, parallel)
        tasks = store.tasks(row.id)
        ending(row, tasks)
        if output != "table":
            emit(document("Rollout", as_dict(row, tasks)), output)
        return errors.worst([*codes, outcome(store, row)])


def _go_on(settings: Settings, inventory: Inventory, row: Rollout, parallel: int) -> Rollout:
    """Drive a rollout that was begun before."""
    from fleet.cli.driving import drive

    if row.state == "paused":
        raise errors.Paused(
            f"rollout {row.id} is paused", cause=row.reason, hint=f"fleet rollout resume {row.id}, or abort it"
        )
    say(f"going on with rollout {row.id}")
    return drive(settings, inventory, row.id, parallel=parallel)


def _plan_file(pick: Pick) -> Path | None:
    if pick.nodeset is None or pick.exclude or pick.selector:
        return None
    file = Path(pick.nodeset)
    return file if file.suffix == ".json" or file.is_file() else None


def _read(file: Path) -> Plan:
    from fleet.core import planfile

    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise errors.BadInput(
            "the plan file cannot be read", where=str(file), cause=error.strerror or "", slug="no-file",
            hint="make one: fleet plan NODES -o json > plan.json",
        ) from error  # fmt: skip
    except ValueError as error:
        raise errors.BadInput(
            "the plan file is not JSON", where=str(file), cause=str(error), slug="not-a-plan"
        ) from error
    if not isinstance(raw, dict):
        raise errors.BadInput("the plan file holds no document", where=str(file), slug="not-a-plan")
    return planfile.load({key: value for key, value in raw.items() if key != "apiVersion"}, str(file))


def _fresh(settings: Settings, inventory: Inventory, plan: Plan) -> None:
    """StalePlan when the tables changed or more than one node in twenty moved since the plan was made."""
    from fleet.core.plan import moved, same_tables
    from fleet.planning import matrix_of

    same_tables(plan, matrix_of(settings).digest)
    gone = moved(plan, inventory.facts(list(plan.starts)), {})
    if gone and len(gone) * 20 > len(plan.starts):
        raise errors.StalePlan(
            f"{len(gone)} of {len(plan.starts)} nodes are no longer as they were when plan {plan.id} was made",
            where=gone[0],
            hint="fleet plan",
        )


def _nothing(plan: Plan) -> int:
    if plan.refusals:
        raise errors.Refused(
            f"none of the {len(plan.refusals)} nodes that need a change can be upgraded",
            cause=next(iter(plan.refusals.values())),
            hint="fleet plan with the same options says why for each",
            slug="all-refused",
        )
    say("nothing to do")
    return errors.DONE


def ending(row: Rollout, tasks: dict[str, Any]) -> None:
    """What became of it, and what is left to do, for the person."""
    from fleet.core.move import summary

    reason = f" ({row.reason})" if row.reason else ""
    say(f"rollout {row.id} is {row.state}: {summary(s.task for s in tasks.values())}{reason}")
    for name, stored in tasks.items():
        if stored.task.ended and stored.task.state != "done":
            nxt = f"; next: {stored.task.next_action}" if stored.task.next_action else ""
            say(f"  {name} {stored.task.state}: {stored.task.reason}{nxt}")
