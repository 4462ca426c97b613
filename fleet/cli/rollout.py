"""`fleet rollout`: rollouts under way and past."""

from __future__ import annotations

from typing import Any

import click

from fleet.cli.metrics import metrics
from fleet.cli.output import document, emit, output_option, say, table
from fleet.cli.selection import moment, now, opened, operator
from fleet.cli.steering import approve, kill, reject, retry, rollback
from fleet.cli.watch import watch, why
from fleet.core import errors


@click.group()
def rollout() -> None:
    """Rollouts under way and past: list, show, watch, decide."""


@rollout.command("list")
@click.option("--all", "everything", is_flag=True, help="Finished ones too.")
@output_option("table", "json", "yaml", "name")
@click.pass_context
def list_(ctx: click.Context, everything: bool, output: str) -> int:
    """Unfinished rollouts, newest first."""
    from fleet.cli.driving import as_dict
    from fleet.core.move import summary
    from fleet.engine import Progress
    from fleet.engine.leases import LeaseEngine
    from fleet.inventory.rollouts import Rollouts

    with opened(ctx) as (_, inventory):
        store = Rollouts(inventory.database)
        found = store.rollouts(unfinished=not everything)
        drivers = {r.rollout: r.owner for r in LeaseEngine(store, lambda *_: Progress(True)).list()}
        tasks = {row.id: store.tasks(row.id) for row in found}
    if output == "name":
        for row in found:
            click.echo(row.id)
    elif output == "table":
        if not found:
            say("no rollouts" if everything else "no unfinished rollouts")
            return errors.DONE
        rows = []
        for row in found:
            counts = str(summary(s.task for s in tasks[row.id].values()))
            idle = row.state == "running" and not drivers.get(row.id)
            rows.append(
                [row.id, f"{row.state}{' (nobody drives it)' if idle else ''}", row.at, row.who, counts, row.reason]
            )
        table(["ROLLOUT", "STATE", "SINCE", "WHO", "NODES", "REASON"], rows)
    else:
        items = [{**as_dict(row, tasks[row.id]), "driver": drivers.get(row.id, "")} for row in found]
        emit(document("RolloutList", {"items": items}), output)
    return errors.DONE


@rollout.command()
@click.argument("rollout_id", metavar="ROLLOUT")
@click.option("--steps", metavar="NODE", help="Every step of this node, as it was tried.")
@output_option("table", "json", "yaml")
@click.pass_context
def show(ctx: click.Context, rollout_id: str, steps: str | None, output: str) -> int:
    """Where each node of a rollout stands, since when, why, and what comes next."""
    from fleet.cli.driving import as_dict, eta
    from fleet.core import gate
    from fleet.core.plan import cell_of
    from fleet.inventory.rollouts import Rollouts

    with opened(ctx) as (_, inventory):
        store = Rollouts(inventory.database)
        row = store.rollout(rollout_id)
        tasks = store.tasks(row.id)
        # Of ten thousand nodes these are a hundred thousand rows: only where they are shown.
        attempts = store.attempts(row.id, steps or "") if steps or output != "table" else []
        left = eta(store, row)
        waves, approvals = store.waves(row.id), store.approvals(row)
        models = {cell_of(group): f"{group.vendor} {group.model}" for group in store.plan(row.plan).groups}
    if steps and steps not in tasks:
        raise errors.NotFound(
            f"node {steps!r} is not in rollout {row.id}", hint=f"fleet rollout show {row.id}", slug="not-in-rollout"
        )
    if output != "table":
        body = {**as_dict(row, tasks), "eta": left.as_dict()}
        body["waves"] = [
            {
                "number": w.number + 1, "size": w.size, "began": moment(w.began, ""), "ended": moment(w.ended, ""),
                "gate": gate.dump(w.gate),
            }
            for w in waves
        ]  # fmt: skip
        body["approvals"] = [vars(approval) for approval in approvals]
        body["steps"] = [
            {
                "node": a.node, "direction": a.direction, "cursor": a.cursor, "phase": a.phase, "state": a.state,
                "fence": a.fence, "began": moment(a.began, ""), "ended": moment(a.ended, ""),
                "seconds": round(a.ended - a.began, 1) if a.ended else None, "detail": a.detail, "evidence": a.evidence,
            }
            for a in attempts
        ]  # fmt: skip
        emit(document("Rollout", body), output)
        return errors.DONE
    click.echo(f"rollout {row.id}: {row.state}, plan {row.plan}, by {row.who} at {row.at}")
    if row.reason:
        click.echo(f"reason: {row.reason}")
    if row.request and not row.finished:
        click.echo(f"asked for: {row.request}")
    if not row.finished:
        click.echo(f"left: {left}")
    for approval in approvals:
        why = f": {approval.why}" if approval.why else ""
        click.echo(f"approval ({approval.stage}): {approval.verdict} by {approval.who} at {approval.at}{why}")
    for wave in waves:
        for cell, said in wave.gate.items():
            accepted = " (accepted)" if said.accepted else ""
            hardware = f", {models[cell]}" if cell in models else ""
            click.echo(f"gate of wave {wave.number + 1}{hardware}: {said.verdict}{accepted}: {said.reason}")
    if steps:
        table(
            ["DIRECTION", "STEP", "RESULT", "BEGAN", "SECONDS", "DETAIL"],
            [[a.direction, a.phase, a.state, moment(a.began), f"{a.ended - a.began:.0f}" if a.ended else "-", a.detail]
             for a in attempts],
        )  # fmt: skip
        return errors.DONE
    rows = []
    for name, stored in tasks.items():
        task = stored.task
        rows.append([name, task.wave + 1, task.state, moment(task.since), task.reason or "-", task.next_action or "-"])
    table(["NODE", "WAVE", "STATE", "SINCE", "REASON", "NEXT"], rows)
    return errors.DONE


