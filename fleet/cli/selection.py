"""What every command on nodes shares: how nodes are named, the inventory opened, and a change confirmed."""

from __future__ import annotations

import functools
import getpass
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fleet.cli.output import say, settings
from fleet.config import Settings
from fleet.core.errors import Interrupted, UsageError
from fleet.core.nodeset import fold

if TYPE_CHECKING:
    from fleet.core.model import Node
    from fleet.inventory import Inventory

F = TypeVar("F", bound=Callable[..., Any])
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
MANY = 50  # from here on, and from a tenth of the fleet on, a person types the number of nodes


@dataclass(frozen=True)
class Pick:
    """The nodes as named on the command line."""

    nodeset: str | None
    exclude: str | None
    selector: str | None

    @property
    def everything(self) -> bool:
        """Whether nothing narrows the choice: a changing command asks then."""
        return not (self.selector or "").strip() and (self.nodeset or "@all").strip() in ("@all", "@*")

    def nodes(self, inventory: Inventory, in_force: Settings, *, default_all: bool = False) -> list[Node]:
        """The nodes meant. With `default_all` no name and no selector means all of them."""
        from fleet.inventory.selection import select

        return select(
            inventory, self.nodeset, self.exclude, self.selector, default_all, vendor_path=in_force.vendor_path
        )


def selecting(argument: bool = True) -> Callable[[F], F]:
    """Options that name nodes: `NODES`, `-w`, `-x`, `-l`, `--limit`. The command gets them as one `pick: Pick`."""

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def wrapper(
            *args: Any,
            nodes_on: tuple[str, ...],
            exclude: tuple[str, ...],
            selector: str | None,
            limit: tuple[str, ...],
            nodes: tuple[str, ...] = (),
            **kwargs: Any,
        ) -> Any:
            named = (*nodes, *nodes_on, *limit)
            pick = Pick(",".join(named) if named else None, ",".join(exclude) if exclude else None, selector)
            return function(*args, pick=pick, **kwargs)

        options = [
            click.option("-l", "--selector", metavar="EXPR", help="By labels and facts: 'pool=gold,driver<580'."),
            click.option("-x", "--exclude", metavar="NODESET", multiple=True, help="Leave these out."),
            click.option("-w", "nodes_on", metavar="NODESET", multiple=True, help="Nodes: gpu[001-128],@rack:r07."),
            click.option("--limit", metavar="NODESET", multiple=True, help="The same as -w."),
        ]
        if argument:
            options.append(click.argument("nodes", nargs=-1))
        decorated: Any = wrapper
        for option in options:
            decorated = option(decorated)
        result: F = decorated
        return result

    return decorate


@contextmanager
def opened(ctx: click.Context) -> Iterator[tuple[Settings, Inventory]]:
    """The settings in force and the inventory they name."""
    from fleet.inventory import open_inventory

    in_force = settings(ctx)
    inventory = open_inventory(in_force.database)
    try:
        if in_force.notify_url:
            from fleet.inventory.outbox import subscribe

            subscribe(inventory.database, in_force.notify_events)
        yield in_force, inventory
    finally:
        inventory.close()


def operator(in_force: Settings) -> str:
    """Who is recorded: the setting `operator`, else the login name."""
    if in_force.operator:
        return in_force.operator
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"  # a container's user that no passwd file names


def now() -> str:
    """This moment as stored: ISO 8601, UTC, whole seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(seconds: float, never: str = "-") -> str:
    """Seconds since the epoch as ISO 8601; `never` for 0."""
    from fleet.inventory.history import iso

    return iso(seconds) or never


def confirm(names: Sequence[str], total: int, what: str, yes: bool) -> None:
    """Show what would be done to which nodes and wait for a yes; for many nodes, for their number.

    Raises UsageError where nobody can answer, Interrupted for any other answer.
    """
    say(f"{what}: {fold(names)} ({len(names)} node{'s' if len(names) != 1 else ''})")
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(
            "this needs a yes, and there is no terminal to ask on", hint="add -y", slug="confirmation-needed"
        )
    if len(names) > MANY or (len(names) > 1 and len(names) * 10 > total):
        answer = click.prompt("Type the number of nodes to go on", default="", show_default=False, err=True)
        agreed = answer.strip() == str(len(names))
    else:
        agreed = click.confirm("Go on?", default=False, err=True)
    if not agreed:
        raise Interrupted("nothing was changed", slug="not-confirmed")
