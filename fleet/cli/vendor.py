"""`fleet vendor`: the vendors known, and how an output of theirs is read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

import drivers
from drivers.text import MAX_BYTES
from fleet.cli.given import given
from fleet.cli.output import document, emit, output_option, settings, table
from fleet.core.vendor import Vendor


@click.group()
def vendor() -> None:
    """The vendors known, and how an output of theirs is read."""


@vendor.command("list")
@output_option("table", "json", "yaml", "name")
@click.pass_context
def list_(ctx: click.Context, output: str) -> None:
    """The vendors that have a folder here or under vendor_path."""
    known = drivers.vendors(settings(ctx).vendor_path)
    if output == "name":
        for name in known:
            click.echo(name)
    elif output == "table":
        header = ["NAME", "TITLE", "PCI", "PROBE", "UPGRADE", "ROLLBACK", "FIRMWARE"]
        wanted = ("probe", "upgrade", "rollback", "firmware")
        table(
            header,
            (
                [v.name, v.title, _comma(v.pci_vendors), *(v.capabilities.get(c, "Unknown") for c in wanted)]
                for v in known.values()
            ),
        )
    else:
        emit(document("VendorList", {"vendors": [_as_dict(v) for v in known.values()]}), output)


@vendor.command()
@click.argument("name", metavar="VENDOR")
@output_option("table", "json", "yaml")
@click.pass_context
def show(ctx: click.Context, name: str, output: str) -> None:
    """What an adapter asks, which components it knows and what it can do."""
    found = drivers.get(name, settings(ctx).vendor_path)
    if output != "table":
        emit(document("Vendor", _as_dict(found)), output)
        return
    click.echo(f"{found.name}: {found.title}; PCI {_comma(found.pci_vendors)}; modules {', '.join(found.modules)}\n")
    table(["CAPABILITY", "STATE"], sorted(found.capabilities.items()))
    click.echo()
    table(["COMPONENT", "VERSION ORDER"], sorted(found.schemes.items()))
    click.echo()
    table(["PROBE", "LIMIT", "READ AS"], ([p.name, f"{p.timeout_s} s", p.read_as or p.command] for p in found.probes))


@vendor.command()
@click.argument("name", metavar="VENDOR")
@click.argument("file", metavar="FILE")
@click.option("--command", required=True, help="The command that printed it, as typed.")
@click.option("--rc", type=int, help="Its exit status, where it is known.")
@output_option("table", "json", "yaml")
@click.pass_context
def parse(ctx: click.Context, name: str, file: str, command: str, rc: int | None, output: str) -> None:
    """Read an output of a vendor's tool as a probe would. FILE `-` is standard input."""
    vendor_path = settings(ctx).vendor_path
    drivers.get(name, vendor_path)  # an unknown vendor is reported before a file is asked for
    reading = drivers.read_output(name, command, given(file, MAX_BYTES), rc, vendor_path).as_dict()
    if output != "table":
        emit(document("Reading", reading), output)
        return
    table(["FIELD", "VALUE"], _lines(reading))


def _lines(reading: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """A reading as dotted names and values; what is empty is left out."""
    for key, value in reading.items():
        if isinstance(value, dict):
            yield from ((f"{key}.{name}", str(v)) for name, v in value.items())
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, dict):
                    yield from ((f"{key}[{index}].{name}", str(v)) for name, v in item.items() if v is not None)
                else:
                    yield f"{key}[{index}]", str(item)
        elif value not in (None, ""):
            yield key, str(value)


def _comma(ids: Iterable[str]) -> str:
    return ",".join(sorted(ids))


def _as_dict(found: Vendor) -> dict[str, Any]:
    return {
        "name": found.name,
        "title": found.title,
        "pciVendors": sorted(found.pci_vendors),
        "modules": list(found.modules),
        "components": dict(sorted(found.schemes.items())),
        "capabilities": dict(sorted(found.capabilities.items())),
        "probes": [
            {"name": p.name, "command": p.command, "readAs": p.read_as or p.command, "timeoutS": p.timeout_s}
            for p in found.probes
        ],
        "checks": [check.name for check in found.checks],
        "faults": len(found.faults),
    }
