"""Power: taking it from a node and giving it back. A Protocol, and the adapter that calls a command of the site's."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from fleet.core.errors import FleetError
from fleet.core.model import Node

Action = Literal["on", "off", "cycle", "status"]


class Power(Protocol):
    """What can switch nodes off and on."""

    def available(self, node: Node) -> bool:
        """Whether this can switch that node at all; if not, a person must."""
        ...

    def do(self, node: Node, action: Action, off_seconds: int = 0) -> str:
        """Do it and return when it is done; for `status` the answer is `on`, `off` or `unknown`.

        `off_seconds` is how long the node stays without power in a cycle. Raises FleetError.
        """
        ...


class NoPower:
    """No power control: every power cycle is a job for hands."""

    def available(self, node: Node) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def do(self, node: Node, action: Action, off_seconds: int = 0) -> str:  # noqa: ARG002
        """Always an error."""
        raise FleetError(
            f"nothing can {action} the power of {node.name}", hint="set power_command", slug="no-power-control"
        )


@dataclass(frozen=True)
class HookPower:
    """A command of the site's, run by sh with NODE, ADDRESS, BMC, ACTION and OFF_SECONDS in its environment."""

    command: str
    run: Callable[[str, dict[str, str], float], tuple[int, str]]
    timeout_s: float = 300.0

    def available(self, node: Node) -> bool:  # noqa: ARG002
        """Always: the command says itself what it cannot do."""
        return True

    def do(self, node: Node, action: Action, off_seconds: int = 0) -> str:
        """Run the command; any exit status but 0 is an error with what it printed."""
        env = {
            "NODE": node.name, "ADDRESS": node.address, "BMC": node.bmc, "ACTION": action,
            "OFF_SECONDS": str(off_seconds),
        }  # fmt: skip
        rc, said = self.run(self.command, env, self.timeout_s + off_seconds)
        if rc != 0:
            raise FleetError(
                f"power {action} of {node.name} failed", cause=said[-400:] or f"exit status {rc}",
                hint="try the power_command by hand", slug="power-failed",
            )  # fmt: skip
        answer = said.strip().lower()
        if action != "status":
            return answer
        return answer if answer in ("on", "off") else "unknown"


def run_hook(command: str, env: dict[str, str], timeout_s: float) -> tuple[int, str]:
    """(exit status, what it printed) of a shell command on the controller; 124 when it ran past its time.

    It runs in its own session, so that Ctrl-C at the terminal does not cut it short.
    """
    with subprocess.Popen(
        ["/bin/sh", "-c", command], env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            said, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what the shell started too: it must not act later
            return 124, f"no end within {timeout_s:.0f} s"
    return process.returncode, said.decode(errors="replace").strip()
