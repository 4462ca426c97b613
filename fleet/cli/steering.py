"""What a person decides about a rollout: approve, reject, retry nodes, roll back, kill."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.output import document, emit, output_option, say
from fleet.cli.selection import confirm, now, opened, operator
from fleet.core import errors
from fleet.core.move import STAGES

if TYPE_CHECKING:
    from fleet.config import Settings
    from fleet.inventory import Inventory
    from fleet.inventory.rollouts import Lease, Rollout, Rollouts
    from fleet.upgrade import Upgrade

_rollout = click.argument("rollout_id", metavar="ROLLOUT")
_stage = click.option("--stage", type=click.Choice(STAGES), help="What is meant: to begin, or to go on after the "
                      "canaries; default the one that waits for it.")  # fmt: skip
_yes = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
_parallel = click.option("--parallel", type=click.IntRange(1, 64), default=4, show_default=True,
                         help="Playbook runs at a time.")  # fmt: skip


@click.command()
@_rollout
@_stage
@click.option("--plan", "plan_id", metavar="PLAN", help="The plan that was looked at; refused when it is another one.")
@click.option("--why", default="", help="For the record.")
@_yes
@click.pass_context
def approve(ctx: click.Context, rollout_id: str, stage: str | None, plan_id: str | None, why: str, yes: bool) -> int:
    """Say yes to the plan of a rollout that waits for it (`--approve`). It holds for exactly that plan.

    Whoever began the rollout cannot approve it, unless the setting `own_approval` allows it.
    """
    return _said(ctx, rollout_id, stage, plan_id, why, yes, "yes")


@click.command()
@_rollout
@_stage
@click.option("--plan", "plan_id", metavar="PLAN", help="The plan that was looked at; refused when it is another one.")
@click.option("--why", required=True, help="What is wrong with it.")
@click.pass_context
def reject(ctx: click.Context, rollout_id: str, stage: str | None, plan_id: str | None, why: str) -> int:
    """Say no to the plan of a rollout: it stays paused until somebody approves it after all, or aborts it."""
    return _said(ctx, rollout_id, stage, plan_id, why, True, "no")


def _said(
    ctx: click.Context, rollout_id: str, wanted: str | None, plan_id: str | None, why: str, yes: bool, verdict: str
) -> int:
    from fleet.cli.rollout import unfinished
    from fleet.inventory.rollouts import Approval, Rollouts

    with opened(ctx) as (settings, inventory):
        store = Rollouts(inventory.database)
        row = store.rollout(rollout_id)
        unfinished(row)
        who = operator(settings)
        stage = wanted or _missing(store, row)
        if plan_id and plan_id != row.plan:
            raise errors.StalePlan(
                f"rollout {row.id} carries out plan {row.plan}, not {plan_id}", hint=f"fleet rollout show {row.id}",
                slug="other-plan",
            )  # fmt: skip
        if verdict == "yes" and who == row.who and not settings.own_approval:
            raise errors.Refused(
                f"{who} began rollout {row.id} and cannot approve it", slug="own-approval",
                hint=f"somebody else runs fleet rollout approve {row.id}, or the setting own_approval = true allows it",
            )  # fmt: skip
        nodes = store.tasks(row.id)
        if verdict == "yes":
            say(f"plan {row.plan}: {len(nodes)} nodes, begun by {row.who} at {row.at}")
            confirm(list(nodes), len(inventory.nodes()), f"approve ({stage})", yes)
        store.approve(Approval(row.id, row.plan, stage, verdict, who, why, now()))
        detail = {"rollout": row.id, "plan": row.plan, "stage": stage, "why": why}
        inventory.audit(who, f"rollout {'approve' if verdict == 'yes' else 'reject'}", now(), detail)
        if verdict == "yes" and not _driven(store, row.id):
            say(f"approved; fleet rollout resume {row.id} goes on")
    return errors.DONE


def _missing(store: Rollouts, row: Rollout) -> str:
    """The first stage that the plan asks a yes for and that has none."""
    asked = store.plan(row.plan).policy.get("approve")
    given = {approval.stage: approval.verdict for approval in store.approvals(row)}
    left = [
        stage for stage in STAGES if isinstance(asked, list | tuple) and stage in asked and given.get(stage) != "yes"
    ]
    return left[0] if left else STAGES[0]


def _driven(store: Rollouts, rollout: str) -> bool:
    """Whether a process drives the rollout, or a controller will."""
    from fleet.cli.following import host_of
    from fleet.engine import Progress
    from fleet.engine.leases import LeaseEngine

    engine = LeaseEngine(store, lambda *_: Progress(True))
    return host_of(store) is not None or any(r.rollout == rollout and r.owner for r in engine.list())


@click.command()
@_rollout
@click.argument("nodeset", metavar="[NODES]", required=False)
@_yes
@_parallel
@output_option("table", "json", "yaml")
@click.pass_context
def retry(
    ctx: click.Context, rollout_id: str, nodeset: str | None, yes: bool, parallel: int, output: str
) -> int:  # fmt: skip
    """Try nodes again that failed, went back or were held; by default all of them. Also when the rollout is over.

    They go through every step from the first one; what moves together with them goes too. A node that is neither as it
    was planned nor as this rollout left it is held as stale.
    """
    from fleet import decision
    from fleet.core.nodeset import expand
    from fleet.inventory.rollouts import Rollouts

    with opened(ctx) as (settings, inventory):
        store = Rollouts(inventory.database)
        row = store.rollout(rollout_id)
        tasks = {name: stored.task for name, stored in store.tasks(row.id).items()}
        meant = expand(nodeset) if nodeset else list(tasks)
        for name in meant:
            if name not in tasks:
                raise errors.NotFound(
                    f"node {name!r} is not in rollout {row.id}", hint=f"fleet rollout show {row.id}",
                    slug="not-in-rollout",
                )  # fmt: skip
        names = sorted(decision.triable(row, tasks, meant))
        if not names:
            say(f"no node of rollout {row.id} is to be tried again")
            return errors.DONE
        confirm(names, len(inventory.nodes()), "retry", yes)
        return _steer(settings, inventory, store, row, output, parallel,
                      lambda upgrade, lease: decision.retry(upgrade, row.id, lease, names))  # fmt: skip


@click.command()
@_rollout
@_yes
@_parallel
@output_option("table", "json", "yaml")
@click.pass_context
def rollback(ctx: click.Context, rollout_id: str, yes: bool, parallel: int, output: str) -> int:
    """Take every node of a rollout back to the stack it had, by the way back planned with it. Also when it is over.

    Nodes under way turn at their next step; nodes that are done leave service again within the budgets and go back;
    the rest is not touched. A node that somebody changed since is held as stale.
    """
    from fleet import decision
    from fleet.core.task import STAYS
    from fleet.inventory.rollouts import Rollouts

    with opened(ctx) as (settings, inventory):
        store = Rollouts(inventory.database)
        row = store.rollout(rollout_id)
        back = [name for name, s in store.tasks(row.id).items()
                if s.task.state == "done" or s.task.begun or s.task.reason.startswith(STAYS)]  # fmt: skip
        if not back and row.finished:
            say(f"no node of rollout {row.id} has anything to go back from")
            return errors.DONE
        confirm(back or [row.id], max(2, len(inventory.nodes())), "roll back", yes)
        if row.state == "running" and _driven(store, row.id) and store.request(row.id, "rollback"):
            detail = {"rollout": row.id, "plan": row.plan}
            inventory.audit(operator(settings), "rollout rollback", now(), detail)
            say(f"rollout {row.id} is rolled back by the process that drives it: fleet rollout watch {row.id}")
            return errors.DONE
        return _steer(settings, inventory, store, row, output, parallel,
                      lambda upgrade, lease: decision.roll_back(upgrade, row.id, lease))  # fmt: skip


def _steer(
    settings: Settings, inventory: Inventory, store: Rollouts, row: Rollout, output: str, parallel: int,
    decided: Callable[[Upgrade, Lease], object],
) -> int:  # fmt: skip
    from fleet.cli.driving import drive
    from fleet.cli.rollout import rested

    try:
        row = drive(settings, inventory, row.id, first=decided, parallel=parallel)
    except errors.Locked as error:
        if error.slug != "rollout-running":
            raise
        raise errors.Locked(
            error.what, cause="its nodes can be decided on only while nobody drives it",
            hint=f"fleet rollout pause {row.id}, then the same command again", slug="rollout-running",
        ) from error  # fmt: skip
    return rested(store, row, output)


@click.command()
@_rollout
@_yes
@output_option("table", "json", "yaml")
@click.pass_context
def kill(ctx: click.Context, rollout_id: str, yes: bool, output: str) -> int:
    """Stop a rollout at once, in the middle of steps: nothing more is begun, waited for or taken back.

    Playbooks are ended; what a node itself has begun goes on there to its end. The nodes are held as ambiguous, their
    places in the budgets stay taken. `fleet rollout resume` looks where each one stands and goes on, `abort` takes them
    back.
    """
    from fleet.cli.driving import as_dict, obey
    from fleet.cli.rollout import rested, unfinished
    from fleet.inventory.rollouts import Rollouts

    with opened(ctx) as (settings, inventory):
        store = Rollouts(inventory.database)
        row = store.rollout(rollout_id)
        unfinished(row)
        begun = [name for name, s in store.tasks(row.id).items() if s.task.begun]
        if not begun and row.state == "paused":  # nobody would read the request before a resume, which is no kill
            say(f"nothing of rollout {row.id} is under way: it stays paused")
            return errors.PAUSED
        confirm(begun or [row.id], max(2, len(inventory.nodes())), "kill in the middle of a step", yes)
        store.request(row.id, "kill")
        inventory.audit(operator(settings), "rollout kill", now(), {"rollout": row.id, "plan": row.plan})
        ended = None if row.state == "running" and _driven(store, row.id) else obey(settings, inventory, row.id)
        if ended is None:
            say(f"rollout {row.id} is killed by the process that drives it")
            if output != "table":
                body: dict[str, Any] = as_dict(row, store.tasks(row.id))
                emit(document("Rollout", body), output)
            return errors.DONE
        return rested(store, ended, output)
