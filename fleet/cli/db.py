"""`fleet db`: the inventory database."""

from __future__ import annotations

import json

import click

from fleet.cli.output import document, emit, output_option, say, settings, table
from fleet.cli.selection import opened


@click.group()
def db() -> None:
    """The inventory database: upgrade, current, log."""


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


@db.command()
@click.option("--limit", type=click.IntRange(1, 10**6), default=100, show_default=True, help="So many, newest first.")
@output_option("table", "json", "yaml", "jsonl")
@click.pass_context
def log(ctx: click.Context, limit: int, output: str) -> None:
    """Show who changed what in the inventory, and when."""
    with opened(ctx) as (_, inventory):
        entries = [vars(entry) for entry in inventory.audit_log(limit)]
    if output == "table":
        rows = [(e["at"], e["who"], e["what"], json.dumps(e["detail"], ensure_ascii=False)) for e in entries]
        table(("AT", "WHO", "WHAT", "DETAIL"), rows)
    elif output == "jsonl":
        for entry in entries:
            click.echo(json.dumps(entry, ensure_ascii=False))
    else:
        emit(document("AuditLog", {"entries": entries}), output)
