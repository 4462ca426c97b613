"""`fleet matrix`: check the tables, ask them, compare and show them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.answer import as_dict, matrix_of, print_conflict, print_solution, request_of_file
from fleet.cli.matrix_diff import diff
from fleet.cli.output import document, emit, output_option, say, settings, table
from fleet.core import errors

if TYPE_CHECKING:
    from compat_matrix import Matrix


@click.group()
def matrix() -> None:
    """The compatibility matrix: which versions exist, what fits, and why."""


matrix.add_command(diff)


@matrix.command()
@click.option(
    "--format", "form", type=click.Choice(["text", "junit", "sarif", "github"]), default="text", show_default=True
)
@click.option(
    "--cases", "folders", multiple=True, metavar="DIR", help="Folders of expectations the tables must answer."
)
@click.option("--answers", metavar="FILE", help="Stored stacks of the cases: a case whose stack moved is an error.")
@click.option("--write-answers", metavar="FILE", help="Store the stacks of the cases of now, for --answers.")
@click.option("--matrix-path", multiple=True, metavar="DIR", help="Site tables, in place of the setting matrix_path.")
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@click.pass_context
def check(
    ctx: click.Context,
    form: str,
    folders: tuple[str, ...],
    answers: str | None,
    write_answers: str | None,
    matrix_path: tuple[str, ...],
    strict: bool,
) -> int:
    """Check every table: form, sources, versions, contradictions, reach, expectations. Exit 4 where one is wrong."""
    from compat_matrix import check as run
    from fleet.cli.findings import github, junit, sarif

    in_force = settings(ctx)
    for folder in folders:
        if not Path(folder).is_dir():
            raise errors.UsageError(f"{folder!r} is no folder", hint="name a folder of cases")
    if (answers or write_answers) and not folders:
        raise errors.UsageError("stored answers need --cases: the classes they are answers for", hint="--cases DIR")
    paths = matrix_path or in_force.matrix_path
    stored = None if answers is None else (answers, _text(answers))
    problems = run(paths, in_force.vendor_path, folders, stored)
    bad = [p for p in problems if strict or p.severity == "error"]
    if form == "junit":
        click.echo(junit(problems, bad))
    elif form == "sarif":
        click.echo(sarif(problems, bad, Path.cwd()))
    elif form == "github":
        click.echo(github(problems, bad, Path.cwd()), nl=bool(problems))
    else:
        for problem in problems:
            click.echo(str(problem))
    warnings = len(problems) - len(bad)
    say(f"{len(bad)} error(s), {warnings} warning(s)" if problems else "the tables are in order")
    if write_answers is not None and not bad:
        _write_answers(Path(write_answers), folders, paths, in_force.vendor_path)
    return errors.CHECK_SAID_NO if bad else errors.DONE


def _text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise errors.BadInput(
            f"{file!r} cannot be read: {error}", where=file, hint="--write-answers makes it"
        ) from None


def _write_answers(file: Path, folders: tuple[str, ...], paths: Sequence[str], vendor_path: Sequence[str]) -> None:
    import json

    from compat_matrix import load
    from compat_matrix.case import requests_of
    from compat_matrix.moves import answers

    found = answers(load(paths, vendor_path), requests_of(folders))
    file.write_text(json.dumps(found.as_dict(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    say(f"{len(found.stacks)} answers are stored in {file}")


@matrix.command()
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--strategy", type=click.Choice(["validated", "newest", "minimal"]), help="Overrides policy.strategy.")
@output_option("table", "json", "yaml")
@click.pass_context
def solve(ctx: click.Context, file: str, strategy: str | None, output: str) -> int:
    """Choose the stack for the node class that FILE describes ('-' = standard input). Exit 5 when nothing fits."""
    import compat_matrix
    from fleet.core.model import Conflict

    request = request_of_file(file, strategy)
    answer = compat_matrix.solve(matrix_of(settings(ctx)), request)
    if output != "table":
        emit(as_dict(answer), output)
    elif isinstance(answer, Conflict):
        print_conflict(request, answer)
    else:
        print_solution(request, answer)
    return errors.REFUSED if isinstance(answer, Conflict) else errors.DONE


@matrix.command()
@click.argument("vendor", required=False)
@click.option("--releases", is_flag=True, help="Every release, not only the models.")
@click.option("--html", "page", metavar="FILE", help="Write one static HTML file: each cell opens its rule and source.")
@output_option("table", "json", "yaml")
@click.pass_context
def show(ctx: click.Context, vendor: str | None, releases: bool, page: str | None, output: str) -> int:
    """What the tables hold: vendors, or the models, systems and drivers of one."""
    known = matrix_of(settings(ctx))
    if vendor is not None and vendor not in known.tables:
        shown = ", ".join(known.vendors)
        raise errors.NotFound(
            f"the tables have no vendor {vendor!r}", hint=f"known are: {shown}", slug="unknown-vendor"
        )
    if page is not None:
        return _html(known, [vendor] if vendor else list(known.vendors), page)
    if vendor is None:
        rows = [
            {
                "vendor": name,
                "models": len(t.models),
                "releases": sum(map(len, t.releases.values())),
                "rules": len(t.rules),
                "records": len(t.records),
            }
            for name, t in sorted(known.tables.items())
        ]
        return _listing("MatrixSummary", known, rows, output)
    tables = known.tables[vendor]
    if releases:
        rows = [
            {
                "component": component,
                "version": r.version,
                "channel": r.channel,
                "released": r.released,
                "eol": r.eol,
                "level": r.level,
                "source": r.source.title,
                "row": r.at,
            }
            for component, found in tables.releases.items()
            for r in found
        ]
    else:
        rows = [
            {
                "model": m.name,
                "architecture": m.architecture,
                "pci": ",".join(m.pci),
                "aliases": "; ".join(m.aliases),
                "row": m.at,
            }
            for m in tables.models
        ]
        if output == "table":
            return _page(known, vendor)
    return _listing("MatrixRows", known, rows, output)


def _page(known: Matrix, vendor: str) -> int:
    """Models and systems of a vendor with the drivers that the rows allow, for a person."""
    from compat_matrix import grid

    tables = known.tables[vendor]
    scheme = tables.components["driver"].scheme if "driver" in tables.components else "generic"
    click.echo(f"{vendor}: {len(tables.models)} models, {len(tables.rules)} rules, {len(tables.records)} records\n")
    rows = [
        (m.name, m.kind, grid.span(m.allowed, scheme), ",".join(getattr(m.row, "pci", ())) or "-", m.row.at)
        for m in grid.models(tables)
    ]
    table(("MODEL", "ARCHITECTURE", "DRIVERS", "PCI", "ROW"), rows)
    found = grid.systems(known, tables)
    if found:
        click.echo()
        lines = [
            (line.name, "; ".join(f"{level} {grid.span(v, scheme)}" for level, v in line.by_level().items()) or "none")
            for line in found
        ]
        table(("SYSTEM", "DRIVERS BY EVIDENCE"), lines)
    say("a driver is named here when no row about the model, or the system, refuses it; `fleet matrix solve` decides")
    return errors.DONE


def _html(known: Matrix, vendors: list[str], file: str) -> int:
    from compat_matrix.page import page

    text = page(known, vendors)
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        what = f"{file!r} cannot be written: {error.strerror or error}"
        raise errors.BadInput(what, where=file, hint="name a file in a folder that is there") from None
    say(f"{file}: {len(text) / 1024:.0f} KiB, {', '.join(vendors)}")
    return errors.DONE


def _listing(kind: str, known: Matrix, rows: list[dict[str, Any]], output: str) -> int:
    if output != "table":
        emit(document(kind, {"matrix": known.digest, "rows": rows}), output)
    elif rows:
        table([name.upper() for name in rows[0]], [list(row.values()) for row in rows])
    else:
        say("no rows")
    return errors.DONE
