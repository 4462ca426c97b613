"""The `fleet` command run inside the test's process: as a person would, some ten times faster than a new process."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fleet.cli.main import main


@dataclass(frozen=True)
class Done:
    """Exit status, standard output, standard error."""

    code: int
    out: str
    err: str


class Fleet:
    """The command with a state folder, settings and a working folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.url = f"sqlite:///{self.state}/inventory.db"

    def __call__(self, *args: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Done:
        out, err = io.StringIO(), io.StringIO()
        given = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
        settings = {"FLEET_STATE_DIR": str(self.state), "XDG_CONFIG_HOME": str(self.folder / "config")}
        code = 0
        with contextlib.ExitStack() as around:
            for context in (
                contextlib.chdir(self.folder),
                _environment(settings | dict(env or {})),
                _stdin(given),
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
            ):
                around.enter_context(context)
            try:
                main(list(args))
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
        return Done(code, out.getvalue(), err.getvalue())

    def names(self, *args: str) -> list[str]:
        """The names that `fleet node list` gives."""
        return self("node", "list", "-o", "name", *args).out.split()


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    for key in [key for key in os.environ if key.startswith("FLEET_")]:
        del os.environ[key]
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextlib.contextmanager
def _stdin(given: io.TextIOWrapper) -> Iterator[None]:
    before, sys.stdin = sys.stdin, given
    try:
        yield
    finally:
        sys.stdin = before
