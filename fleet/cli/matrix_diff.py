"""`fleet matrix diff`: what a change of the tables does to the fleet's node classes and to stored expectations."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fleet.cli.answer import requests_of_nodes
from fleet.cli.output import document, emit, output_option, say, settings, table
from fleet.core import errors

if TYPE_CHECKING:
    from compat_matrix.moves import Answers, Move, RowChange
    from fleet.config import Settings
    from fleet.core.model import Request


@click.command()
@click.argument("what", metavar="REV|DIR")
@click.argument("nodes", required=False)
@click.option("--cases", "folders", multiple=True, metavar="DIR", help="Folders of expectations to compare too.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit 3 when an answer or an expectation changed.")
@output_option("table", "json", "yaml")
@click.pass_context
def diff(
    ctx: click.Context, what: str, nodes: str | None, folders: tuple[str, ...], detailed_exitcode: bool, output: str
) -> int:
    """Compare the tables at REV (git) or in DIR with those of now: rows, answers for the fleet's node classes, cases.

    NODES are all of the inventory where none are named; without an inventory, only rows and cases are compared.
    """
    from compat_matrix import BadMatrix, Matrix
    from compat_matrix.case import cases, requests_of, run_case
    from compat_matrix.load import digest_of, files, read_tables
    from compat_matrix.moves import answers, moves, row_changes
    from compat_matrix.revision import tables_of
    from compat_matrix.schema import Raw

    in_force = settings(ctx)
    sides: list[tuple[Matrix, dict[str, dict[str, list[Raw]]]]] = []
    for found in (
        tables_of(what, in_force.matrix_path, in_force.vendor_path),
        files(in_force.matrix_path, in_force.vendor_path),
    ):
        raw, problems = read_tables(found)
        wrong = [p for p in problems if p.severity == "error"]
        if wrong and sides:
            raise BadMatrix(problems)
        if wrong:
            say(f"the tables at {what} have {len(wrong)} error(s), rows with errors are left out; first: {wrong[0]}")
        sides.append((Matrix.of(digest_of(found), raw), raw))
    (before, old_rows), (after, new_rows) = sides
    rows = row_changes(old_rows, new_rows)
    requests = _fleet(in_force, nodes)
    expected: list[tuple[str, str, str]] = []
    requests.update({f"case {name}": request for name, request in requests_of(folders).items()})
    for folder in folders:
        if not Path(folder).is_dir():
            raise errors.UsageError(f"{folder!r} is no folder", hint="name a folder of cases")
        for case in cases(Path(folder)):
            then, now = (("; ".join(p.text for p in run_case(m, case)) or "as expected") for m in (before, after))
            if then != now:
                expected.append((case.name, then, now))
    old, new = answers(before, requests), answers(after, requests)
    moved = moves(old, new)
    if output == "table":
        _print(rows, moved, expected, old, new)
    else:
        body = {
            "from": {"name": what, "matrix": before.digest},
            "to": {"name": "now", "matrix": after.digest},
            "rows": [asdict(row) for row in rows],
            "classes": len(requests),
            "moves": [{"from": m.old, "to": m.new, "classes": list(m.classes)} for m in moved],
            "expectations": [{"case": name, "before": a, "after": b} for name, a, b in expected],
        }
        emit(document("MatrixDiff", body), output)
    return errors.DIFFERENCES if detailed_exitcode and (moved or expected) else errors.DONE


def _fleet(in_force: Settings, nodes: str | None) -> dict[str, Request]:
    """The classes of the inventory, named by their nodes. An inventory that was never made is not made now."""
    from fleet.core.nodeset import fold

    path = in_force.database.removeprefix("sqlite:///")
    if nodes is None and path != in_force.database and not Path(path.partition("?")[0]).is_file():
        say("there is no inventory: only rows and cases are compared")
        return {}
    return {fold(names): request for request, names in requests_of_nodes(in_force, nodes)[0]}


def _print(
    rows: list[RowChange], moved: list[Move], expected: list[tuple[str, str, str]], old: Answers, new: Answers
) -> None:  # fmt: skip
    if old.matrix == new.matrix:
        click.echo("the tables are the same")
    if rows:
        table(("ROW", "VENDOR", "SECTION", "OF", "AT"), [(r.what, r.vendor, r.section, r.row, r.at) for r in rows])
        click.echo()
    for move in moved:
        click.echo(str(move))
    for name, then, now in expected:
        click.echo(f"case {name}: before {then}, now {now}")
    same = len(old.stacks) - sum(len(move.classes) for move in moved)
    click.echo(f"{len(rows)} row(s) differ, {len(old.stacks) - same} of {len(old.stacks)} class(es) move")
