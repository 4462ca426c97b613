"""The `fleet` command: a lazy tree, so that `--help` and completion import nothing heavy."""

from __future__ import annotations

import importlib
import os
import sys
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
    "validate": ("fleet.cli.validate", "validate", "Run a suite of checks on nodes."),
    "audit": ("fleet.cli.audit", "audit", "Compare nodes with a baseline and report drift."),
    "stack": ("fleet.cli.audit", "stack", "Baselines: named stacks, saved and shown."),
    "artifact": ("fleet.cli.artifact", "artifact", "The local store of vendor packages."),
    "evidence": ("fleet.cli.evidence", "evidence", "What was done and seen, chained by digests."),
    "vendor": ("fleet.cli.vendor", "vendor", "The vendors known, and how an output of theirs is read."),
    "lab": ("fleet.cli.lab", "lab", "Simulated nodes to rehearse on (Linux, root)."),
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
    args = sys.argv[1:] if argv is None else argv
    try:
        code: Any = fleet.main(args=args, prog_name="fleet", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show(file=sys.stdout)
        code = errors.DONE
    except click.ClickException as error:
        from fleet.cli.output import print_error

        message = error.format_message()
        print_error(errors.UsageError(message, hint=_help_hint(error), slug="usage"), args)
        code = errors.USAGE
    except (click.Abort, KeyboardInterrupt):
        from fleet.cli.output import print_error

        print_error(errors.Interrupted("stopped by the operator", hint="run the same command again"), args)
        code = errors.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = errors.DONE
    except errors.FleetError as error:
        from fleet.cli.output import print_error

        print_error(error, args)
        code = error.exit_code
    sys.exit(code if isinstance(code, int) else errors.DONE)


def _help_hint(error: click.ClickException) -> str:
    context = getattr(error, "ctx", None)
    return f"{context.command_path} --help" if context else "fleet --help"


if __name__ == "__main__":
    main()
