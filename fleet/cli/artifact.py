"""`fleet artifact`: the local store of vendor packages."""

from __future__ import annotations

from pathlib import Path

import click

from fleet.cli.output import document, emit, output_option, say, settings, table
from fleet.cli.selection import now
from fleet.core import errors


@click.group()
def artifact() -> None:
    """The local store of vendor packages: add, list, verify, serve."""


@artifact.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--sha256", metavar="HEX", help="What the file must have; for one file.")
@click.option("--replace", is_flag=True, help="Put it in place of another file of that name.")
@click.option("--unrecognised", is_flag=True, help="Also a file whose name no vendor knows.")
@click.pass_context
def add(ctx: click.Context, files: tuple[Path, ...], sha256: str | None, replace: bool, unrecognised: bool) -> int:
    """Copy files, or the known files of folders, into the store."""
    from fleet.planning import artifacts

    store = artifacts(settings(ctx))
    if sha256 and len(files) > 1:
        raise errors.UsageError("--sha256 speaks of one file", hint="add the files one by one")
    for file in files:
        if _is_folder(file):
            inside = [one for one in sorted(file.iterdir()) if one.is_file() and store.recognise(one.name)]
            if not inside:
                raise errors.BadInput(
                    "no file in this folder is known to any vendor", where=str(file), slug="empty-folder"
                )
        else:
            inside = [file]
        for one in inside:
            made, new = store.add(one, now(), sha256=sha256 or "", replace=replace, unrecognised=unrecognised)
            what = f"{made.vendor} {made.component} {made.version}".strip() or "unrecognised"
            say(f"{'added' if new else 'already there'}: {made.name} ({what}, sha256 {made.sha256[:12]}…)")
    return errors.DONE


def _is_folder(file: Path) -> bool:
    try:
        return file.is_dir()
    except (OSError, ValueError):  # a name that is too long, or holds a zero byte
        return False


@artifact.command("list")
@output_option("table", "wide", "json", "yaml", "name")
@click.pass_context
def list_(ctx: click.Context, output: str) -> int:
    """What is in the store."""
    from fleet.planning import artifacts

    found = list(artifacts(settings(ctx)).list())
    if output == "name":
        for one in found:
            click.echo(one.name)
    elif output in ("json", "yaml"):
        emit(document("ArtifactList", {"items": [vars(one).copy() for one in found]}), output)
    elif found:
        table(
            ["NAME", "VENDOR", "COMPONENT", "VERSION", "ARCH", "SIZE", "SHA256"],
            [
                [a.name, a.vendor or "-", a.component or "-", a.version or "-", a.arch or "any", a.size,
                 a.sha256 if output == "wide" else a.sha256[:12]]
                for a in found
            ],
        )  # fmt: skip
    else:
        say("the store is empty: fleet artifact add FILE")
    return errors.DONE


@artifact.command()
@output_option("table", "json", "yaml")
@click.pass_context
def verify(ctx: click.Context, output: str) -> int:
    """Hash everything again. Exit status 4 when something is damaged or missing."""
    from fleet.planning import artifacts

    findings = list(artifacts(settings(ctx)).verify())
    bad = [finding for finding in findings if finding.state in ("missing", "damaged")]
    if output == "table":
        for finding in findings:
            if finding.state != "ok":
                click.echo(f"{finding.name}: {finding.state}: {finding.detail}")
        say(f"{sum(f.state == 'ok' for f in findings)} ok, {len(bad)} bad")
    else:
        emit(document("ArtifactReport", {"items": [vars(finding).copy() for finding in findings]}), output)
    return errors.CHECK_SAID_NO if bad else errors.DONE


@artifact.command()
@click.option("--address", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", default=8480, show_default=True, type=click.IntRange(0, 65535))
@click.pass_context
def serve(ctx: click.Context, address: str, port: int) -> int:
    """Serve the store over plain HTTP, with ranges: /NAME and /sha256/HEX. Ctrl-C ends it."""
    from fleet.artifact import server
    from fleet.planning import artifacts

    try:
        httpd = server(artifacts(settings(ctx)), address, port)
    except OSError as error:
        raise errors.FleetError(
            f"cannot listen on {address}:{port}", cause=error.strerror or str(error), hint="choose another --port"
        ) from error
    say(f"serving on http://{address}:{httpd.server_address[1]}/")
    try:
        httpd.serve_forever()
    except KeyboardInterrupt:
        say("stopped")
    finally:
        httpd.server_close()
    return errors.DONE
