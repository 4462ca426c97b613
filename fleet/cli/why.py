"""`fleet why` and `fleet why-not`: the reasons for a version, and what speaks against another, with their sources."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.answer import (
    as_dict,
    class_of,
    is_file,
    matrix_of,
    print_conflict,
    print_reasons,
    reason_dict,
    request_of_file,
    requests_of_nodes,
)
from fleet.cli.output import document, emit, output_option, say, settings
from fleet.core import errors

if TYPE_CHECKING:
    from compat_matrix import Explanation
    from fleet.core.model import Conflict, Request, Solution


@click.command()
@click.argument("what", metavar="FILE|NODES")
@click.argument("component", required=False)
@output_option("table", "json", "yaml")
@click.pass_context
def why(ctx: click.Context, what: str, component: str | None, output: str) -> int:
    """Why these versions: every reason with its source, for a request file or for nodes of the inventory."""
    import compat_matrix
    from fleet.core.nodeset import fold

    wanted = None if component is None else _component(component, "fleet why FILE, without a component")
    in_force = settings(ctx)
    known = matrix_of(in_force)
    if is_file(what):
        request = request_of_file(what)
        answer = compat_matrix.solve(known, request)
        if output != "table":
            emit(document("Explanation", _why_dict(request, answer, wanted)), output)
        else:
            _print_why(request, answer, wanted)
        return _status(answer)
    classes, codes = requests_of_nodes(in_force, what)
    items = []
    for request, names in classes:
        answer = compat_matrix.solve(known, request)
        codes.append(_status(answer))
        if output == "table":
            click.echo(f"{fold(names)}:")
            _print_why(request, answer, wanted)
        else:
            items.append({**_why_dict(request, answer, wanted), "nodes": names})
    if output != "table":
        emit(document("ExplanationList", {"items": items}), output)
    return errors.worst(codes)


@click.command("why-not")
@click.argument("what", metavar="FILE|NODES")
@click.argument("version", metavar="COMPONENT=VERSION")
@output_option("table", "json", "yaml")
@click.pass_context
def why_not(ctx: click.Context, what: str, version: str, output: str) -> int:
    """Why not that version: forbidden by what, or allowed and second because of what. VERSION may be a range.

    Exit 0 when it is allowed (or chosen already), 5 when it is forbidden or unknown.
    """
    import compat_matrix
    from fleet.core.nodeset import fold

    match = re.fullmatch(r"\s*([\w-]+)\s*(==|=|>=|<=|!=|<|>)\s*(\S.*)", version)
    if match is None:
        raise errors.UsageError(f"{version!r} is not COMPONENT=VERSION", hint="like driver=570.211.01 or 'driver>=595'")
    component = _component(match[1], "fleet why-not FILE driver=570.211.01")
    wanted = match[3].strip() if match[2] in ("=", "==") else f"{match[2]}{match[3].strip()}"
    in_force = settings(ctx)
    known = matrix_of(in_force)
    if is_file(what):
        found = compat_matrix.why_not(known, request_of_file(what), component, wanted)
        if output != "table":
            emit(document("Explanation", _why_not_dict(found)), output)
        else:
            _print_why_not(found)
        return _permits(found)
    classes, codes = requests_of_nodes(in_force, what)
    items = []
    for request, names in classes:
        found = compat_matrix.why_not(known, request, component, wanted)
        codes.append(_permits(found))
        if output == "table":
            click.echo(f"{fold(names)} ({class_of(request)}):")
            _print_why_not(found)
        else:
            items.append({**_why_not_dict(found), "nodes": names})
    if output != "table":
        emit(document("ExplanationList", {"items": items}), output)
    return errors.worst(codes)


def _component(text: str, hint: str) -> str:
    from fleet.core.model import component

    name = component(text)
    if name is None:
        raise errors.UsageError(f"{text!r} is not a component", hint=hint)
    return name


def _status(answer: Solution | Conflict) -> int:
    from fleet.core.model import Conflict

    return errors.REFUSED if isinstance(answer, Conflict) else errors.DONE


def _permits(found: Explanation) -> int:
    return errors.DONE if found.verdict in ("chosen", "allowed") else errors.REFUSED


def _why_dict(request: Request, answer: Solution | Conflict, wanted: str | None) -> dict[str, Any]:
    """The fields of an Explanation of what is chosen."""
    from fleet.core.model import Conflict

    shown = as_dict(answer)
    reasons = {} if isinstance(answer, Conflict) else shown["reasons"]
    if wanted is not None and not isinstance(answer, Conflict):
        reasons = {wanted: reasons.get(wanted, [])}
    version = "" if isinstance(answer, Conflict) or wanted is None else answer.stack.get(wanted, "")
    return {
        "question": "why",
        "class": class_of(request),
        "component": wanted or "",
        "version": version,
        "verdict": "conflict" if isinstance(answer, Conflict) else "chosen",
        "stack": {} if isinstance(answer, Conflict) else dict(answer.stack),
        "reasons": reasons,
        "causes": shown.get("causes", []),
        "matrix": answer.matrix,
    }


def _why_not_dict(found: Explanation) -> dict[str, Any]:
    """The fields of an Explanation of what is not chosen."""
    sentences = [reason_dict(r) for r in found.reasons]
    fits = found.verdict in ("chosen", "allowed")
    return {
        "question": "why-not",
        "component": found.component,
        "version": found.version,
        "verdict": found.verdict,
        "criterion": found.criterion,
        "stack": dict(found.stack),
        "instead": dict(found.instead),
        "reasons": {found.component: sentences} if fits else {},
        "causes": [] if fits else sentences,
        "matrix": found.matrix,
    }


def _print_why(request: Request, answer: Solution | Conflict, wanted: str | None) -> None:
    from fleet.core.model import Conflict

    if isinstance(answer, Conflict):
        print_conflict(request, answer)
        return
    components: Sequence[str] = [wanted] if wanted else list(dict.fromkeys((*answer.stack, *answer.reasons)))
    for component in components:
        version = answer.stack.get(component)
        click.echo(f"{component} {version}" if version else f"{component}: not in the stack")
        print_reasons(answer.reasons.get(component, ()))
        if component not in answer.reasons:
            say(f"the answer says nothing of {component}")


_SAID = {
    "chosen": "is what is chosen, because:",
    "allowed": "is allowed, and not chosen because:",
    "forbidden": "is forbidden. These clash:",
    "unknown": "is unknown, and unknown is not a yes:",
}


def _print_why_not(found: Explanation) -> None:
    click.echo(f"{found.component} {found.version} {_SAID[found.verdict]}")
    print_reasons(found.reasons)
    if found.stack and found.verdict != "chosen":
        click.echo(f"chosen: {_stack(found.stack)}")
    if found.instead and found.verdict == "allowed":
        click.echo(f"the best with it: {_stack(found.instead)}")
    elif found.instead and found.verdict == "forbidden":
        click.echo(f"a wish that names it would get: {_stack(found.instead)}")


def _stack(stack: Mapping[str, str]) -> str:
    return ", ".join(f"{component} {version}" for component, version in stack.items())
