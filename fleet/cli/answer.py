"""Answers of the matrix for a person and for a script: reading the question, and printing what was found."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.output import document, say, table
from fleet.core import errors

if TYPE_CHECKING:
    from compat_matrix import Matrix
    from fleet.config import Settings
    from fleet.core.model import Conflict, Reason, Request, Solution, Source, Stage


def matrix_of(in_force: Settings) -> Matrix:
    """The shipped tables, those of the vendor path and the site's."""
    import compat_matrix

    return compat_matrix.load(in_force.matrix_path, in_force.vendor_path)


def request_of_file(file: str, strategy: str | None = None) -> Request:
    """The request in a file ('-' = standard input). Raises BadInput with `file:line`."""
    from dataclasses import replace

    import compat_matrix

    request = compat_matrix.parse_request(_text(file), "<stdin>" if file == "-" else file)
    if strategy is not None:
        request = replace(request, policy=replace(request.policy, strategy=strategy))  # type: ignore[arg-type]  # a choice of the option
    return request


def is_file(what: str) -> bool:
    """Whether a word of the command line means a request file and not nodes."""
    return what == "-" or Path(what).is_file() or Path(what).suffix in (".yaml", ".yml")


def requests_of_nodes(in_force: Settings, nodeset: str | None) -> tuple[list[tuple[Request, list[str]]], list[int]]:
    """(each class of equal nodes with its names, exit statuses of nodes that have none); None = all nodes."""
    import compat_matrix
    from fleet.inventory import open_inventory
    from fleet.inventory.selection import select
    from fleet.planning import policy_of

    inventory = open_inventory(in_force.database)
    try:
        nodes = select(inventory, nodeset, None, None, nodeset is None, vendor_path=in_force.vendor_path)
        said = inventory.facts([node.name for node in nodes])
    finally:
        inventory.close()
    classes, refused = compat_matrix.node_classes(said, policy_of(in_force))
    for node in nodes:
        if node.name not in said:
            say(f"{node.name}: never probed (fleet probe {node.name})")
        elif node.name in refused:
            say(f"{node.name}: {refused[node.name].what}")
    codes = [errors.NODES_FAILED] if refused or len(said) < len(nodes) else []
    return classes, codes


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


def as_dict(answer: Solution | Conflict) -> dict[str, Any]:
    """The JSON document of an answer, kind Solution or Conflict."""
    from fleet.core.model import Conflict

    if isinstance(answer, Conflict):
        return document("Conflict", {"causes": [reason_dict(r) for r in answer.causes], "matrix": answer.matrix})
    body = {
        "stack": dict(answer.stack),
        "road": [stage_dict(s) for s in answer.road],
        "back": None if answer.back is None else [stage_dict(s) for s in answer.back],
        "reasons": {c: [reason_dict(r) for r in found] for c, found in answer.reasons.items()},
        "level": answer.level,
        "matrix": answer.matrix,
    }
    return document("Solution", body)


def stage_dict(stage: Stage) -> dict[str, Any]:
    """One stage of a road as plain JSON values."""
    return {
        "steps": [{"component": c.component, "from": c.old, "to": c.new} for c in stage.changes],
        "reboot": stage.reboot in ("reboot", "power_cycle"),
        "activation": stage.reboot,
        "allowed": stage.allowed,
        "reasons": [reason_dict(r) for r in stage.reasons],
    }


def reason_dict(reason: Reason) -> dict[str, Any]:
    """A sentence with its source as plain JSON values."""
    return {"text": reason.text, "source": None if reason.source is None else dict(vars(reason.source))}


def class_of(request: Request) -> str:
    """The class of nodes that a request speaks of, in words."""
    system = " ".join(filter(None, (request.os.id, request.os.version))) or "an unknown system"
    return f"{request.count} x {request.vendor} {request.model} on {system}, kernel {request.os.kernel or 'not told'}"


def cited(source: Source | None) -> str:
    """A source in one line, behind its level of evidence."""
    if source is None:
        return "(no source)"
    parts = [source.title, source.section, f"seen {source.seen}" if source.seen else "", source.url, source.at]
    level = f"[{source.level}] " if source.at else ""
    return level + ", ".join(filter(None, parts))


def print_solution(request: Request, answer: Solution) -> None:
    """The chosen stack, the road there and back, and the sources, for a person."""
    click.echo(f"{class_of(request)}: evidence {answer.level} or stronger\n")
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
    lines: Mapping[str, None] = dict.fromkeys(
        f"  {component}: {cited(reason.source)}"
        for component in answer.stack
        for reason in answer.reasons.get(component, ())
        if reason.source is not None and reason.source.at
    )
    for line in lines:
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
            click.echo(f"    note: {reason.text} ({cited(reason.source)})")


def print_reasons(reasons: Iterable[Reason]) -> None:
    """Each sentence with its source below it."""
    for reason in reasons:
        click.echo(f"  - {reason.text}")
        click.echo(f"      {cited(reason.source)}")


def print_conflict(request: Request, answer: Conflict) -> None:
    """What clashes, for a person."""
    click.echo(f"Nothing fits {class_of(request)}. These clash:")
    print_reasons(answer.causes)
