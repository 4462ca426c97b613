"""`fleet controller`: the service that carries out rollouts."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.output import document, emit, output_option, say, table
from fleet.cli.selection import moment, opened
from fleet.core import errors

if TYPE_CHECKING:
    from fleet.config import Settings
    from fleet.controller import Workshop
    from fleet.engine import Engine, Tick
    from fleet.inventory import Inventory
    from fleet.inventory.rollouts import Rollouts


@click.group()
def controller() -> None:
    """The service that carries out rollouts: run, list."""


@controller.command()
@click.option("--name", metavar="NAME", help="A stable name; default the host's. No two living ones share one.")
@click.option(
    "--engine", "kind", type=click.Choice(["leases", "dbos"]), default="leases", show_default=True,
    help="What keeps track of the work: our own leases, or DBOS with a database of its own beside ours.",
)  # fmt: skip
@click.option("--parallel", type=click.IntRange(1, 64), default=4, show_default=True, help="Playbook runs at a time.")
@click.option(
    "--metrics",
    "listen",
    metavar="[HOST:]PORT",
    help="Give metrics for Prometheus there, at /metrics; HOST default loopback.",
)
@click.pass_context
def run(ctx: click.Context, name: str | None, kind: str, parallel: int, listen: str | None) -> int:
    """Carry out every rollout that runs and that nobody drives, until stopped.

    Start it once on SQLite, on as many machines as you like on PostgreSQL. `fleet upgrade` hands its rollout to it and
    follows. SIGTERM lets the steps under way end; a kill at any moment is safe. It also sends the events that the
    settings notify_… ask for, and keeps the file of the setting metrics_file.
    """
    from fleet.cli.metrics import exposed
    from fleet.controller import Controller, Workshop, seated
    from fleet.inventory.rollouts import Rollouts
    from fleet.notify import notifying

    stop = threading.Event()

    def stopping(number: int, _frame: Any) -> None:
        if stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        stop.set()
        say("the running steps end first; the same signal again stops at once, which is safe")

    with opened(ctx) as (settings, inventory), ExitStack() as stack:
        store = Rollouts(inventory.database)
        seat = name or socket.gethostname()
        for number in (signal.SIGINT, signal.SIGTERM):
            stack.callback(signal.signal, number, signal.signal(number, stopping))
        single = inventory.database.dialect == "sqlite"
        stack.enter_context(seated(store, seat, stop, single=single))
        stack.enter_context(notifying(settings, inventory.database, store.clock, say))
        stack.enter_context(exposed(settings, store, parallel, listen))
        workshop = Workshop(_doors(settings, inventory, parallel))
        engine = _engine(kind, store, workshop, seat, stop, stack)
        say(f"controller {seat} carries out the rollouts of {inventory.database.shown} ({kind})")
        Controller(store, engine, stop, done=workshop.done, say=say).run()
    say(f"controller {seat} has ended")
    return errors.DONE


def _doors(settings: Settings, inventory: Inventory, parallel: int) -> Any:
    from fleet.cli.driving import carrying

    @contextmanager
    def open_(rollout: str) -> Iterator[Tick]:
        with carrying(settings, inventory, rollout, parallel=parallel) as upgrade:
            yield upgrade.tick

    return open_


def _engine(
    kind: str, store: Rollouts, workshop: Workshop, name: str, stop: threading.Event, stack: ExitStack
) -> Engine:
    if kind == "leases":
        from fleet.engine.leases import LeaseEngine

        return LeaseEngine(store, workshop.tick, stop=stop)
    try:
        from fleet.engine.durable import DurableEngine, engine_url, shut
    except ImportError as error:
        raise errors.UsageError(
            "the engine `dbos` needs the dbos package", cause=str(error), hint="pip install 'accelfleet[dbos]'",
            slug="no-dbos",
        ) from error  # fmt: skip
    stack.callback(shut)
    url = engine_url(store.database.url.render_as_string(hide_password=False))
    return DurableEngine(store, workshop.tick, url=url, executor=name, stop=stop)


@controller.command("list")
@output_option("table", "json", "yaml", "name")
@click.pass_context
def list_(ctx: click.Context, output: str) -> int:
    """The controllers that are alive."""
    from fleet.controller import living
    from fleet.inventory.rollouts import Rollouts

    with opened(ctx) as (_, inventory):
        store = Rollouts(inventory.database)
        found = living(store, store.clock())
    if output == "name":
        for each in found:
            click.echo(each.name)
    elif output == "table":
        if not found:
            say("no controller is alive; fleet upgrade and fleet rollout resume carry out rollouts themselves")
            return errors.DONE
        rows = [[c.name, c.owner, moment(c.heartbeat), c.version, c.protocol] for c in found]
        table(["CONTROLLER", "PROCESS", "HEARTBEAT", "VERSION", "PROTOCOL"], rows)
    else:
        items = [
            {"name": c.name, "process": c.owner, "heartbeat": moment(c.heartbeat), "version": c.version,
             "protocol": c.protocol}
            for c in found
        ]  # fmt: skip
        emit(document("ControllerList", {"items": items}), output)
    return errors.DONE
