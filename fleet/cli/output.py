"""The one place that prints: tables, documents and errors. Data goes to stdout, everything else to stderr."""

from __future__ import annotations

import itertools
import json
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

from fleet.config import Settings, load
from fleet.core.errors import FleetError

API_VERSION = "fleet/v1"
FORMATS = ("table", "wide", "json", "yaml", "name", "jsonl")
F = TypeVar("F", bound=Callable[..., Any])


def output_option(*formats: str) -> Callable[[F], F]:
    """`-o`: the form of the answer; table by default."""
    return click.option(
        "-o", "--output", type=click.Choice(formats or FORMATS), default="table", show_default=True, help="Output form."
    )


def settings(ctx: click.Context, **flags: object) -> Settings:
    """The settings in force for this command: the global flags, then `flags` that are not None."""
    return load({**(ctx.find_root().obj or {}), **{k: v for k, v in flags.items() if v is not None}})


def document(kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON document as promised to scripts: apiVersion and kind first."""
    return {"apiVersion": API_VERSION, "kind": kind, **body}


def emit(document_: Mapping[str, Any], form: str) -> None:
    """Print one document as json or yaml."""
    if form == "yaml":
        import yaml

        click.echo(yaml.safe_dump(document_, sort_keys=False, allow_unicode=True), nl=False)
    else:
        click.echo(json.dumps(document_, indent=2, ensure_ascii=False))


def say(text: str) -> None:
    """A line for the person: stderr."""
    click.echo(text, err=True)


def width(text: str) -> int:
    """Terminal cells: wide (Chinese) characters take two, combining marks none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns padded by terminal cells, never cut; two blanks between them, none at the end of a line."""
    lines = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(width(line[i]) for line in lines) for i in range(len(header))]
    for line in lines:
        click.echo("  ".join(cell + " " * (w - width(cell)) for cell, w in zip(line, widths, strict=True)).rstrip())


def print_error(error: FleetError, args: Sequence[str] = ()) -> None:
    """`error:`, `cause:`, `hint:` on stderr; a JSON document too when the command was asked for JSON."""
    where = f" ({error.where})" if error.where else ""
    click.echo(f"error: {error.what}{where} [{error.slug}]", err=True)
    if error.cause:
        click.echo(f"cause: {error.cause}", err=True)
    if error.hint:
        click.echo(f"hint: {error.hint}", err=True)
    if any(a in {"-ojson", "--output=json"} for a in args) or any(
        a in {"-o", "--output"} and b == "json" for a, b in itertools.pairwise(args)
    ):
        json.dump(document("Error", error.as_dict()), sys.stdout, ensure_ascii=False)
        sys.stdout.write("\n")
