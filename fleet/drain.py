"""Drain: no new jobs on a node, running ones ended, and the node given back as it was found.

Every cordon carries our token; what was there before is returned to the caller to be stored, and only our own cordon
is undone. A reason that somebody else gave is never overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from fleet.core.errors import FleetError
from fleet.core.model import Json, Node

MARK = "fleet:"  # how the token of any rollout begins


@dataclass(frozen=True)
class Drained:
    """What came of it. `prior` is the state before, for `uncordon`; `foreign` = somebody else keeps the node out.

    `revisit` = the jobs outlasted the deadline: nothing is wrong with the node, its turn comes later. `outage` = the
    scheduler itself cannot be asked: that says nothing about the node, `state` is `waiting` and the same call may be
    made again.
    """

    state: Literal["done", "waiting", "failed"]
    reason: str = ""
    prior: Mapping[str, Json] = field(default_factory=dict)
    foreign: bool = False
    revisit: bool = False
    next_action: str = ""
    outage: bool = False


class Drain(Protocol):
    """The scheduler in front of the nodes. Each call may be repeated: it is then a no-op.

    A scheduler that cannot be asked is an answer (`outage`), never an exception.
    """

    def cordon(self, node: Node, token: str) -> Drained:
        """No new jobs from now on."""
        ...

    def drain(self, node: Node, token: str) -> Drained:
        """`done` once no job runs; `waiting` while some do: ask again."""
        ...

    def uncordon(self, node: Node, token: str, prior: Mapping[str, Json]) -> Drained:
        """Give the node back as it was, if the cordon is ours."""
        ...


@runtime_checkable
class BatchDrain(Drain, Protocol):
    """A scheduler that takes a list of nodes in one call. Every node that was asked for is in the answer."""

    def cordon_all(self, nodes: Sequence[Node], token: str) -> dict[str, Drained]:
        """No new jobs on any of them from now on."""
        ...

    def drain_all(self, nodes: Sequence[Node], token: str) -> dict[str, Drained]:
        """`done` for those on which no job runs."""
        ...

    def uncordon_all(
        self, nodes: Sequence[Node], token: str, priors: Mapping[str, Mapping[str, Json]] | None = None
    ) -> dict[str, Drained]:
        """Give back those that carry our token. `priors`: node -> what its cordon gave."""
        ...


@runtime_checkable
class Census(Protocol):
    """A scheduler that can say which nodes serve nothing, whoever took them out."""

    def away(self, nodes: Sequence[Node]) -> dict[str, str]:
        """node -> reason, of those that serve nothing and that no rollout of fleet has taken out.

        A node that the scheduler does not know is not in the answer. Raises FleetError `scheduler-unreachable`.
        """
        ...


def unreachable(asked: str, said: str, hint: str) -> FleetError:
    """The scheduler could not be asked for what is away: without that no place in a budget is known to be free."""
    return FleetError(
        f"the scheduler cannot be asked which nodes serve ({asked})", cause=said, hint=hint,
        slug="scheduler-unreachable",
    )  # fmt: skip


def outage(said: str, next_action: str) -> Drained:
    """The scheduler cannot be asked: nothing about any node."""
    return Drained("waiting", said, next_action=next_action, outage=True)


def marked(text: str) -> bool:
    """Whether a reason or annotation is of some rollout of fleet."""
    return text.startswith(MARK) and len(text) > len(MARK)


def ours(text: str, token: str) -> bool:
    """Whether a reason or annotation is ours: the token itself, or the token with something after a colon or space."""
    return text == token or text.startswith((f"{token}:", f"{token} "))


class NoDrain:
    """No scheduler is known: nothing to do."""

    def cordon(self, node: Node, token: str) -> Drained:  # noqa: ARG002
        """Done."""
        return Drained("done")

    def drain(self, node: Node, token: str) -> Drained:  # noqa: ARG002
        """Done."""
        return Drained("done")

    def uncordon(self, node: Node, token: str, prior: Mapping[str, Json]) -> Drained:  # noqa: ARG002
        """Done."""
        return Drained("done")


WAIT = 75  # EX_TEMPFAIL: "ask again"
FOREIGN = 77  # EX_NOPERM: "somebody else has this node out"
AWAY = 69  # EX_UNAVAILABLE: "the scheduler cannot be asked"
NO_END = 124  # what the runner gives for a command that ran past its time


@dataclass(frozen=True)
class HookDrain:
    """Two commands of the site's, run by sh with NODE, ACTION=cordon|drain|uncordon and TOKEN in their environment.

    Exit status 0 = done, 75 = not yet, ask again, 77 = out of service for somebody else's reason (printed), 69 = the
    scheduler cannot be asked (so is a cordon or uncordon that does not end), any other = failed. What `cordon` prints
    is kept as the prior state and handed to `uncordon` as PRIOR. A third command prints `NODE REASON`, a line for each
    node that serves nothing.
    """

    drain_command: str
    undrain_command: str
    run: Callable[[str, dict[str, str], float], tuple[int, str]]
    timeout_s: float = 300.0
    census_command: str = ""

    def _call(self, command: str, node: Node, action: str, token: str, prior: str = "") -> Drained:
        if not command:
            return Drained("done")
        env = {"NODE": node.name, "ADDRESS": node.address, "ACTION": action, "TOKEN": token, "PRIOR": prior}
        rc, said = self.run(command, env, self.timeout_s)
        if rc == 0:
            return Drained("done", said, {"said": said, "cordoned": True})
        if rc == WAIT or (rc == NO_END and action == "drain"):  # a command may well wait for the jobs itself
            return Drained("waiting", said or "jobs are still running")
        if rc == FOREIGN:
            return Drained("failed", f"out of service for another reason: {said}", foreign=True)
        if rc in (AWAY, NO_END):
            why = said[-300:] or f"exit status {rc}"
            return outage(f"drain-command-away: {action} of {node.name}: {why}", "run the drain command by hand")
        return Drained("failed", f"{action} command: {said[-300:] or f'exit status {rc}'}")

    def cordon(self, node: Node, token: str) -> Drained:
        """Run the drain command with ACTION=cordon."""
        return self._call(self.drain_command, node, "cordon", token)

    def drain(self, node: Node, token: str) -> Drained:
        """Run the drain command with ACTION=drain."""
        return self._call(self.drain_command, node, "drain", token)

    def uncordon(self, node: Node, token: str, prior: Mapping[str, Json]) -> Drained:
        """Run the undrain command, unless we never cordoned the node."""
        if not prior.get("cordoned"):
            return Drained("done", "it was not cordoned by us")
        return self._call(self.undrain_command, node, "uncordon", token, str(prior.get("said", "")))

    def away(self, nodes: Sequence[Node]) -> dict[str, str]:
        """Run the census command once, with ACTION=census; without one nothing is known to be away.

        A line of another node, and one whose reason is a token of ours, is passed over. Raises FleetError
        `scheduler-unreachable` for any exit status but 0.
        """
        if not self.census_command:
            return {}
        rc, said = self.run(self.census_command, {"ACTION": "census"}, self.timeout_s)
        if rc != 0:
            why = said[-300:] or f"exit status {rc}"
            raise unreachable("census_command", why, "run the census_command by hand; it must end with 0")
        known = {node.name for node in nodes}
        rows = (line.split(None, 1) for line in said.splitlines() if line.strip())
        found = {row[0]: row[1].strip() if len(row) > 1 else "no reason given" for row in rows}
        return {name: reason for name, reason in found.items() if name in known and not marked(reason)}
