"""`fleet matrix`: check the tables, ask them, compare and show them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.answer import as_dict, matrix_of, print_conflict, print_solution, request_of_file
from fleet.cli.output import document, emit, output_option, say, settings, table
from fleet.core import errors

if TYPE_CHECKING:
    from compat_matrix import Matrix, Problem


@click.group()
def matrix() -> None:
    """The compatibility matrix: which versions exist, what fits, and why."""


@matrix.command()
@click.option("--format", "form", type=click.Choice(["text", "junit"]), default="text", show_default=True)
@click.option(
    "--cases", "folders", multiple=True, metavar="DIR", help="Folders of expectations the tables must answer."
)
@click.option("--matrix-path", multiple=True, metavar="DIR", help="Site tables, in place of the setting matrix_path.")
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@click.pass_context
def check(ctx: click.Context, form: str, folders: tuple[str, ...], matrix_path: tuple[str, ...], strict: bool) -> int:
    """Check every table: form, sources, versions, contradictions, expectations. Exit 4 when something is wrong."""
    from compat_matrix import check as run

    in_force = settings(ctx)
    for folder in folders:
        if not Path(folder).is_dir():
            raise errors.UsageError(f"{folder!r} is no folder", hint="name a folder of cases")
    problems = run(matrix_path or in_force.matrix_path, in_force.vendor_path, folders)
    bad = [p for p in problems if strict or p.severity == "error"]
    if form == "junit":
        click.echo(_junit(problems, bad))
    else:
        for problem in problems:
            click.echo(str(problem))
    warnings = len(problems) - len(bad)
    say(f"{len(bad)} error(s), {warnings} warning(s)" if problems else "the tables are in order")
    return errors.CHECK_SAID_NO if bad else errors.DONE


def _junit(problems: list[Problem], bad: list[Problem]) -> str:
    from xml.etree import ElementTree as Xml

    by_file: dict[str, list[Problem]] = {}
    for problem in problems:
        by_file.setdefault(problem.path, []).append(problem)
    suite = Xml.Element(
        "testsuite", name="fleet matrix check", tests=str(max(1, len(problems))), failures=str(len(bad))
    )
    if not problems:
        Xml.SubElement(suite, "testcase", classname="matrix", name="tables")
    for path, found in by_file.items():
        for problem in found:
            case = Xml.SubElement(suite, "testcase", classname=path, name=f"{problem.slug} line {problem.line}")
            if problem in bad:
                Xml.SubElement(case, "failure", message=problem.text, type=problem.slug).text = str(problem)
            else:
                Xml.SubElement(case, "system-out").text = str(problem)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(suite, encoding="unicode")


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
@output_option("table", "json", "yaml")
@click.pass_context
def show(ctx: click.Context, vendor: str | None, releases: bool, output: str) -> int:
    """What the tables hold: vendors, or the models and releases of one."""
    known = matrix_of(settings(ctx))
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
    if vendor not in known.tables:
        shown = ", ".join(known.vendors)
        raise errors.NotFound(
            f"the tables have no vendor {vendor!r}", hint=f"known are: {shown}", slug="unknown-vendor"
        )
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
    return _listing("MatrixRows", known, rows, output)


def _listing(kind: str, known: Matrix, rows: list[dict[str, Any]], output: str) -> int:
    if output != "table":
        emit(document(kind, {"matrix": known.digest, "rows": rows}), output)
    elif rows:
        table([name.upper() for name in rows[0]], [list(row.values()) for row in rows])
    else:
        say("no rows")
    return errors.DONE
