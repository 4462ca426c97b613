"""`fleet lab`: simulated nodes to rehearse on."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from fleet.cli import output as screen
from fleet.config import load
from fleet.core.errors import NodesFailed, UsageError
from fleet.lab.lab import Lab, lab_dir
from fleet.lab.power import LabPower
from fleet.lab.spec import DEFAULT
from fleet.lab.status import NodeStatus

F = TypeVar("F", bound=Callable[..., Any])


def _dir_option(command: F) -> F:
    return click.option(
        "--dir", "folder", type=click.Path(path_type=Path),
        help="The lab's folder (default: FLEET_LAB_DIR, else /var/lib/fleet-lab).",
    )(command)  # fmt: skip


def _lab(ctx: click.Context, folder: Path | None) -> Lab:
    where = (folder or lab_dir()).absolute()
    env = dict(os.environ)
    # A shell that was set up for this lab must be able to bring it up again after `down` took its settings away.
    if env.get("FLEET_CONFIG") == str(where / "fleet.toml") and not (where / "fleet.toml").is_file():
        del env["FLEET_CONFIG"]
    settings = load({k: v for k, v in (ctx.find_root().obj or {}).items() if v is not None}, env)
    return Lab(where, screen.say, vendor_path=settings.vendor_path)


@click.group()
def lab() -> None:
    """Simulated nodes to rehearse on: real sshd over OverlayFS roots, emulated vendor software (Linux, root)."""


@lab.command()
@click.option(
    "--nodes", "spec", type=click.Path(path_type=Path), help="Spec file (default: eight nodes, four vendors)."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Decides uuids and serials.")
@_dir_option
@screen.output_option("table", "json")
@click.pass_context
def up(ctx: click.Context, spec: Path | None, seed: int, folder: Path | None, output: str) -> None:
    """Build what is missing and boot the nodes; a second time changes nothing."""
    one = _lab(ctx, folder)
    statuses = one.up(spec or DEFAULT, seed)
    _print(one, statuses, output)
    screen.say(
        f"{len(statuses)} nodes are up. To use them:\n"
        f"  export FLEET_CONFIG={one.folder / 'fleet.toml'}\n"
        f"  fleet node import {one.folder / 'nodes.yaml'} && fleet probe\n"
        f"Take it down with: fleet lab down" + (f" --dir {folder}" if folder else "")
    )


@lab.command()
@click.option("--keep", is_flag=True, help="Keep the nodes' disks and the lab's inventory; `up` boots them again.")
@_dir_option
@click.pass_context
def down(ctx: click.Context, keep: bool, folder: Path | None) -> None:
    """Stop every process of the lab and remove its nodes; the cache of built layers stays."""
    one = _lab(ctx, folder)
    count = one.down(keep)
    screen.say(f"{count} nodes stopped" if count else f"no lab is up in {one.folder}")


@lab.command()
@_dir_option
@screen.output_option("table", "json", "yaml", "name")
@click.pass_context
def status(ctx: click.Context, folder: Path | None, output: str) -> None:
    """What every node is now: phase, boots, power cycles, faults."""
    one = _lab(ctx, folder)
    _print(one, one.status(), output)


@lab.command()
@click.argument("node", required=False)
@click.argument("fault", required=False)
@click.option("--off", is_flag=True, help="Take the fault back.")
@click.option("--list", "listing", is_flag=True, help="The faults that NODE, or any node of this lab, can have.")
@_dir_option
@click.pass_context
def fault(
    ctx: click.Context, node: str | None, fault: str | None, off: bool, listing: bool, folder: Path | None
) -> None:
    """Break a node on purpose, or mend it. Some faults take a value: `fleet lab fault as-a lost-card=3`."""
    one = _lab(ctx, folder)
    if listing:
        if node is not None:
            one.state(node)
        vendors = sorted({s.vendor for s in one.status() if node in (None, s.name)})
        rows = {(name, says): vendor for vendor in vendors for name, says in one.faults(vendor).items()}
        own = one.own_faults()
        screen.table(
            ("FAULT", "OF", "WHAT"),
            [(n, "any node" if n in own else vendor, says) for (n, says), vendor in sorted(rows.items())],
        )
        return
    if node is None or fault is None:
        raise UsageError("which node and which fault?", hint="fleet lab fault --list")
    one.fault(node, fault, on=not off)
    screen.say(f"{node}: {fault} is {'off' if off else 'on'}")


@lab.command()
@click.argument("node")
@click.argument("action", type=click.Choice(["on", "off", "cycle", "status"]))
@click.option("--off-seconds", type=int, default=0, help="How long a cycle stays without power (told to the node).")
@_dir_option
@click.pass_context
def power(ctx: click.Context, node: str, action: str, off_seconds: int, folder: Path | None) -> None:
    """Power of a node: a cycle is not a reboot."""
    switch = LabPower(_lab(ctx, folder).folder)
    if action == "cycle":
        switch.cycle(node, off_seconds)
    elif action == "on":
        switch.on(node)
    elif action == "off":
        switch.off(node)
    click.echo(switch.status(node))


@lab.command(context_settings={"ignore_unknown_options": True})
@click.argument("node")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@_dir_option
@click.pass_context
def ssh(ctx: click.Context, node: str, command: tuple[str, ...], folder: Path | None) -> None:
    """Log in to a node, or run a command there: `fleet lab ssh nv-a -- uname -r`."""
    argv = _lab(ctx, folder).ssh_command(node, command)
    os.execvp(argv[0], argv)


def _print(one: Lab, statuses: list[NodeStatus], form: str) -> None:
    if form in {"json", "yaml"}:
        other = {"power_cycles": "powerCycles", "boot_id": "bootId"}
        items = [{other.get(k, k): v for k, v in dataclasses.asdict(status).items()} for status in statuses]
        screen.emit(screen.document("LabStatus", {"folder": str(one.folder), "items": items}), form)
    elif form == "name":
        for status in statuses:
            click.echo(status.name)
    elif not statuses:
        screen.say(f"no lab is up in {one.folder}")
    else:
        screen.table(
            ("NODE", "VENDOR", "MODEL", "OS", "KERNEL", "ADDRESS", "USER", "STATE", "BOOTS", "CYCLES", "FAULTS"),
            [
                (
                    s.name, s.vendor, s.model, s.os, s.kernel, f"{s.address}:{s.port}", s.user, s.phase, s.boots,
                    s.power_cycles, ",".join(s.faults) or "-",
                )
                for s in statuses
            ],
        )  # fmt: skip
    if any(status.phase in {"down", "failed"} for status in statuses):
        raise NodesFailed("some lab nodes are not running", hint="fleet lab up", slug="lab-node-down")
