"""What a node answers to a script, and the Protocol of everything that can ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from fleet.core.model import Node

# How far a run came; `done` = the script was fed and its end was seen.
Phase = Literal["connect", "banner", "handshake", "hostkey", "auth", "session", "run", "done"]

# Why it went no further.
Trouble = Literal[
    "",
    "unreachable",  # no route, connection refused, name not found
    "timeout",  # the limit of a phase or of the run passed
    "closed",  # the other side hung up
    "protocol",  # it is no SSH server, or none we can talk to
    "unknown-key",  # no host key is recorded for this node and the policy is `pinned`
    "key-changed",  # another host key than the recorded one
    "login-refused",  # the user or its key was not accepted
    "output-cap",  # more output than allowed; what came before is kept
    "not-recorded",  # a replay without this node
    "internal",  # a fault of fleet itself
]

RETRIED: frozenset[Phase] = frozenset({"connect", "banner", "handshake"})


@dataclass(frozen=True)
class Answer:
    """What came of running one script on one node.

    `rc` is None when the exit status was not seen. `stdout` and `stderr` are what arrived, also when the run broke off.
    `host_key` is the key the node showed, `ssh-ed25519 AAAA…`, or empty. `seconds` runs from the first packet to the
    last, without the wait for a free slot.
    """

    node: Node
    phase: Phase
    rc: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    detail: str = ""
    host_key: str = ""
    trouble: Trouble = ""
    seconds: float = 0.0

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def ok(self) -> bool:
        """The script ran to its end; its exit status may still be anything."""
        return self.phase == "done" and not self.trouble


class Transport(Protocol):
    """Runs POSIX-sh scripts on nodes. Safe to call from many threads; never raises for what a node does."""

    def run(self, node: Node, script: str, *, timeout_s: float, sudo: bool) -> Answer:
        """Feed `script` to sh on the node; `timeout_s` limits the whole run once it has a free slot."""

    def close(self) -> None:
        """End every run under way; their answers say `closed`. Further runs are refused."""