@rollout.command()
@click.argument("rollout_id", metavar="ROLLOUT")
@click.option("--parallel", type=click.IntRange(1, 64), default=4, show_default=True, help="Playbook runs at a time.")
@output_option("table", "json", "yaml")
@click.pass_context
def resume(ctx: click.Context, rollout_id: str, parallel: int, output: str) -> int:
    """Go on with a rollout: after a crash, Ctrl-C, a pause, or work that hands had to do.

    What made it pause is accepted: failures, and what a gate asked about.
    """
    from fleet import decision
    from fleet.cli.driving import drive
    from fleet.cli.following import host_of
    from fleet.inventory.rollouts import Rollouts

    with opened(ctx) as (settings, inventory):
        store = Rollouts(inventory.database)
        row = store.rollout(rollout_id)
        if row.finished:
            raise errors.UsageError(
                f"rollout {row.id} is over: {row.state}",
                slug="rollout-over",
                hint=f"fleet rollout retry {row.id} tries failed nodes again; fleet upgrade makes a new one",
            )
        accept: Any = lambda upgrade, lease: decision.reopen(upgrade, row.id, lease)  # noqa: E731
        driven = row.state == "running" and host_of(store) is not None
        row = drive(settings, inventory, row.id, first=None if driven else accept, parallel=parallel)
        return rested(store, row, output)


def rested(store: Any, row: Any, output: str) -> int:
    from fleet.cli.driving import as_dict, outcome
    from fleet.cli.upgrade import ending

    tasks = store.tasks(row.id)
    ending(row, tasks)
    if output != "table":
        emit(document("Rollout", as_dict(row, tasks)), output)
    return outcome(store, row)


@rollout.command()
@click.argument("rollout_id", metavar="ROLLOUT")
@click.pass_context
def pause(ctx: click.Context, rollout_id: str) -> int:
    """Begin no further node; nodes under way are finished by whoever drives the rollout."""
    from fleet.inventory.rollouts import Rollouts

    with opened(ctx) as (settings, inventory):
        store = Rollouts(inventory.database)
        row = store.rollout(rollout_id)
        unfinished(row)
        store.request(row.id, "pause")
        inventory.audit(operator(settings), "rollout pause", now(), {"rollout": row.id, "plan": row.plan})
    say(f"rollout {row.id} pauses; fleet rollout resume {row.id} goes on")
    return errors.DONE


def unfinished(row: Any) -> None:
    if row.finished:
        raise errors.UsageError(
            f"rollout {row.id} is over: {row.state}", hint=f"fleet rollout show {row.id}", slug="rollout-over"
        )


@rollout.command()
@click.argument("rollout_id", metavar="ROLLOUT")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option("table", "json", "yaml")
@click.pass_context
def abort(ctx: click.Context, rollout_id: str, yes: bool, output: str) -> int:
    """End a rollout: nodes under way go back to the stack they had, the rest is not touched.

    Whoever drives the rollout obeys at the next step; when nobody does, this command does it.
    """
    from fleet.cli.driving import obey
    from fleet.cli.selection import confirm
    from fleet.inventory.rollouts import Rollouts

    with opened(ctx) as (settings, inventory):
        store = Rollouts(inventory.database)
        row = store.rollout(rollout_id)
        unfinished(row)
        begun = [name for name, s in store.tasks(row.id).items() if s.task.begun]
        confirm(begun or [row.id], max(2, len(begun)), "abort and take back", yes)
        store.request(row.id, "abort")
        inventory.audit(operator(settings), "rollout abort", now(), {"rollout": row.id, "plan": row.plan})
        ended = obey(settings, inventory, row.id)
        if ended is None:
            say(f"rollout {row.id} is aborted by the process that drives it")
            return errors.DONE
        return rested(store, ended, output)


for command in (approve, reject, retry, rollback, kill, watch, why, metrics):
    rollout.add_command(command)
