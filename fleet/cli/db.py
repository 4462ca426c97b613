"""`fleet db`: the inventory database."""

from __future__ import annotations

import click

from fleet.cli.output import document, emit, output_option, say, settings, table


@click.group()
def db() -> None:
    """The inventory database: upgrade, current."""


@db.command()
@click.pass_context
def upgrade(ctx: click.Context) -> None:
    """Create the tables, or bring them to this program's schema."""
    from fleet.inventory.database import Database, revisions

    database = Database(settings(ctx).database)
    try:
        before = database.version()
        database.upgrade()
        head = revisions()[-1]
    finally:
        database.close()
    say(f"schema {head} already" if before == head else f"schema {before or 'none'} -> {head}")


@db.command()
@output_option("table", "json", "yaml")
@click.pass_context
def current(ctx: click.Context, output: str) -> None:
    """Show which database this is and its schema; changes nothing."""
    from fleet.inventory.database import Database, revisions

    database = Database(settings(ctx).database)
    try:
        found = database.version()
    finally:
        database.close()
    known = revisions()
    state = "empty" if found is None else "current" if found == known[-1] else "older" if found in known else "newer"
    body = {"url": database.shown, "schema": found, "program": known[-1], "state": state}
    if output == "table":
        table(("FIELD", "VALUE"), [(key, value if value is not None else "none") for key, value in body.items()])
    else:
        emit(document("Database", body), output)
