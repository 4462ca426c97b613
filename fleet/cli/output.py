"""The one place that prints: tables, documents and errors. Data goes to stdout, everything else to stderr."""

from __future__ import annotations

import contextlib
import itertools
import json
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

from fleet.config import Settings, load
from fleet.core.errors import FleetError

API_VERSION = "fleet/v1"
FORMATS = ("table", "wide", "json", "yaml", "name", "jsonl")
_BLANKS = "\u3000\u00a0"  # blanks in Chinese and in French texts
_LONGEST = 1200  # characters of one part of an error
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


def printable(text: str) -> str:
    """Text for one line of a terminal: what would move its cursor, change its colours or its order is shown escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _BLANKS else repr(c)[1:-1] for c in text)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns padded by terminal cells, never cut; two blanks between them, none at the end of a line."""
    lines = [[printable(str(cell)) for cell in row] for row in (header, *rows)]
    widths = [max(width(line[i]) for line in lines) for i in range(len(header))]
    for line in lines:
        click.echo("  ".join(cell + " " * (w - width(cell)) for cell, w in zip(line, widths, strict=True)).rstrip())


def print_error(error: FleetError, args: Sequence[str] = ()) -> None:
    """`error:`, `cause:`, `hint:` on stderr; a document too when the command was asked for one."""
    where = f" ({_short(error.where)})" if error.where else ""
    hint = error.hint or f"fleet help {error.slug}"
    lines = [f"error: {_short(error.what)}{where} [{error.slug}]"]
    lines += [f"cause: {_short(error.cause)}"] if error.cause else []
    with contextlib.suppress(OSError):  # nobody can be told where even standard error is gone
        click.echo("\n".join([*lines, f"hint: {_short(hint)}"]), err=True)
    form = _asked_for(args)
    if form:
        body = document("Error", {**error.as_dict(), "hint": hint})
        with contextlib.suppress(OSError):
            if form == "yaml":
                emit(body, form)
            else:
                click.echo(json.dumps(body, ensure_ascii=False))


def _asked_for(args: Sequence[str]) -> str:
    """json or yaml, where `-o` names it. Lines of jsonl are data only: a reader of them looks at the exit status."""
    given = [b for a, b in itertools.pairwise(args) if a in ("-o", "--output")]
    given += [a.removeprefix("-o") for a in args if a.startswith("-o")]
    given += [a.removeprefix("--output=") for a in args if a.startswith("--output=")]
    return next((form for form in given if form in ("json", "yaml")), "")


def _short(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"
