"""`fleet plan`: what an upgrade would do. Also how plans are shown, for `fleet upgrade`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fleet.cli.output import document, emit, output_option
from fleet.cli.selection import Pick, now, opened, selecting
from fleet.core import errors

if TYPE_CHECKING:
    from fleet.config import Settings
    from fleet.core.estimate import Estimate
    from fleet.core.model import Group, Plan, Reason, Step
    from fleet.inventory import Inventory

F = TypeVar("F", bound=Callable[..., Any])


def planning(function: F) -> F:
    """The options that decide a plan."""
    options = [
        click.option("--to", "wishes", metavar="WISH|BASELINE", multiple=True,
                     help="driver==580.95.05,toolkit>=12.8 or a baseline; default what the matrix finds best."),
        click.option("--max-unavailable", "limits", metavar="[KIND=]N|N%", multiple=True,
                     help="Nodes out at once: 10%, rack=1 …  [default: the setting max_unavailable]"),
        click.option("--max-failures", metavar="N|N%", default="13%", show_default=True,
                     help="Pause when more nodes than this failed."),
        click.option("--ignore-canary", is_flag=True, help="Go on in a hardware cell whose canary failed."),
        click.option("--no-return", is_flag=True, help="Also where there is no way back."),
        click.option("--delivery", "deliveries", metavar="COMPONENT=HOW", multiple=True,
                     help="package, runfile, redfish or mcu; default as the vendor does it."),
        click.option("--strategy", type=click.Choice(["validated", "newest", "minimal"]), default="validated",
                     show_default=True, help="What the matrix prefers."),
        click.option("--converge", is_flag=True, help="Let the nodes settle on few stacks, where none is worse off."),
        click.option("--soak", metavar="TIME", help="Watch each wave for 10m, 2h … before it is judged and the next "
                     "begins.  [default: the setting soak]"),
        click.option("--no-gate", is_flag=True, help="Do not look at a wave beside untouched nodes before the next."),
        click.option("--window", "windows", metavar="WINDOW", multiple=True,
                     help="Begin nodes only then: 'Mon-Fri 22:00-06:00 Asia/Shanghai'.  [default: the setting window]"),
        click.option("--approve", type=click.Choice(["start", "canary", "start,canary"]),
                     help="Wait for somebody else's yes: before the start, after the canaries; in addition to what "
                     "the setting approve asks for."),
        click.option("--wave-by", metavar="KIND", default="rack", show_default=True,
                     help="The domain that a wave takes whole: site, rack, leaf, nvlink_domain, superpod, label:KEY."),
        click.option("--revisits", type=click.IntRange(0, 100), default=2, show_default=True,
                     help="Later turns for a node whose jobs outlast the drain."),
        click.option("--revisit-after", metavar="TIME", default="30m", show_default=True, help="Between two of them."),
        click.option("--split", is_flag=True, help="Part of an NVLink domain or SuperPod may go without the rest."),
        click.option("--chunk", type=click.IntRange(1, 64), default=16, show_default=True,
                     help="Equal nodes in one playbook run."),
    ]  # fmt: skip
    decorated: Any = function
    for option in reversed(options):
        decorated = option(decorated)
    result: F = decorated
    return result


def make_plan(
    settings: Settings,
    inventory: Inventory,
    pick: Pick,
    *,
    wishes: Sequence[str],
    limits: Sequence[str],
    max_failures: str,
    ignore_canary: bool,
    no_return: bool,
    deliveries: Sequence[str],
    strategy: str,
    converge: bool,
    chunk: int,
    soak: str | None,
    no_gate: bool,
    windows: Sequence[str],
    approve: str | None,
    wave_by: str,
    revisits: int,
    revisit_after: str,
    split: bool,
) -> Plan:
    """The plan that these options ask for."""
    from fleet.core.budget import Limit
    from fleet.core.policy import PlanPolicy
    from fleet.planning import Planner, parse_approval, parse_limits, parse_time, parse_windows, parse_wish, wave_kind

    nodes = pick.nodes(inventory, settings)
    if not nodes:
        raise errors.UsageError("no node is meant by that", hint="fleet node list", slug="no-nodes")
    wish, baselines = parse_wish(wishes, inventory.baselines())
    Limit.parse(max_failures)
    policy = PlanPolicy(
        wish=wish,
        limits=parse_limits(limits, settings.max_unavailable),
        max_failures=max_failures,
        ignore_canary=ignore_canary,
        no_return=no_return,
        drained=settings.drainer != "none",
        drain_limit_s=settings.drain_deadline,
        chunk=chunk,
        delivery=_deliveries(deliveries),
        gate=not no_gate,
        soak_s=settings.soak if soak is None else parse_time(soak),
        windows=parse_windows(windows or tuple(settings.window.split(";"))),
        approve=parse_approval(f"{settings.approve},{approve or ''}"),
        wave_by=wave_kind(wave_by),
        revisits=revisits,
        revisit_s=parse_time(revisit_after),
        split=split,
    )
    facts = inventory.facts([node.name for node in nodes])
    return Planner(settings).plan(nodes, facts, policy, baselines, now(), strategy, inventory.nodes(), converge)


def duration(inventory: Inventory, plan: Plan, parallel: int = 4) -> Estimate:
    """How long the plan would take, from the steps of past rollouts."""
    from fleet.inventory.forecast import Forecast
    from fleet.inventory.rollouts import Rollouts

    store = Rollouts(inventory.database)
    return Forecast(store, parallel).of_plan(plan, store.clock())


def _deliveries(texts: Sequence[str]) -> dict[str, str]:
    from fleet.core.model import component

    out = {}
    for text in texts:
        name, _, how = text.partition("=")
        found = component(name)
        if found is None or how not in ("package", "runfile", "redfish", "mcu", "image"):
            raise errors.UsageError(f"--delivery cannot be {text!r}", hint="driver=runfile", slug="bad-delivery")
        out[found] = how
    return out


@click.command()
@selecting()
@planning
@output_option("table", "json", "yaml")
@click.pass_context
def plan(ctx: click.Context, /, pick: Pick, output: str, **options: Any) -> int:
    """What `fleet upgrade` would do with these nodes, and why. Changes nothing.

    `-o json > plan.json` keeps the plan for `fleet upgrade plan.json`. Exit status: 5 when a node is refused.
    """
    from fleet.core import planfile

    with opened(ctx) as (settings, inventory):
        made = make_plan(settings, inventory, pick, **options)
        takes = duration(inventory, made) if made.waves and output == "table" else None
    if output == "table":
        show(made, click.echo)
        if takes is not None:
            click.echo(f"time: {takes}")
    else:
        emit(document("Plan", planfile.dump(made)), output)
    return errors.REFUSED if made.refusals else errors.DONE


def show(plan: Plan, echo: Callable[[str], Any]) -> None:
    """The plan in clear lines, with reasons and sources."""
    from fleet.core.nodeset import fold

    there = [name for group in plan.groups if not group.stages for name in group.nodes]
    total = sum(len(wave) for wave in plan.waves)
    parts = [f"{total} node{'s' if total != 1 else ''} to change"]
    if there:
        parts.append(f"{len(there)} already there")
    if plan.refusals:
        parts.append(f"{len(plan.refusals)} refused")
    echo(f"plan {plan.id}: {', '.join(parts)}")
    for group in plan.groups:
        if group.stages:
            _group(group, echo)
    if there:
        echo(f"\nalready there: {fold(there)}")
    for number, wave in enumerate(plan.waves, 1):
        echo(f"{chr(10) if number == 1 else ''}wave {number}{' (canaries)' if number == 1 else ''}: {fold(wave)}")
    if plan.waves:
        _policy(plan.policy, echo)
    if plan.refusals:
        echo("\nrefused:")
        reasons: dict[str, list[str]] = {}
        for name, why in plan.refusals.items():
            # The sentence names its node, as a whole word: with NODE in its place it is the same for equal nodes.
            alike = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", "NODE", why)
            reasons.setdefault(alike, []).append(name)
        for alike, names in reasons.items():
            echo(f"  {fold(names)}: {plan.refusals[names[0]] if len(names) == 1 else alike}")
        echo(f"a plan goes by the last look: once something is mended, fleet probe {fold(plan.refusals)}")


def _group(group: Group, echo: Callable[[str], Any]) -> None:
    from fleet.core.nodeset import fold

    echo(f"\n{fold(group.nodes)}: {group.vendor} {group.model}")
    last: dict[str, tuple[str | None, str | None]] = {}
    for stage in group.stages:
        for step in stage:
            if step.phase == "verify":
                for change in step.changes:
                    first = last.get(change.component, (change.old, None))[0]
                    last[change.component] = (first, change.new)
    for name, (old, new) in last.items():
        echo(f"  {name}: {old or 'not there'} -> {new or 'taken off'}")
        for reason in group.reasons.get(name, ())[:2]:
            echo(f"      because {reason.text}{_cited(reason)}")
    for number, stage in enumerate(group.stages, 1):
        prefix = f"stage {number}" if len(group.stages) > 1 else "steps"
        echo(f"  {prefix}: {', '.join(_step(step) for step in stage)}")
    if group.back is None:
        for reason in group.reasons.get("back", ()):
            echo(f"  WARNING: {reason.text}")
    else:
        count = len(group.back)
        words = ", ".join(
            _step(step) for stage in group.back for step in stage if step.changes or step.phase == "reboot"
        )
        echo(f"  way back ({count} stage{'s' if count != 1 else ''}): {words}")


def _step(step: Step) -> str:
    if step.phase == "reboot":
        return step.activation.replace("_", " ") if step.activation != "none" else "reboot"
    moved = "+".join(change.component for change in step.changes)
    return f"{step.phase} {moved}" if moved and step.phase not in ("verify", "preflight") else step.phase


def _cited(reason: Reason) -> str:
    source = reason.source
    if source is None:
        return ""
    parts = [source.title, source.section, source.at]
    level = f"{source.level}: " if source.at else ""  # what the asker wrote has no level of evidence
    return f" [{level}{', '.join(part for part in parts if part)}]"


def _policy(policy: Mapping[str, Any], echo: Callable[[str], Any]) -> None:
    limits = ", ".join(f"{kind} {limit}" for kind, limit in dict(policy.get("limits") or {}).items())
    echo(f"out at once: at most {limits}; paused when more than {policy.get('max_failures')} of the nodes fail")
    between = [f"{policy['soak_s']} s of watching"] if policy.get("soak_s") else []
    if policy.get("gate", True):
        between.append("a look at it beside untouched nodes")
    if between:
        echo(f"after each wave: {', then '.join(between)}")
    for window in policy.get("windows") or ():
        echo(f"nodes begin only: {window}")
    for stage in policy.get("approve") or ():
        what = "before anything begins" if stage == "start" else "after the canaries, if there is more to do"
        echo(f"somebody else must say yes {what}: fleet rollout approve")
