"""Drain by Slurm: `scontrol` and `sinfo --json`, as they behave in Slurm 22.05.

Slurm keeps one reason text for a node, and a second drain overwrites the first one. So the state is read first, a
node that is out for another reason is left alone, and only what still carries our token is resumed, or what Slurm
itself has put down because of our reboot. Draining ends no job: the jobs are waited for until a deadline, then the
node is given back and its turn comes later. A Slurm that cannot be asked says nothing about any node.
https://slurm.schedmd.com/scontrol.html
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from fleet.core.errors import FleetError
from fleet.core.model import Json, Node
from fleet.core.nodeset import expand
from fleet.drain import Drained, marked, ours, outage, unreachable

LABEL = "slurm_node"  # the label of a node whose NodeName in Slurm is not its name here
RUNNING = frozenset({"IDLE", "ALLOCATED", "MIXED"})  # base states of a node that serves
OUT = frozenset({"DRAIN", "FAIL", "DRAINED", "DRAINING"})  # flags; the last two only in releases before 21.08
REBOOTING = frozenset({"REBOOT_REQUESTED", "REBOOT_ISSUED", "REBOOT"})
ABSENT = frozenset({"NOT_RESPONDING", "MAINT", "MAINTENANCE", "INVALID_REG"}) | REBOOTING  # no job starts there now
# What slurmctld itself writes when a node goes away or comes back by surprise, as every reboot of ours is to it.
BY_SLURM = ("Not responding", "Node unexpectedly rebooted")
UNREACHABLE = ("Unable to contact slurm controller", "Connection refused", "timed out", "Zero Bytes were transmitted")
DENIED = ("denied", "Invalid user id")
NOT_DRAINED = "Invalid node state"

Run: TypeAlias = Callable[[Sequence[str], Mapping[str, str], float], tuple[int, str, str]]


@dataclass(frozen=True)
class SlurmNode:
    """One node as Slurm tells it. `base` is the state without flags, in capitals; `reason_at` in epoch seconds."""

    name: str
    base: str
    flags: frozenset[str] = frozenset()
    reason: str = ""
    reason_at: float = 0.0

    @property
    def state(self) -> str:
        """As scontrol writes it: `MIXED+DRAIN`."""
        return "+".join([self.base, *sorted(self.flags)])

    @property
    def out(self) -> bool:
        """Whether Slurm gives it no new jobs by somebody's word; 24.11 keeps the reason text after a resume."""
        return bool(self.flags & OUT)

    @property
    def absent(self) -> bool:
        """Whether it serves nothing, for whatever reason. UNKNOWN, ERROR and words of later releases count."""
        return self.out or bool(self.flags & ABSENT) or self.base not in RUNNING


def parse_nodes(text: str) -> dict[str, SlurmNode] | None:
    """Name -> node of a `--json` document, None when it has no list of nodes (sinfo of 23.02 and later).

    Raises FleetError: the tools of 22.05 exit with 0 when slurmctld does not answer; the document then names errors.
    """
    try:
        document = json.loads(text)
        errors = document.get("errors") or []
        if errors:
            said = "; ".join(str(e.get("description") or e.get("error") or e) for e in errors)
            raise _unreachable(f"sinfo says {said}")
        rows = document.get("nodes")
        return None if rows is None else {node.name: node for node in map(_node, rows)}
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise FleetError(
            f"Slurm's answer is not understood: {text[:80]!r}", cause=f"{type(error).__name__}: {error}",
            hint="sinfo --json", slug="slurm-garbled",
        ) from error  # fmt: skip


def _node(row: Mapping[str, Any]) -> SlurmNode:
    """22.05: `state` is a word and `state_flags` a list; later `state` is one list of both."""
    state = row["state"]
    words = [str(w).upper() for w in ([state] if isinstance(state, str) else state)]
    if not words:
        raise ValueError(f"no state of {row.get('name')}")
    at = row.get("reason_changed_at") or 0
    number = at.get("number", 0) if isinstance(at, dict) else at
    flags = frozenset(words[1:]) | {str(f).upper() for f in row.get("state_flags") or ()}
    return SlurmNode(str(row["name"]), words[0], flags, str(row.get("reason") or ""), float(number))


def _unreachable(said: str) -> FleetError:
    return FleetError(
        "Slurm's controller does not answer", cause=said, hint="scontrol ping; start slurmctld, or see scontrol_path",
        slug="slurm-unreachable",
    )  # fmt: skip


