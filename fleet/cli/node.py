"""`fleet node`: the inventory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.given import given
from fleet.cli.output import document, emit, output_option, say, table
from fleet.cli.selection import MANY, Pick, confirm, now, opened, operator, selecting, yes_option
from fleet.cli.trust import fingerprint, trust
from fleet.cli.waiting import why
from fleet.core import errors
from fleet.core.model import LIFECYCLES
from fleet.core.nodeset import fold

if TYPE_CHECKING:
    from fleet.core.model import Facts, Node
    from fleet.inventory import Inventory

IMPORTS = ("yaml", "csv", "ansible-ini", "ansible-yaml", "ansible-json")
EXPORTS = ("yaml", "csv", "ansible")


@click.group()
def node() -> None:
    """The inventory: add, import, list, show, why, label, hold, trust."""


# --- in and out -----------------------------------------------------------------------------------------------------


@node.command()
@click.argument("name")
@click.argument("address", required=False)
@click.option("--address", "address_option", metavar="ADDRESS", help="The same as the argument; default the name.")
@click.option("--port", type=int, help="SSH port.  [default: 22]")
@click.option("--user", help="Login; default the setting ssh_user.")
@click.option("--bmc", help="Address or URL of the BMC, without credentials.")
@click.option("--arch", help="x86_64 or aarch64.")
@click.option("--site")
@click.option("--rack")
@click.option("--leaf")
@click.option("--nvlink-domain")
@click.option("--superpod")
@click.option("--lifecycle", help="State to begin with.  [default: enrolled]")
@click.option("--label", "labels", metavar="KEY=VALUE", multiple=True)
@click.pass_context
def add(
    ctx: click.Context,
    /,
    name: str,
    labels: tuple[str, ...],
    address: str | None,
    address_option: str | None,
    **fields: Any,
) -> None:
    """Add one node. ADDRESS is an IP address or a host name."""
    from fleet.inventory.record import from_fields

    if address is not None and address_option is not None:
        raise errors.UsageError("the address is given twice")
    fields["address"] = address if address is not None else address_option
    values = {"name": name} | {key: value for key, value in fields.items() if value is not None}
    if labels:
        values["labels"] = _pairs(labels)
    with opened(ctx) as (in_force, inventory):
        new = from_fields(values, inventory.nodes())
        inventory.add([new])
        inventory.audit(operator(in_force), "node add", now(), {"nodes": new.name})
    say(f"added {new.name}")


@node.command("import")
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--format", "form", type=click.Choice(IMPORTS), help="Form of the file; default by its name and content.")
@click.option("--update", is_flag=True, help="A known name is that node: replace the fields that the file gives.")
@click.option("--dry-run", is_flag=True, help="Check the file and say what would be done.")
@yes_option
@click.pass_context
def import_(ctx: click.Context, file: str, form: str | None, update: bool, dry_run: bool, yes: bool) -> None:
    """Add the nodes of FILE (YAML, CSV or an Ansible inventory; - reads stdin): all of them, or none."""
    from fleet.inventory import intake, record

    data = given(file, intake.MAX_BYTES)
    path = "stdin" if file == "-" else file
    entries = intake.read(data, path, form)
    beside = [name for name in ("group_vars", "host_vars") if file != "-" and (Path(file).parent / name).is_dir()]
    if beside:
        say(f"note: only {file} is read, not {' and '.join(beside)} beside it")
    with opened(ctx) as (in_force, inventory):
        stored = {known.name: known for known in inventory.nodes()}
        nodes = record.nodes(entries, path, stored, update)
        changed = [new.name for new in nodes if new.name in stored and new != stored[new.name]]
        fresh = [new.name for new in nodes if new.name not in stored]
        if dry_run:
            say(f"would add {fold(fresh) or 'nothing'}, change {fold(changed) or 'nothing'}")
            return
        if changed:
            confirm(changed, len(stored), "change", yes)
        if update:
            inventory.put([new for new in nodes if new != stored.get(new.name)])
        else:
            inventory.add(nodes)
        if fresh or changed:
            detail = {"file": path, "added": fold(fresh), "changed": fold(changed)}
            inventory.audit(operator(in_force), "node import", now(), {**detail})
    say(f"added {len(fresh)}, changed {len(changed)}, left {len(nodes) - len(fresh) - len(changed)} as they are")


@node.command()
@selecting()
@click.option("--format", "form", type=click.Choice(EXPORTS), default="yaml", show_default=True)
@click.option("--list", "listing", is_flag=True, help="What Ansible asks of an inventory program (with ansible).")
@click.option("--host", metavar="NAME", help="What Ansible asks of an inventory program (with ansible).")
@click.pass_context
def export(ctx: click.Context, pick: Pick, form: str, listing: bool, host: str | None) -> None:
    """Write nodes as YAML or CSV for `fleet node import`, or as an Ansible dynamic inventory.

    An inventory program for Ansible is two lines: `#!/bin/sh` and `exec fleet node export --format ansible "$@"`.
    """
    from fleet.inventory import ansible, intake, record

    if (listing or host) and form != "ansible":
        raise errors.UsageError("--list and --host are for --format ansible")
    with opened(ctx) as (in_force, inventory):
        if form == "ansible":
            facts = {row["node"]: row for row in inventory.summaries()}
            if host is not None:
                click.echo(json.dumps(ansible.host_variables(inventory.node(host), facts.get(host)), indent=2))
            else:
                nodes = pick.nodes(inventory, in_force, default_all=True)
                click.echo(json.dumps(ansible.write(nodes, facts), indent=2))
            return
        plain = [record.plain(each) for each in pick.nodes(inventory, in_force, default_all=True)]
        click.echo(intake.write_csv(plain) if form == "csv" else intake.write_yaml(plain), nl=False)


# --- looking --------------------------------------------------------------------------------------------------------


@node.command("list")
@selecting()
@output_option()
@click.pass_context
def list_(ctx: click.Context, pick: Pick, output: str) -> None:
    """List nodes: all, or those named."""
    with opened(ctx) as (in_force, inventory):
        nodes = pick.nodes(inventory, in_force, default_all=True)
        if output == "name":
            for each in nodes:
                click.echo(each.name)
            return
        facts = {row["node"]: row for row in inventory.summaries()}
    if output in ("table", "wide"):
        _table(nodes, facts, wide=output == "wide")
        if not nodes:
            say(
                "no node" + ("" if pick.everything else " is meant by this") + ": see fleet node add, fleet node import"
            )
        return
    listed = [_listed(each, facts.get(each.name)) for each in nodes]
    if output == "jsonl":
        for each_ in listed:
            click.echo(json.dumps(each_, ensure_ascii=False))
    else:
        emit(document("NodeList", {"nodes": listed}), output)


@node.command()
@click.argument("name")
@click.option("--history", is_flag=True, help="What it has said over time.")
@output_option("table", "json", "yaml")
@click.pass_context
def show(ctx: click.Context, name: str, history: bool, output: str) -> None:
    """Show one node: its record, what it said last, and whether its host key is trusted."""
    with opened(ctx) as (_, inventory):
        each = inventory.node(name)
        facts = inventory.facts([name]).get(name)
        key = inventory.host_keys().get(name, "")
        revisions = inventory.history(name) if history else []
    past = [{"at": r.facts.at, "digest": r.digest, "components": r.facts.current()} for r in revisions]
    if output != "table":
        body: dict[str, Any] = {"node": _listed(each, None), "hostKey": key or None, "facts": _facts(facts)}
        emit(document("Node", body | ({"history": past} if history else {})), output)
        return
    rows = [(k, _cell(v)) for k, v in _listed(each, None).items()]
    rows.append(("host key", fingerprint(key) if key else "not trusted yet: fleet node trust"))
    if facts is None:
        rows.append(("facts", "never probed: fleet probe"))
    else:
        rows += [
            ("probed", facts.at), ("os", f"{facts.os.id} {facts.os.version}".strip()), ("kernel", facts.os.kernel),
            ("accelerators", _cards(facts)), *(("problem", problem) for problem in facts.problems),
        ]  # fmt: skip
    table(("FIELD", "VALUE"), rows)
    if facts is not None and facts.components:
        click.echo()
        cells = [
            (part, fact.installed or "-", fact.loaded or "-", fact.runtime or "-")
            for part, fact in sorted(facts.components.items())
        ]
        table(("COMPONENT", "INSTALLED", "LOADED", "RUNTIME"), cells)
    if past:
        click.echo()
        table(("SINCE", "COMPONENTS"), [(entry["at"], _cell(entry["components"])) for entry in past])


def _table(nodes: Sequence[Node], facts: Mapping[str, Mapping[str, Any]], *, wide: bool) -> None:
    header = ["NAME", "ADDRESS", "STATE", "VENDOR", "MODEL", "CARDS", "DRIVER", "FIRMWARE", "RACK", "HOLD"]
    if wide:
        header += ["PORT", "USER", "BMC", "ARCH", "SITE", "LEAF", "NVLINK", "SUPERPOD"]
        header += ["OS", "KERNEL", "TOOLKIT", "PROBED", "LABELS"]
    rows = []
    for each in nodes:
        said = facts.get(each.name, {})
        parts = said.get("components", {})
        row: list[object] = [
            each.name, each.address, each.lifecycle, said.get("vendor"), said.get("model"), said.get("count"),
            parts.get("driver"), parts.get("firmware"), each.rack, each.hold and f"{each.hold.who}: {each.hold.why}",
        ]  # fmt: skip
        if wide:
            system = f"{said.get('os_id', '')} {said.get('os_version', '')}".strip()
            row += [
                each.port, each.user, each.bmc, each.arch or said.get("arch"), each.site, each.leaf,
                each.nvlink_domain, each.superpod, system, said.get("kernel"), parts.get("toolkit"), said.get("at"),
                _cell(each.labels),
            ]  # fmt: skip
        rows.append(["-" if cell in (None, "") else cell for cell in row])
    table(header, rows)


def _listed(each: Node, said: Mapping[str, Any] | None) -> dict[str, Any]:
    from fleet.inventory import record

    facts = None
    if said is not None:
        system = {"id": said["os_id"], "version": said["os_version"], "kernel": said["kernel"], "arch": said["arch"]}
        facts = {
            "at": said["at"], "vendor": said["vendor"], "model": said["model"], "accelerators": said["count"],
            "os": system, "components": dict(sorted(said["components"].items())),
        }  # fmt: skip
    return record.plain(each, facts)


def _facts(facts: Facts | None) -> dict[str, Any] | None:
    return None if facts is None else {"at": facts.at, "bootId": facts.boot_id, **facts.content()}


def _cards(facts: Facts) -> str:
    models: dict[str, int] = {}
    for card in facts.accelerators:
        models[card.model] = models.get(card.model, 0) + 1
    return ", ".join(f"{count} x {facts.vendor} {model}" for model, count in models.items()) or "none"


def _cell(value: object) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{key}={text}" for key, text in value.items()) or "-"
    return str(value)


# --- changing -------------------------------------------------------------------------------------------------------


@node.command()
@click.argument("words", nargs=-1, metavar="[NODES] KEY=VALUE|KEY-...")
@selecting(argument=False)
@yes_option
@click.pass_context
def label(ctx: click.Context, words: tuple[str, ...], pick: Pick, yes: bool) -> None:
    """Set labels (KEY=VALUE) and remove them (KEY-)."""
    from fleet.core.selector import check_label

    unset = [word[:-1] for word in words if word.endswith("-") and "=" not in word]
    labels = _pairs([word for word in words if "=" in word])
    named = [word for word in words if "=" not in word and not word.endswith("-")]
    if not labels and not unset:
        raise errors.UsageError("no label is given", hint="fleet node label gpu[001-008] pool=gold old-")
    for key, value in labels.items():
        check_label(key, value)
    chosen = Pick(",".join(filter(None, (*named, pick.nodeset))) or None, pick.exclude, pick.selector)
    _change(ctx, chosen, "label", yes, {"set": labels, "unset": unset}, lambda i, names: i.label(names, labels, unset))


@node.command()
@selecting()
@click.option("--why", required=True, help="The reason, for whoever finds it.")
@click.option("--until", help="When it ends by itself, ISO 8601; default when released.")
@yes_option
@click.pass_context
def hold(ctx: click.Context, pick: Pick, why: str, until: str | None, yes: bool) -> None:
    """Forbid changes of nodes: no upgrade touches them."""
    from fleet.core.model import Hold
    from fleet.inventory import record

    try:
        end = record.until(until or "")
    except ValueError as error:
        raise errors.BadInput(f"--until cannot be {until!r}: {error}") from None
    try:
        why = record.checked_text(why)
    except ValueError as error:
        raise errors.BadInput(f"--why cannot be {why[:80]!r}: {error}") from None
    if not why:
        raise errors.BadInput("--why is empty: whoever finds the hold wants the reason")
    if end and end <= now():
        raise errors.BadInput(f"--until {until!r} is in the past")
    detail = {"why": why, "until": end}

    def act(inventory: Inventory, names: Sequence[str], who: str) -> None:
        inventory.hold(names, Hold(who, why, end))

    _change(ctx, pick, "hold", yes, detail, act_as=act)


@node.command()
@selecting()
@yes_option
@click.pass_context
def release(ctx: click.Context, pick: Pick, yes: bool) -> None:
    """End holds."""
    _change(ctx, pick, "release", yes, {}, lambda inventory, names: inventory.release(names))


@node.command()
@click.argument("state", type=click.Choice(LIFECYCLES))
@selecting()
@yes_option
@click.pass_context
def lifecycle(ctx: click.Context, state: str, pick: Pick, yes: bool) -> None:
    """Set the lifecycle state of nodes."""
    found = next(known for known in LIFECYCLES if known == state)
    _change(ctx, pick, f"set to {state}", yes, {"state": state}, lambda i, names: i.set_lifecycle(names, found))


@node.command()
@selecting()
@yes_option
@click.pass_context
def remove(ctx: click.Context, pick: Pick, yes: bool) -> None:
    """Forget nodes, with their facts, history and host keys."""
    _change(ctx, pick, "remove", yes, {}, lambda inventory, names: inventory.remove(names), always_ask=True)


def _change(
    ctx: click.Context,
    pick: Pick,
    what: str,
    yes: bool,
    detail: Mapping[str, Any],
    act: Any = None,
    *,
    act_as: Any = None,
    always_ask: bool = False,
) -> None:
    """Pick, ask when it is much or final, do, and write the audit log."""
    with opened(ctx) as (in_force, inventory):
        names = [each.name for each in pick.nodes(inventory, in_force)]
        if not names:
            say("no node is meant by this: nothing to do")
            return
        if always_ask or pick.everything or len(names) > MANY:
            confirm(names, len(inventory.nodes()), what, yes)
        who = operator(in_force)
        if act_as is not None:
            act_as(inventory, names, who)
        else:
            act(inventory, names)
        inventory.audit(who, f"node {what}", now(), {"nodes": fold(names), **detail})
    say(f"{what}: {fold(names)}")


def _pairs(words: Iterable[str]) -> dict[str, str]:
    out: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise errors.BadInput(f"label {word!r} is not KEY=VALUE", slug="bad-label")
        out[key] = value
    return out


node.add_command(trust)
node.add_command(why)
