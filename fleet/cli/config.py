"""`fleet config`, `fleet completion`, `fleet help`."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re

import click

from fleet.cli.output import document, emit, output_option, table
from fleet.config import load_with_origins
from fleet.core.errors import NotFound


@click.group()
def config() -> None:
    """The settings in force and where they come from."""


@config.command()
@output_option("table", "json", "yaml")
@click.pass_context
def show(ctx: click.Context, output: str) -> None:
    """Show each setting, its value, and the file, variable or flag that gave it."""
    in_force, origins = load_with_origins(ctx.find_root().obj or {})
    values = {**dataclasses.asdict(in_force), "db": _without_password(in_force.database)}
    if output == "table":
        rows = [(name, _shown(value), origins[name]) for name, value in values.items()]
        table(("SETTING", "VALUE", "FROM"), rows)
        return
    body = [
        {"name": name, "value": list(value) if isinstance(value, tuple) else value, "from": origins[name]}
        for name, value in values.items()
    ]
    emit(document("Settings", {"settings": body}), output)


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ":".join(map(str, value)) or "-"
    return str(value).lower() if isinstance(value, bool) else str(value) or "-"


def _without_password(url: str) -> str:
    url = re.sub(r"(?i)([?&][^=&]*(?:password|passfile|secret)[^=&]*=)[^&]*", r"\1***", url)
    scheme, separator, rest = url.partition("://")
    userinfo, at, host = rest.rpartition("@")
    if not at:
        return url
    user, colon, _ = userinfo.partition(":")
    return f"{scheme}{separator}{user}{':***' if colon else ''}@{host}"


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    bash: `eval "$(fleet completion bash)"` in ~/.bashrc; zsh the same in ~/.zshrc; fish: into
    ~/.config/fish/completions/fleet.fish.
    """
    from click.shell_completion import get_completion_class

    from fleet.cli.main import fleet

    found = get_completion_class(shell)
    if found is None:
        raise NotFound(f"there is no completion for {shell!r}")
    click.echo(found(fleet, {}, "fleet", "_FLEET_COMPLETE").source())


@click.command("help")
@click.argument("slug", required=False)
def help_(slug: str | None) -> None:
    """Say what an error means and what to do; SLUG is the word in [brackets] behind it. Without, list them all."""
    from fleet.cli.errors_text import errors

    known = errors()
    if slug is None:
        rows = [(name, text.meaning_zh if _chinese() else text.meaning) for name, text in known.items()]
        table(("SLUG", "MEANING"), rows)
        return
    name = slug.strip("[]").lower()
    if name not in known:
        from fleet.cli.main import COMMANDS

        close = difflib.get_close_matches(name, known, n=1)
        hint = f"fleet {name} --help" if name in COMMANDS else f"did you mean {close[0]}?" if close else "fleet help"
        raise NotFound(f"no error is called {slug!r}", hint=hint, slug="unknown-slug")
    text = known[name]
    meaning, remedy = text[2:] if _chinese() else text[:2]
    click.echo(f"{name}\n\n{meaning}\n\n{remedy}")


def _chinese() -> bool:
    """Whether the locale asks for Chinese, by the order of POSIX."""
    wanted = next(filter(None, (os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))), "")
    return wanted.startswith("zh")