# --- decisions ------------------------------------------------------------------------------------------------------


def unknown(name: str) -> Drained:
    """Slurm has no such node."""
    action = f"correct slurm.conf, or fleet node label NODE {LABEL}=NAME"
    return Drained("failed", f"slurm-unknown-node: Slurm has no node {name!r}", next_action=action)


def described(node: SlurmNode) -> str:
    """Its state and reason, for a person."""
    return f"{node.state} in Slurm, {repr(node.reason) if node.reason else 'no reason given'}"


def foreign(node: SlurmNode) -> Drained:
    """Somebody else has it out."""
    return Drained("failed", described(node), foreign=True, next_action=f"scontrol show node {node.name}")


def away(node: SlurmNode) -> str:
    """Why it serves nothing, "" when it does or when a rollout of fleet has it out.

    Without the DRAIN flag our token is what a resume left behind: whatever put the node down came later.
    """
    return described(node) if node.absent and not (node.out and marked(node.reason)) else ""


def before_cordon(node: SlurmNode, token: str) -> Drained | None:
    """What is to be said about the cordon without acting; None = drain it now."""
    if node.out and ours(node.reason, token):
        return Drained("done", "ours already", {"cordoned": True, "at": node.reason_at})
    if node.out or node.flags & REBOOTING or node.base not in RUNNING:
        return foreign(node)
    return None


def emptied(node: SlurmNode, jobs: Sequence[str], token: str, now: float, deadline_s: float) -> Drained:
    """Whether a node that we drain has no job left. `now` in epoch seconds, `deadline_s` counts from the cordon."""
    if not node.out:
        return Drained(
            "failed", f"somebody else took it back into service ({node.state})", foreign=True,
            next_action=f"ask who resumed {node.name}",
        )  # fmt: skip
    if not ours(node.reason, token):
        return foreign(node)
    if not jobs and "COMPLETING" not in node.flags and node.base in ("IDLE", "DOWN"):
        return Drained("done")
    shown = ", ".join(jobs[:5]) + (" …" if len(jobs) > 5 else "")
    what = f"{len(jobs)} {'job runs' if len(jobs) == 1 else 'jobs run'}: {shown}" if jobs else f"it is {node.state}"
    waited = now - node.reason_at
    if node.reason_at and waited > deadline_s:
        return Drained(
            "failed", f"{what} still after {waited:.0f} s, the limit is {deadline_s:.0f} s", revisit=True,
            next_action=f"squeue -w {node.name}; fleet upgrade again once they have ended",
        )  # fmt: skip
    return Drained("waiting", what)


def by_our_reboot(node: SlurmNode, token: str, cordoned_at: float) -> bool:
    """Whether Slurm itself has put the node down, and did so after our cordon (epoch seconds, 0 = not known).

    Slurm keeps our reason when it puts a drained node down. Its own words take the place of ours where the drain was
    lifted, or the reason lost, while the node was away; words of before our cordon are of another absence.
    """
    if ours(node.reason, token):
        return True
    return node.reason.startswith(BY_SLURM) and 0 < cordoned_at <= node.reason_at


def before_resume(node: SlurmNode, token: str, cordoned_at: float = 0.0) -> Drained | None:
    """What is to be said about giving it back without acting; None = resume it now."""
    if not node.out and node.base != "DOWN":
        return Drained("done", f"in service already ({node.state})")
    if not by_our_reboot(node, token, cordoned_at):
        return Drained("done", f"left out of service, the reason is not ours: {described(node)}")
    if node.flags & REBOOTING:
        stop = f"wait for it, or scontrol cancel_reboot {node.name}"
        return Drained(
            "waiting", f"slurm-rebooting: somebody asked Slurm to reboot it ({node.state})", next_action=stop
        )
    if "INVALID_REG" in node.flags:
        return Drained(
            "failed", "slurm-invalid-node: its slurmd registers less than slurm.conf promises",
            next_action=f"slurmd -C and nvidia-smi -L or the like on {node.name}, then scontrol update resume",
        )  # fmt: skip
    if "NOT_RESPONDING" in node.flags:
        start = f"start slurmd on {node.name}"
        return Drained("waiting", "slurm-no-slurmd: its slurmd does not answer slurmctld", next_action=start)
    return None


