"""`fleet audit` and `fleet stack`: is every node still what it should be?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.given import given
from fleet.cli.output import document, emit, output_option, say, table
from fleet.cli.selection import Pick, now, opened, operator, selecting
from fleet.core import errors

if TYPE_CHECKING:
    from fleet.audit import AuditReport
    from fleet.config import Settings
    from fleet.core.drift import Baseline
    from fleet.core.model import Node
    from fleet.inventory import Inventory


class _Age(click.ParamType[timedelta]):
    """`90s`, `15m`, `24h`, `7d` -> timedelta."""

    name = "AGE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        match = re.fullmatch(r"([0-9]{1,6})([smhd])", str(value))
        if match is None:
            self.fail(f"{value!r} is no age such as 15m, 24h or 7d", param, ctx)
        return timedelta(seconds=int(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match[2]])


@click.command()
@selecting()
@click.option(
    "--baseline", "wanted", metavar="NAME|FILE", multiple=True, required=True,
    help="What nodes should be; several, each for its vendor or model.",
)  # fmt: skip
@click.option("--probe", "fresh", is_flag=True, help="Look at the nodes first, and judge what they say now.")
@click.option("--max-age", type=_Age(), help="Do not judge answers older than this (24h): such a node is unknown.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit 3, not 4, where nodes differ.")
@output_option("table", "wide", "json", "yaml", "junit", "name")
@click.pass_context
def audit(
    ctx: click.Context,
    pick: Pick,
    wanted: tuple[str, ...],
    fresh: bool,
    max_age: timedelta | None,
    detailed_exitcode: bool,
    output: str,
) -> int:
    """Compare what nodes said last with a baseline. Touches no node; with --probe, looks at them first.

    Exit status: 0 all as they should be, 4 some differ, 6 some are not known.
    """
    from fleet.audit import audit as run

    with opened(ctx) as (in_force, inventory):
        baselines = [_baseline(word, inventory) for word in wanted]
        nodes = inventory.nodes()
        chosen = pick.nodes(inventory, in_force, default_all=True)
        names = [node.name for node in chosen]
        silent = _looked_at(chosen, inventory, in_force) if fresh else {}
        facts = inventory.facts(names)
    path = in_force.vendor_path
    report = run(names, facts, baselines, datetime.now(UTC), max_age=max_age, silent=silent, vendor_path=path)
    if output in ("json", "yaml"):
        emit(document("AuditReport", report.as_dict()), output)
    elif output == "junit":
        click.echo(report.junit(), nl=False)
    elif output == "name":
        for name, result in report.nodes.items():
            if result != "ok":
                click.echo(name)
    else:
        _show(report, nodes, wide=output == "wide")
    return report.exit_code(detailed_exitcode)


def _looked_at(nodes: Sequence[Node], inventory: Inventory, in_force: Settings) -> dict[str, str]:
    """Probe nodes and record it. node -> why it gave no facts."""
    if not nodes:
        return {}
    import compat_matrix
    import drivers
    from fleet.audit import look
    from fleet.probe import probe
    from fleet.remote import Ssh

    model = compat_matrix.load(in_force.matrix_path, in_force.vendor_path).model
    transport = Ssh.of(in_force, inventory.host_keys())
    try:
        probed = probe(
            nodes, transport, drivers.vendors(in_force.vendor_path), model, now,
            fanout=in_force.fanout, timeout_s=in_force.probe_timeout, sudo=in_force.sudo,
        )  # fmt: skip
        return look(nodes, inventory, probed)
    finally:
        transport.close()


def _show(report: AuditReport, nodes: Sequence[Node], *, wide: bool) -> None:
    from fleet.core.nodeset import fold
    from fleet.core.topology import whole

    findings = report.folded() if not wide else [(f.node, f) for f in report.findings]
    if findings:
        table(("RESULT", "COMPONENT", "WHERE", "EXPECTED", "FOUND", "NODES", "DETAIL"), [
            (f.result, f.component or "-", f.kind, f.expected or "-", f.found or "-", where, f.detail or "-")
            for where, f in findings
        ])  # fmt: skip
    by_result: dict[str, list[str]] = {}
    for name, result in report.nodes.items():
        by_result.setdefault(result, []).append(name)
    for result, names in by_result.items():
        together = ", ".join(map(str, whole(names, nodes))) if result in ("drift", "unknown") else ""
        say(f"{result}: {fold(names)} ({len(names)}){f', all of {together}' if together else ''}")
    if not by_result:
        say("no node to audit: fleet node list")


def _baseline(word: str, inventory: Inventory) -> Baseline:
    """A baseline by its name, or of a file when the word is one."""
    from fleet.inventory.baselines import read_baseline

    looks_like_file = "/" in word or word.endswith((".yaml", ".yml", ".json")) or word == "-"
    known = {} if looks_like_file else inventory.baselines()
    if word in known:
        return known[word]
    try:
        data = given(word, 4 * 1024 * 1024)
    except errors.BadInput as error:
        if looks_like_file or error.slug == "too-large":
            raise
        raise errors.NotFound(
            f"there is no baseline {word!r}, and no file of that name", hint="fleet stack list",
            slug="unknown-baseline",
        ) from error  # fmt: skip
    return read_baseline(data, "stdin" if word == "-" else word)


# --- baselines ------------------------------------------------------------------------------------------------------


@click.group()
def stack() -> None:
    """Baselines: named stacks, saved and shown."""


@stack.command()
@click.argument("name")
@click.option("--from-node", metavar="NODE", help="What this node has now.")
@click.option("--file", "file", metavar="FILE", help="A YAML or JSON file with `stack:`, such as a Solution.")
@click.option("--set", "pairs", metavar="COMPONENT=VERSION", multiple=True, help="One component; may be repeated.")
@click.option("--vendor", help="Meant for this vendor only.")
@click.option("--model", help="Meant for this model only.")
@click.pass_context
def save(
    ctx: click.Context,
    name: str,
    from_node: str | None,
    file: str | None,
    pairs: tuple[str, ...],
    vendor: str | None,
    model: str | None,
) -> None:
    """Save a stack under a name, in place of an earlier one."""
    from fleet.core.drift import Baseline
    from fleet.inventory.baselines import checked_stack

    if (from_node and file) or not (from_node or file or pairs):
        raise errors.UsageError("say what the stack is: --from-node, --file or --set")
    with opened(ctx) as (in_force, inventory):
        base = Baseline(name, {})
        if from_node:
            inventory.node(from_node)
            facts = inventory.facts([from_node]).get(from_node)
            if facts is None:
                raise errors.NotFound(f"node {from_node!r} was never probed", hint=f"fleet probe {from_node}")
            base = Baseline(
                name, facts.current(), facts.vendor, facts.accelerators[0].model if facts.accelerators else ""
            )
        elif file:
            base = _baseline(file if "/" in file or file == "-" else f"./{file}", inventory)
        split = dict(pair.partition("=")[::2] for pair in pairs)
        new = Baseline(
            _checked_name(name),
            {**base.stack, **checked_stack(split, "--set")},
            base.vendor if vendor is None else vendor,
            base.model if model is None else model,
        )
        inventory.save_baseline(new, operator(in_force), now())
        inventory.audit(operator(in_force), "stack save", now(), {"name": name, "stack": dict(new.stack)})
    say(f"saved {name}: {' '.join(f'{key}={value}' for key, value in sorted(new.stack.items()))}")


@stack.command("list")
@output_option("table", "json", "yaml", "name")
@click.pass_context
def list_(ctx: click.Context, output: str) -> None:
    """List the baselines."""
    with opened(ctx) as (_, inventory):
        found = inventory.baselines()
    if output == "name":
        for name in found:
            click.echo(name)
    elif output == "table":
        table(("NAME", "VENDOR", "MODEL", "STACK"), [
            (b.name, b.vendor or "any", b.model or "any", " ".join(f"{k}={v}" for k, v in sorted(b.stack.items())))
            for b in found.values()
        ])  # fmt: skip
    else:
        emit(document("BaselineList", {"baselines": [_plain(b) for b in found.values()]}), output)


@stack.command()
@click.argument("name")
@output_option("table", "json", "yaml")
@click.pass_context
def show(ctx: click.Context, name: str, output: str) -> None:
    """Show one baseline; `-o yaml` can be read back with --file."""
    with opened(ctx) as (_, inventory):
        found = inventory.baselines().get(name)
    if found is None:
        raise errors.NotFound(f"there is no baseline {name!r}", hint="fleet stack list", slug="unknown-baseline")
    if output == "table":
        table(("COMPONENT", "VERSION"), sorted(found.stack.items()))
    else:
        emit(document("Baseline", _plain(found)), output)


@stack.command()
@click.argument("name")
@click.pass_context
def remove(ctx: click.Context, name: str) -> None:
    """Forget a baseline."""
    with opened(ctx) as (in_force, inventory):
        inventory.remove_baseline(name)
        inventory.audit(operator(in_force), "stack remove", now(), {"name": name})
    say(f"removed {name}")


def _plain(baseline: Baseline) -> dict[str, Any]:
    return {
        "name": baseline.name,
        "vendor": baseline.vendor,
        "model": baseline.model,
        "stack": dict(sorted(baseline.stack.items())),
    }


def _checked_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", name) or name.endswith((".yaml", ".yml", ".json")):
        raise errors.BadInput(f"a baseline cannot be called {name!r}", hint="letters, digits, '-', '_', '.'")
    return name
