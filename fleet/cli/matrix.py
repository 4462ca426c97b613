"""`fleet matrix` and `fleet why`: check the tables, ask them, and be told the reasons with their sources."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.output import document, emit, output_option, say, settings, table
from fleet.core import errors

if TYPE_CHECKING:
    from compat_matrix import Matrix, Problem
    from fleet.config import Settings
    from fleet.core.model import Conflict, Reason, Request, Solution, Source, Stage


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
    in_force = settings(ctx)
    request, answer = _answer(in_force, file, strategy)
    return _print(request, answer, output, [], reasons=False)


@matrix.command()
@click.argument("vendor", required=False)
@click.option("--releases", is_flag=True, help="Every release, not only the models.")
@output_option("table", "json", "yaml")
@click.pass_context
def show(ctx: click.Context, vendor: str | None, releases: bool, output: str) -> int:
    """What the tables hold: vendors, or the models and releases of one."""
    known = _matrix(settings(ctx))
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


@click.command()
@click.argument("what", metavar="FILE|NODES")
@click.argument("component", required=False)
@output_option("table", "json", "yaml")
@click.pass_context
def why(ctx: click.Context, what: str, component: str | None, output: str) -> int:
    """Why these versions: every reason with its source, for a request file or for nodes of the inventory."""
    from fleet.core.model import component as known_component

    wanted: list[str] = []
    if component is not None:
        name = known_component(component)
        if name is None:
            raise errors.UsageError(f"{component!r} is not a component", hint="fleet why FILE, without a component")
        wanted = [name]
    in_force = settings(ctx)
    if what == "-" or Path(what).is_file() or Path(what).suffix in (".yaml", ".yml"):
        request, answer = _answer(in_force, what, None)
        return _print(request, answer, output, wanted, reasons=True)
    return _why_nodes(in_force, what, wanted, output)


def _why_nodes(in_force: Settings, nodeset: str, wanted: list[str], output: str) -> int:
    import compat_matrix
    from fleet.core.nodeset import fold
    from fleet.inventory import open_inventory
    from fleet.inventory.selection import select

    known = _matrix(in_force)
    inventory = open_inventory(in_force.database)
    try:
        nodes = select(inventory, nodeset, None, None, False, vendor_path=in_force.vendor_path)
        said = inventory.facts([node.name for node in nodes])
    finally:
        inventory.close()
    classes: dict[str, tuple[Request, list[str]]] = {}
    codes = []
    for node in nodes:
        if node.name not in said:
            say(f"{node.name}: never probed (fleet probe {node.name})")
            codes.append(errors.NODES_FAILED)
            continue
        try:
            request = compat_matrix.request_of(said[node.name], _policy(in_force))
        except errors.Refused as error:
            say(f"{node.name}: {error.what}")
            codes.append(errors.NODES_FAILED)
            continue
        classes.setdefault(repr(request), (request, []))[1].append(node.name)
    for request, names in classes.values():
        if output == "table":
            click.echo(f"{fold(names)}:")
        answer = compat_matrix.solve(known, request)
        codes.append(_print(request, answer, output, wanted, reasons=True, nodes=names))
    return errors.worst(codes)


def _policy(in_force: Settings) -> Any:
    from dataclasses import replace
    from typing import get_args

    from fleet.core.model import LEVELS, Channel, Policy

    policy = Policy()
    channel = next((c for c in get_args(Channel) if c == in_force.channel), None)
    level = next((known for known in LEVELS if known == in_force.min_level), None)
    if channel is None or level is None:
        what = f"setting channel {in_force.channel!r} or min_level {in_force.min_level!r} is not known"
        raise errors.UsageError(what, hint="fleet config show", slug="bad-setting")
    return replace(policy, channel=channel, min_level=level)


def _matrix(in_force: Settings) -> Matrix:
    import compat_matrix

    return compat_matrix.load(in_force.matrix_path, in_force.vendor_path)


def _answer(in_force: Settings, file: str, strategy: str | None) -> tuple[Request, Solution | Conflict]:
    from dataclasses import replace

    import compat_matrix

    text = _text(file)
    request = compat_matrix.parse_request(text, "<stdin>" if file == "-" else file)
    if strategy is not None:
        request = replace(request, policy=replace(request.policy, strategy=strategy))  # type: ignore[arg-type]
    return request, compat_matrix.solve(_matrix(in_force), request)


def _text(file: str) -> str:
    from compat_matrix.document import MAX_BYTES

    try:
        data = sys.stdin.buffer.read(MAX_BYTES + 1) if file == "-" else _bytes(Path(file), MAX_BYTES)
        if len(data) > MAX_BYTES:
            raise errors.BadInput(
                "the file is larger than a request can be (4 MB)", where=f"{file}:1", slug="too-large"
            )
        return data.decode("utf-8-sig")
    except OSError as error:
        what = f"{file!r} cannot be read: {error.strerror or error}"
        raise errors.BadInput(what, where=file, hint="name a request file (YAML)") from None
    except UnicodeDecodeError:
        raise errors.BadInput("the file is not UTF-8 text", where=f"{file}:1") from None


def _bytes(path: Path, limit: int) -> bytes:
    with path.open("rb") as file:
        return file.read(limit + 1)


# --- printing -------------------------------------------------------------------------------------------------------


def as_dict(answer: Solution | Conflict) -> dict[str, Any]:
    """The JSON document of an answer, kind Solution or Conflict."""
    from fleet.core.model import Conflict

    if isinstance(answer, Conflict):
        return document("Conflict", {"causes": [_reason(r) for r in answer.causes], "matrix": answer.matrix})
    body = {
        "stack": dict(answer.stack),
        "road": [_stage(s) for s in answer.road],
        "back": None if answer.back is None else [_stage(s) for s in answer.back],
        "reasons": {c: [_reason(r) for r in found] for c, found in answer.reasons.items()},
        "level": answer.level,
        "matrix": answer.matrix,
    }
    return document("Solution", body)


def _stage(stage: Stage) -> dict[str, Any]:
    return {
        "steps": [{"component": c.component, "from": c.old, "to": c.new} for c in stage.changes],
        "reboot": stage.reboot in ("reboot", "power_cycle"),
        "activation": stage.reboot,
        "allowed": stage.allowed,
        "reasons": [_reason(r) for r in stage.reasons],
    }


def _reason(reason: Reason) -> dict[str, Any]:
    return {"text": reason.text, "source": None if reason.source is None else dict(vars(reason.source))}


def _print(
    request: Request,
    answer: Solution | Conflict,
    output: str,
    wanted: list[str],
    *,
    reasons: bool,
    nodes: Iterable[str] = (),
) -> int:
    from fleet.core.model import Conflict

    code = errors.REFUSED if isinstance(answer, Conflict) else errors.DONE
    if output != "table":
        shown = as_dict(answer)
        if nodes:
            shown["nodes"] = list(nodes)
        if wanted and "reasons" in shown:
            shown["reasons"] = {c: shown["reasons"].get(c, []) for c in wanted}
        emit(shown, output)
        return code
    if isinstance(answer, Conflict):
        click.echo(f"Nothing fits {_class(request)}. These clash:")
        for reason in answer.causes:
            click.echo(f"  - {reason.text}")
            click.echo(f"      {_cited(reason.source)}")
        return code
    if reasons:
        _why(answer, wanted)
    else:
        _solution(request, answer)
    return code


def _class(request: Request) -> str:
    system = " ".join(filter(None, (request.os.id, request.os.version))) or "an unknown system"
    return f"{request.count} x {request.vendor} {request.model} on {system}, kernel {request.os.kernel or 'not told'}"


def _cited(source: Source | None) -> str:
    if source is None:
        return "(no source)"
    parts = [source.title, source.section, f"seen {source.seen}" if source.seen else "", source.url, source.at]
    level = f"[{source.level}] " if source.at else ""
    return level + ", ".join(filter(None, parts))


def _solution(request: Request, answer: Solution) -> None:
    click.echo(f"{_class(request)}: evidence {answer.level} or stronger\n")
    rows = []
    for component, version in answer.stack.items():
        now = request.current.get(component, "-")
        first = answer.reasons.get(component, ())
        rows.append((component, now, version, first[0].text if first else ""))
    table(("COMPONENT", "NOW", "CHOSEN", "BECAUSE"), rows)
    _road("Road", answer.road)
    if answer.back is None:
        click.echo("\nWay back: there is none.")
    elif answer.road:
        _road("Way back", answer.back)
    click.echo("\nSources")
    cited: Mapping[str, None] = dict.fromkeys(
        f"  {component}: {_cited(reason.source)}"
        for component in answer.stack
        for reason in answer.reasons.get(component, ())
        if reason.source is not None and reason.source.at
    )
    for line in cited:
        click.echo(line)


def _road(title: str, stages: Iterable[Stage]) -> None:
    found = list(stages)
    if not found:
        click.echo(f"\n{title}: nothing to do.")
        return
    click.echo(f"\n{title}")
    for number, stage in enumerate(found, 1):
        mark = "" if stage.allowed else "  MAINTENANCE: no supported set, node stays drained"
        click.echo(f"  stage {number}, then {stage.reboot.replace('_', ' ')}{mark}")
        for change in stage.changes:
            click.echo(f"    {change.component}: {change.old or 'not there'} -> {change.new or 'taken off'}")
        for reason in stage.reasons:
            click.echo(f"    note: {reason.text} ({_cited(reason.source)})")


def _why(answer: Solution, wanted: list[str]) -> None:
    for component in wanted or list(dict.fromkeys((*answer.stack, *answer.reasons))):
        version = answer.stack.get(component)
        click.echo(f"{component} {version}" if version else f"{component}: not in the stack")
        for reason in answer.reasons.get(component, ()):
            click.echo(f"  - {reason.text}")
            click.echo(f"      {_cited(reason.source)}")
        if component not in answer.reasons:
            say(f"the answer says nothing of {component}")