# --- acting ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SlurmDrain:
    """A BatchDrain. `scontrol` is that program's path; `sinfo` and `squeue` lie beside it. `clock`: epoch seconds."""

    run: Run
    clock: Callable[[], float]
    scontrol: str = "scontrol"
    conf: str = ""  # SLURM_CONF, where it is not Slurm's default
    deadline_s: float = 3600.0
    timeout_s: float = 60.0

    def cordon(self, node: Node, token: str) -> Drained:
        """See `cordon_all`."""
        return self.cordon_all([node], token)[node.name]

    def drain(self, node: Node, token: str) -> Drained:
        """See `drain_all`."""
        return self.drain_all([node], token)[node.name]

    def uncordon(self, node: Node, token: str, prior: Mapping[str, Json]) -> Drained:
        """See `uncordon_all`."""
        return self.uncordon_all([node], token, {node.name: prior})[node.name]

    def cordon_all(self, nodes: Sequence[Node], token: str) -> dict[str, Drained]:
        """Drain with our token as the reason those that serve; `prior` is the state and reason they had, and when."""
        return self._told(nodes, lambda known: self._cordon(known, token))

    def drain_all(self, nodes: Sequence[Node], token: str) -> dict[str, Drained]:
        """`done` for nodes without jobs, `waiting` or, after the deadline, `revisit` for the others."""
        return self._told(nodes, lambda known: self._emptied(known, token))

    def uncordon_all(
        self, nodes: Sequence[Node], token: str, priors: Mapping[str, Mapping[str, Json]] | None = None
    ) -> dict[str, Drained]:
        """Resume those whose reason still carries our token, or that Slurm has put down since our cordon."""
        times = {name: at for name, prior in (priors or {}).items() if isinstance(at := prior.get("at"), int | float)}
        since = {_theirs(node): float(times.get(node.name, 0.0)) for node in nodes}
        return self._told(nodes, lambda known: self._resume(known, token, since))

    def away(self, nodes: Sequence[Node]) -> dict[str, str]:
        """A Census: one list of all nodes, however many are asked for."""
        try:
            found = self._read()
        except FleetError as error:
            raise unreachable("sinfo", f"{error.what} ({error.cause})", error.hint) from error
        said = {node.name: away(found[name]) for node in nodes if (name := _theirs(node)) in found}
        return {name: reason for name, reason in said.items() if reason}

    def _told(
        self, nodes: Sequence[Node], ask: Callable[[dict[str, SlurmNode]], dict[str, Drained]]
    ) -> dict[str, Drained]:
        """By fleet's names. A Slurm that cannot be asked is waited for; how long is the step's affair."""
        names = {node.name: _theirs(node) for node in nodes}
        try:
            found = self._read()
            said = ask({name: found[name] for name in names.values() if name in found})
        except FleetError as error:
            cause = f" ({error.cause})" if error.cause else ""
            return dict.fromkeys(names, outage(f"{error.slug}: {error.what}{cause}", error.hint or "sinfo; squeue"))
        return {name: said.get(theirs) or unknown(theirs) for name, theirs in names.items()}

    def _cordon(self, known: dict[str, SlurmNode], token: str) -> dict[str, Drained]:
        said = {name: before_cordon(node, token) for name, node in known.items()}
        todo = [name for name, answer in said.items() if answer is None]
        out = {name: answer for name, answer in said.items() if answer is not None}
        if todo:
            failed = self._update(todo, "state=drain", f"reason={token}")
            after = self._read()
            for name in todo:
                now, was = after.get(name), known[name]
                if now is not None and now.out and ours(now.reason, token):
                    out[name] = Drained("done", "", _before(was, now))
                elif now is not None and now.out:
                    out[name] = foreign(now)
                else:
                    out[name] = _not_changed(failed or "Slurm took the drain but does not show it")
        return out

    def _emptied(self, known: dict[str, SlurmNode], token: str) -> dict[str, Drained]:
        jobs = self._jobs(list(known))
        now = self.clock()
        return {name: emptied(node, jobs.get(name, []), token, now, self.deadline_s) for name, node in known.items()}

    def _resume(self, known: dict[str, SlurmNode], token: str, since: Mapping[str, float]) -> dict[str, Drained]:
        said = {name: before_resume(node, token, since[name]) for name, node in known.items()}
        todo = [name for name, answer in said.items() if answer is None]
        out = {name: answer for name, answer in said.items() if answer is not None}
        if todo and self._update(todo, "state=resume"):
            for name in todo:  # one that somebody resumed meanwhile fails the whole list
                failed = self._update([name], "state=resume")
                if failed and NOT_DRAINED not in failed:
                    out[name] = _not_changed(failed)
        after = self._read() if todo else {}
        for name in todo:
            now = after.get(name)
            if name in out:
                continue
            out[name] = _not_changed("Slurm took the resume but does not show it") if now is None else Drained("done")
            if now is not None and (now.out or now.base == "DOWN"):
                again = Drained(
                    "waiting", f"{now.state} again after the resume", next_action=f"scontrol show node {name}"
                )
                out[name] = before_resume(now, token, since[name]) or again
        return out

    def _read(self) -> dict[str, SlurmNode]:
        """Every node that Slurm knows: sinfo of 22.05 takes no list of names together with --json."""
        rc, text, complaint = self._tool("sinfo", "--json")
        if rc != 0:
            raise _trouble("sinfo --json", complaint, rc)
        found = parse_nodes(text)
        if found is None:  # grouped rows since 23.02, which has this instead
            rc, text, complaint = self._tool("scontrol", "show", "nodes", "--json")
            if rc != 0:
                raise _trouble("scontrol show nodes --json", complaint, rc)
            found = parse_nodes(text)
        if found is None:
            raise FleetError("neither sinfo nor scontrol list nodes as JSON", hint="sinfo --json", slug="slurm-garbled")
        return found

    def _jobs(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Node -> ids of the jobs that hold something on it, suspended and completing ones too."""
        held: dict[str, list[str]] = {}
        if not names:
            return held
        rc, text, complaint = self._tool("squeue", "-h", "-w", ",".join(names), "-o", "%A|%N")
        if rc != 0:
            raise _trouble("squeue", complaint, rc)
        for row in text.splitlines():
            job, _, where = row.strip().partition("|")
            for name in expand(where) if where else ():
                held.setdefault(name, []).append(job)
        return held

    def _update(self, names: Sequence[str], *words: str) -> str:
        """What scontrol complains about, "" when it did it."""
        rc, _, complaint = self._tool("scontrol", "update", f"nodename={','.join(names)}", *words)
        if rc == 0:
            return ""
        if any(mark in complaint for mark in UNREACHABLE):
            raise _unreachable(complaint)
        return complaint or f"scontrol ended with {rc}"

    def _tool(self, name: str, *words: str) -> tuple[int, str, str]:
        folder = os.path.dirname(self.scontrol)  # noqa: PTH120 # "" stays ""
        path = self.scontrol if name == "scontrol" else os.path.join(folder, name)  # noqa: PTH118
        rc, out, complaint = self.run([path, *words], {"SLURM_CONF": self.conf} if self.conf else {}, self.timeout_s)
        return rc, out, complaint.strip()


def _theirs(node: Node) -> str:
    """What Slurm calls it."""
    return node.labels.get(LABEL, node.name)


def _before(was: SlurmNode, now: SlurmNode) -> dict[str, Json]:
    """What to keep of a node that we have just drained: how it was, and since when it is ours by Slurm's clock."""
    return {"cordoned": True, "state": was.state, "reason": was.reason, "at": now.reason_at}


def _trouble(command: str, complaint: str, rc: int) -> FleetError:
    if any(mark in complaint for mark in UNREACHABLE):
        return _unreachable(complaint)
    if any(mark in complaint for mark in DENIED):
        hint = "let the controller's user see all of Slurm: PrivateData, or make it a Slurm operator"
        return FleetError(f"{command} is denied", cause=complaint, hint=hint, slug="slurm-denied")
    return FleetError(f"{command} failed", cause=complaint or f"exit status {rc}", hint=command, slug="slurm-failed")


def _not_changed(said: str) -> Drained:
    if any(mark in said for mark in DENIED):
        action = "make the controller's user a Slurm operator: sacctmgr modify user NAME set adminlevel=operator"
        return outage(f"slurm-denied: {said}", action)
    return Drained("failed", f"slurm-failed: {said}", next_action="scontrol show node; slurmctld's log")


def run_program(argv: Sequence[str], extra: Mapping[str, str], timeout_s: float) -> tuple[int, str, str]:
    """(exit status, stdout, stderr) of a program on the controller, in its own session. Raises FleetError."""
    try:
        done = subprocess.run(
            list(argv), env={**os.environ, "LC_ALL": "C", **extra}, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=timeout_s, check=False, start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return 124, "", f"timed out after {timeout_s:.0f} s"
    except OSError as error:
        raise FleetError(
            f"{argv[0]} cannot be run", cause=str(error.strerror), hint="install slurm-client, or set scontrol_path",
            slug="slurm-no-tool",
        ) from error  # fmt: skip
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
