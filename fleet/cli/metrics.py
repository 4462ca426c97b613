"""`fleet rollout metrics`, and how a controller gives the same figures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fleet.cli.output import say
from fleet.cli.selection import opened
from fleet.core import errors

if TYPE_CHECKING:
    from fleet.config import Settings
    from fleet.inventory.rollouts import Rollouts


@click.command()
@click.option(
    "--file", metavar="FILE", help="Write it there in one step, - for standard output.  [default: setting metrics_file]"
)
@click.option("--parallel", type=click.IntRange(1, 64), default=4, show_default=True, help="For the estimated end.")
@click.pass_context
def metrics(ctx: click.Context, file: str | None, parallel: int) -> int:
    """Figures for Prometheus: rollouts, steps, budgets, controllers, webhooks. For a timer where no controller runs."""
    from fleet.inventory.rollouts import Rollouts
    from fleet.metrics import Metrics, write

    with opened(ctx) as (settings, inventory):
        text = Metrics(Rollouts(inventory.database), parallel).text()
        target = file or settings.metrics_file or "-"
    if target == "-":
        click.echo(text, nl=False)
    else:
        write(Path(target), text)
    return errors.DONE


@contextmanager
def exposed(settings: Settings, store: Rollouts, parallel: int, listen: str | None) -> Iterator[None]:
    """While this lasts, metrics are given at the address `listen` and in the file that the settings name."""
    from fleet.metrics import Metrics, address, kept, serving

    with ExitStack() as stack:
        found = Metrics(store, parallel)
        if listen is not None:
            at = address(listen)
            port = stack.enter_context(serving(found, at))
            say(f"metrics at http://{f'[{at[0]}]' if ':' in at[0] else at[0]}:{port}/metrics")
        if settings.metrics_file:
            stack.enter_context(kept(found, Path(settings.metrics_file), say))
        yield
