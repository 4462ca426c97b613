"""The `fleet` command: a lazy tree, so that `--help` and completion import nothing heavy."""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import sys
import traceback
from typing import Any

import click

from fleet import __version__
from fleet.core import errors

# noun -> (module, attribute, one line for --help); the module is imported when the noun is used.
COMMANDS: dict[str, tuple[str, str, str]] = {
    "probe": ("fleet.cli.probe", "probe", "Look at nodes and record what they say."),
    "node": ("fleet.cli.node", "node", "The inventory: add, import, list, show, label, hold, trust."),
    "matrix": ("fleet.cli.matrix", "matrix", "The compatibility matrix: check, solve, show, diff."),
    "why": ("fleet.cli.why", "why", "Why these versions: every reason with its source."),
    "why-not": ("fleet.cli.why", "why_not", "Why not that version: forbidden by what, or second because of what."),
    "plan": ("fleet.cli.plan", "plan", "What an upgrade would do, step by step; changes nothing."),
    "upgrade": ("fleet.cli.upgrade", "upgrade", "Carry out a plan: drain, install, reboot, validate, or roll back."),
    "rollout": ("fleet.cli.rollout", "rollout", "Rollouts under way and past: list, show, resume, pause, abort."),
    "controller": ("fleet.cli.controller", "controller", "The service that carries out rollouts: run, list."),
    "validate": ("fleet.cli.validate", "validate", "Run a suite of checks on nodes."),
    "audit": ("fleet.cli.audit", "audit", "Compare nodes with a baseline and report drift."),
    "stack": ("fleet.cli.audit", "stack", "Baselines: named stacks, saved and shown."),
    "artifact": ("fleet.cli.artifact", "artifact", "The local store of vendor packages."),
    "evidence": ("fleet.cli.evidence", "evidence", "What was done and seen, chained by digests."),
    "vendor": ("fleet.cli.vendor", "vendor", "The vendors known, and how an output of theirs is read."),
    "lab": ("fleet.cli.lab", "lab", "Simulated nodes to rehearse on (Linux, root)."),
    "doctor": ("fleet.cli.doctor", "doctor", "Is this controller fit: database, key, Ansible, folders, tables."),
    "db": ("fleet.cli.db", "db", "The inventory database: upgrade, current."),
    "config": ("fleet.cli.config", "config", "The settings in force and where they come from."),
    "completion": ("fleet.cli.config", "completion", "Shell completion for bash, zsh, fish."),
    "help": ("fleet.cli.config", "help_", "Help on an error by its slug."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="fleet")
@click.option("--db", metavar="URL", help="Inventory database (default: SQLite in the state directory; FLEET_DB).")
@click.option("--state-dir", metavar="DIR", help="Where inventory, evidence and artifacts live (FLEET_STATE_DIR).")
@click.option("--vendor-path", metavar="DIR[:DIR]", help="Folders with vendors of your own (FLEET_VENDOR_PATH).")
@click.pass_context
def fleet(ctx: click.Context, db: str | None, state_dir: str | None, vendor_path: str | None) -> None:
    """Keep bare-metal accelerator nodes on a known-good set of driver, firmware, OS and toolkit.

    A look around: `fleet node list`, `fleet probe`, `fleet plan`. Nothing is changed without a plan shown first.
    """
    ctx.obj = {"db": db, "state_dir": state_dir, "vendor_path": vendor_path}


def main(argv: list[str] | None = None) -> None:
    """Run the command and exit with its status (table: fleet.core.errors)."""
    args = list(sys.argv[1:] if argv is None else argv)
    _tolerant(sys.stdout, sys.stderr)
    code: Any
    try:
        fleet._main_shell_completion({}, "fleet")
        # Not `fleet.main`: it would end a closed pipe with an exit status of its own.
        with fleet.make_context("fleet", args) as ctx:
            code = fleet.invoke(ctx)
    except click.exceptions.Exit as end:
        code = end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show(file=sys.stdout)
        code = errors.DONE
    except click.ClickException as error:
        from fleet.cli.output import print_error

        message = error.format_message()
        print_error(errors.UsageError(message, hint=_help_hint(error), slug="usage"), args)
        code = errors.USAGE
    except (click.Abort, KeyboardInterrupt, EOFError):
        from fleet.cli.output import print_error

        print_error(errors.Interrupted("stopped by the operator", hint="run the same command again"), args)
        code = errors.INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        code = errors.DONE
    except errors.FleetError as error:
        from fleet.cli.output import print_error

        print_error(error, args)
        code = error.exit_code
    except Exception as error:
        from fleet.cli.output import print_error

        if os.environ.get("FLEET_DEBUG"):
            raise
        print_error(_unexpected(error), args)
        code = errors.FAILED
    status = code if isinstance(code, int) else errors.DONE
    engine = sys.modules.get("fleet.engine.durable")  # where it was used
    if engine is not None:
        engine.leave(status)
    sys.exit(status)


def _tolerant(*streams: Any) -> None:
    """A character that the terminal's encoding lacks is written as an escape, not answered with an exception."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """What is still to be written to standard output goes nowhere."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _unexpected(error: Exception) -> errors.FleetError:
    """An exception that nobody meant to raise, in a sentence: a fault of the system, or else of fleet."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        _drop_output()
        what = f"no space is left for {error.filename!r}" if error.filename else "the output could not be written whole"
        return errors.FleetError(what, cause=error.strerror or "", hint="free some space: df -h", slug="disk-full")
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return errors.FleetError(
            "the system refused a file", where=str(error.filename), cause=error.strerror,
            hint="look at its owner, mode and file system", slug="system-error",
        )  # fmt: skip
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "site-packages" not in frame.filename]
    at = f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno}" if frames else ""
    return errors.FleetError(
        "fleet came upon something it was not made for", where=at, cause=f"{type(error).__name__}: {error}",
        hint="FLEET_DEBUG=1 before the same command shows all of it; please report it", slug="internal",
    )  # fmt: skip


def _help_hint(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f"{context.command_path} --help" if context else "fleet --help"


if __name__ == "__main__":
    main()
