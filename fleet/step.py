"""One step on some equal nodes: probe, act, prove by another probe. What was learned comes back; nothing is stored.

The intent has been written before this is called, and may have been written by a process that died since (`again`):
then whatever runs on the node is waited for first, and a step whose goal is reached already is not acted again. An act
itself runs under fleet-run on the node, which attaches a second start to the first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleet.core.errors import FleetError
from fleet.core.model import ComponentFact, Json, Node, Step, VersionChange
from fleet.core.move import Do
from fleet.core.task import Outcome
from fleet.core.vendor import Vendor
from fleet.drain import BatchDrain, Drain, Drained
from fleet.playbook import Play, Playbook, Played, Staged
from fleet.power import Power
from fleet.probe import Probed
from fleet.proof import another_key, another_machine, identity, identity_lost, may_begin, owed, same, seen_as
from fleet.remote import Transport, sweep
from fleet.validate import judge

SETTLE_S = 30.0  # how long a node may take after a start until its cards show their values
POLL_S = 3.0
_BOOT = "cat /proc/sys/kernel/random/boot_id\n"
_RUNNING = """\
run=/var/lib/fleet/bin/fleet-run
[ -x "$run" ] || exit 0
"$run" --running
"""
# At most once in two minutes for one boot id, whoever asks: a request that was lost is repeated, one under way is not.
_ONCE = """\
seen=$(cat /proc/sys/kernel/random/boot_id)
[ "$seen" = "{boot}" ] || {{ echo other; exit 0; }}
mark=/var/lib/fleet/asked-{boot}
mkdir -p /var/lib/fleet
find /var/lib/fleet -maxdepth 1 -name 'asked-*' -mtime +30 -exec rmdir {{}} + 2>/dev/null
if ! mkdir "$mark" 2>/dev/null; then
    [ -n "$(find "$mark" -maxdepth 0 -mmin +2 2>/dev/null)" ] || {{ echo waiting; exit 0; }}
    touch "$mark"
fi
sync
{act}
echo asked
"""
_REBOOT = "(trap '' HUP; sleep 1; reboot || systemctl reboot || shutdown -r now) </dev/null >/dev/null 2>&1 &"


class Cut(Exception):  # no error: a person has said stop
    """The step was left where it stood; what it came to is not known."""


@dataclass(frozen=True)
class Hands:
    """Every door that an acting step goes through. `look` probes; `now` gives ISO 8601; `sudo` as for probes.

    `clock` is seconds since the epoch, `elapsed` seconds that no one can set: what a step waits for is measured by it.
    """

    look: Callable[[Sequence[Node]], Iterator[Probed]]
    transport: Transport
    playbook: Playbook
    power: Power
    drain: Drain
    vendors: Mapping[str, Vendor]
    artifact: Callable[[str], Staged]
    clock: Callable[[], float]
    now: Callable[[], str]
    sleep: Callable[[float], None]
    sudo: bool = True
    elapsed: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Subject:
    """One node as a step finds it. `start` = the digest it must have at the first step; `prior` as stored."""

    node: Node
    start: str
    given: frozenset[str] = frozenset()
    boot_id: str = ""
    prior: Mapping[str, Json] = field(default_factory=dict)
    now: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Did:
    """What a step came to on one node, and what was seen on the way."""

    outcome: Outcome
    probed: Probed | None = None
    prior: Mapping[str, Json] | None = None
    output: str = ""


@dataclass(frozen=True)
class Act:
    """A step to be done: the move, its nodes, and under which names and numbers."""

    move: Do
    vendor: str
    subjects: Mapping[str, Subject]
    rollout: str
    fence: int
    cut: Callable[[], bool] = lambda: False
    ours: Callable[[], bool] = lambda: True  # asked before a scheduler is: it knows no fence that would refuse us

    @property
    def step(self) -> Step:
        """The step of the move."""
        return self.move.step

    @property
    def step_id(self) -> str:
        """The name under which nodes remember it: the same for every start of one attempt."""
        return f"{self.rollout}.{self.move.direction[0]}{self.move.cursor}.{self.move.attempt}"

    @property
    def token(self) -> str:
        """What our cordons carry."""
        return f"fleet:{self.rollout}"


def do(hands: Hands, act: Act) -> dict[str, Did]:
    """Do the step: a result for each node. Never raises for what a node or a tool does; Cut when it was cut off."""
    results: dict[str, Did] = {}
    left = dict(act.subjects)
    priors: dict[str, Mapping[str, Json]] = {}
    looked: dict[str, Probed] = {}
    try:
        if act.move.direction in ("forward", "return") and act.move.cursor == 0:
            for name, seen in _look(hands, left.values()).items():
                looked[name] = seen
                start = (left[name].start,) if act.move.direction == "forward" else ()
                refused = may_begin(seen, {*start, *left[name].given})
                if refused is not None:
                    results[name] = Did(refused, seen)
                elif seen.facts is not None:
                    priors[name] = {**left[name].prior, **identity(seen.facts)}
                    left[name] = replace(left[name], prior=priors[name], boot_id=seen.facts.boot_id)
            left = {name: subject for name, subject in left.items() if name not in results}
        if left:
            done = _phase(hands, replace(act, subjects=left))
            results.update({name: _merge(did, priors.get(name), looked.get(name)) for name, did in done.items()})
    except FleetError as error:
        for name in act.subjects:
            results.setdefault(name, Did(_told(error), looked.get(name)))
    if act.cut():
        raise Cut
    for name in act.subjects:
        results.setdefault(name, Did(Outcome("ambiguous", "the step gave no result for this node")))
    return results


def _told(error: FleetError) -> Outcome:
    reason = f"{error.slug}: {error.what}" + (f" ({error.cause})" if error.cause else "")
    return Outcome("failed", reason, "operator", error.hint)


def _merge(did: Did, prior: Mapping[str, Json] | None, looked: Probed | None) -> Did:
    both = None if prior is None and did.prior is None else {**(prior or {}), **(did.prior or {})}
    return replace(did, prior=both, probed=did.probed or looked)


def _phase(hands: Hands, act: Act) -> dict[str, Did]:
    match act.step.phase:
        case "cordon" | "drain" | "uncordon":
            return _drain(hands, act)
        case "reboot":
            return _reboot(hands, act)
        case "verify":
            return _verify(hands, act)
        case "validate":
            return _validate(hands, act)
        case "stage" if not act.step.artifacts:
            return {name: Did(Outcome("already", "no packages are needed")) for name in act.subjects}
        case _:
            return _change(hands, act)


def _nap(hands: Hands, act: Act) -> None:
    """Wait a little between two looks."""
    if act.cut():
        raise Cut
    hands.sleep(POLL_S)


# --- looking --------------------------------------------------------------------------------------------------------


def _look(hands: Hands, subjects: Iterable[Subject]) -> dict[str, Probed]:
    return {probed.name: probed for probed in hands.look([subject.node for subject in subjects])}


# --- changing -------------------------------------------------------------------------------------------------------


def _wait_idle(hands: Hands, act: Act) -> dict[str, Did]:
    """Wait until nothing of ours runs on the nodes; those that do not get there."""
    pending = {name: subject.node for name, subject in act.subjects.items()}
    deadline = hands.elapsed() + act.step.limit_s
    why = dict.fromkeys(pending, "the node did not answer")
    while pending:
        for answer in sweep(hands.transport, list(pending.values()), _RUNNING, timeout_s=30, sudo=hands.sudo):
            if answer.ok and answer.rc == 0:
                if not answer.stdout.strip():
                    del pending[answer.name]
                else:
                    why[answer.name] = f"{answer.stdout.decode(errors='replace').strip()} still runs on the node"
            elif answer.detail:
                why[answer.name] = answer.detail
        if not pending or hands.elapsed() >= deadline:
            break
        _nap(hands, act)
    return {name: Did(Outcome("ambiguous", why[name])) for name in pending}


def _change(hands: Hands, act: Act) -> dict[str, Did]:
    """A phase that a playbook does."""
    step, results = act.step, {}
    vendor = hands.vendors.get(act.vendor)
    if act.move.again and step.phase != "preflight":
        results.update(_wait_idle(hands, act))
    left = {name: subject for name, subject in act.subjects.items() if name not in results}
    goal = step.changes if step.phase in ("remove", "install", "firmware") else ()
    if goal and all(change.new is not None for change in goal):
        for name, seen in _look(hands, left.values()).items():
            if seen.facts is not None and not owed(vendor, goal, seen.facts):
                results[name] = Did(Outcome("already", "the node has it already"), seen)
        left = {name: subject for name, subject in left.items() if name not in results}
    if not left or not hands.playbook.has(act.vendor, step.phase):
        return results | {name: Did(Outcome("already", "nothing to do in this phase")) for name in left}
    played = _play(hands, replace(act, subjects=left))
    good = [left[name] for name in left if played[name].ok]
    after = _look(hands, good) if goal else {}
    for name in left:
        results[name] = _judged(act, vendor, goal, played[name], after.get(name))
    return results


def _play(hands: Hands, act: Act) -> dict[str, Played]:
    step = act.step
    play = Play(
        vendor=act.vendor, phase=step.phase, rollout=act.rollout, step=act.step_id, fence=act.fence,
        effect=step.effect, changes=step.changes, artifacts=tuple(hands.artifact(name) for name in step.artifacts),
        arguments={"activation": step.activation, **step.arguments},
        now={name: subject.now for name, subject in act.subjects.items()}, limit_s=step.limit_s, cut=act.cut,
    )  # fmt: skip
    played = hands.playbook.run(play, [subject.node for subject in act.subjects.values()])
    if act.cut():
        raise Cut
    return {
        name: played.get(name, Played(False, "the playbook did not come to it", lost=True)) for name in act.subjects
    }


def _failed(played: Played) -> Outcome:
    reason = f"{played.slug}: {played.message}" if played.slug else played.message
    return Outcome("ambiguous" if played.lost else "failed", reason)


def _judged(
    act: Act, vendor: Vendor | None, goal: Sequence[VersionChange], played: Played, after: Probed | None
) -> Did:
    if not played.ok:
        return Did(_failed(played), output=played.transcript)
    if not goal:
        return Did(Outcome("done"), output=played.transcript)
    if after is None or after.facts is None:
        if act.step.activation in ("reboot", "power_cycle"):
            return Did(Outcome("done", "what was done shows after the restart"), after, output=played.transcript)
        return Did(Outcome("ambiguous", seen_as(after)), after, output=played.transcript)
    for change in goal:
        fact = after.facts.components.get(change.component, ComponentFact())
        unmoved = fact.installed is not None and same(vendor, change.component, fact.installed, change.old)
        if unmoved and not same(vendor, change.component, change.old, change.new) and fact.loaded != change.new:
            said = f"not-changed: {act.step.phase} ended well, but {change.component} is still {fact.installed}"
            return Did(Outcome("failed", said), after, output=played.transcript)
    return Did(Outcome("done"), after, output=played.transcript)


def _drain(hands: Hands, act: Act) -> dict[str, Did]:
    """A step that the scheduler does, for all nodes in one call where it can."""
    if not act.ours():
        raise Cut
    phase, drain, subjects = act.step.phase, hands.drain, act.subjects
    if isinstance(drain, BatchDrain):
        nodes = [subject.node for subject in subjects.values()]
        if phase == "uncordon":
            said = drain.uncordon_all(nodes, act.token, {name: _cordon_of(s) for name, s in subjects.items()})
        else:
            said = (drain.cordon_all if phase == "cordon" else drain.drain_all)(nodes, act.token)
    elif phase == "uncordon":
        said = {name: drain.uncordon(s.node, act.token, _cordon_of(s)) for name, s in subjects.items()}
    else:
        one = drain.cordon if phase == "cordon" else drain.drain
        said = {name: one(subject.node, act.token) for name, subject in subjects.items()}
    return {name: _drained(phase, said[name], subject) for name, subject in subjects.items() if name in said}


def _cordon_of(subject: Subject) -> Mapping[str, Json]:
    """What its cordon gave to be kept."""
    prior = subject.prior.get("drain")
    return prior if isinstance(prior, dict) else {}


def _drained(phase: str, said: Drained, subject: Subject) -> Did:
    prior: dict[str, Json] | None = None
    if phase == "cordon" and said.state == "done" and "drain" not in subject.prior:
        prior = {**subject.prior, "drain": dict(said.prior)}
    if said.foreign:
        ask = said.next_action or "ask who took it out of service"
        return Did(Outcome("failed", f"foreign: {said.reason}", "operator", ask))
    if said.revisit:
        later = said.next_action or f"fleet upgrade {subject.node.name} again once its jobs have ended"
        return Did(Outcome("failed", f"revisit: {said.reason}", "operator", later))
    reason = said.reason if said.state != "done" else ""
    owner = "operator" if said.next_action else ""
    outcome = Outcome(said.state, reason, owner, said.next_action, outage=said.outage)
    return Did(outcome, prior=prior, output=said.reason)


# --- starting again -------------------------------------------------------------------------------------------------


def _reboot(hands: Hands, act: Act) -> dict[str, Did]:
    """Restart or power-cycle, and wait until each node has another boot id."""
    step = act.step
    cycle = step.activation in ("power_cycle", "hands")
    results: dict[str, Did] = {}
    pending = dict(act.subjects)
    asked: set[str] = set()
    deadline = hands.elapsed() + step.limit_s
    boots = {name: subject.boot_id for name, subject in pending.items()}
    last = dict.fromkeys(pending, "it does not answer")
    strange: set[str] = set()  # those that show another host key: never while an early boot stage has its own
    while pending:
        up = []
        nodes = [subject.node for subject in pending.values()]
        for answer in sweep(hands.transport, nodes, _BOOT, timeout_s=20, sudo=False, retry=False):
            boot = answer.stdout.decode(errors="replace").strip()
            if not answer.ok or answer.rc != 0 or not boot:
                last[answer.name] = answer.detail or "it does not answer"
                (strange.add if answer.trouble == "key-changed" else strange.discard)(answer.name)
                continue
            last[answer.name] = "it still runs from before"
            boots[answer.name] = boots[answer.name] or boot
            if boot != boots[answer.name]:
                fresh = not act.move.again and answer.name in asked
                results[answer.name] = Did(Outcome("done" if fresh else "already"))
                del pending[answer.name]
            else:
                up.append(pending[answer.name])
        for subject in up:
            name = subject.node.name
            if cycle and (step.activation == "hands" or not hands.power.available(subject.node)):
                results[name] = Did(_for_hands(act, name))
                del pending[name]
                continue
            try:
                if _ask(hands, act, subject.node, boots[name], cycle=cycle):
                    asked.add(name)
            except FleetError as error:  # of this node alone: the others of the chunk go on
                results[name] = Did(_told(error))
                del pending[name]
        if hands.elapsed() >= deadline:
            break
        if pending:
            _nap(hands, act)
    for name in pending:
        if name in strange:
            results[name] = Did(another_key(name, last[name], step.limit_s))
            continue
        reason = f"no-return: not back within {step.limit_s} s: {last[name]}"
        results[name] = Did(Outcome("failed", reason, "hardware", f"look at the console of {name}"))
    return results


def _for_hands(act: Act, name: str) -> Outcome:
    off = f", {act.step.off_seconds} s without power" if act.step.off_seconds else ""
    return Outcome("hands", f"{name} needs a power cycle{off}", "operator", f"power-cycle {name}{off}, then fleet "
                   f"rollout resume {act.rollout}")  # fmt: skip


def _ask(hands: Hands, act: Act, node: Node, boot: str, *, cycle: bool) -> bool:
    """Ask for the restart, unless it was asked for moments ago; whether it was asked now."""
    if not all(c in "0123456789abcdefABCDEF-" for c in boot):
        raise FleetError(f"{node.name} has the boot id {boot[:60]!r}, which is none", slug="bad-boot-id")
    script = _ONCE.format(boot=boot, act=":" if cycle else _REBOOT)
    answer = hands.transport.run(node, script, timeout_s=30, sudo=hands.sudo)
    if not answer.ok or answer.stdout.strip().split(b"\n")[-1:] != [b"asked"]:
        return False
    if cycle:
        hands.power.do(node, "cycle", act.step.off_seconds)
    return True


# --- proving --------------------------------------------------------------------------------------------------------


def _verify(hands: Hands, act: Act) -> dict[str, Did]:
    """The vendor's own look, then a fresh probe: every changed component is loaded in its new version."""
    results: dict[str, Did] = {}
    vendor = hands.vendors.get(act.vendor)
    outputs: dict[str, str] = {}
    if hands.playbook.has(act.vendor, "verify"):
        played = _play(hands, act)
        for name, one in played.items():
            outputs[name] = one.transcript
            if not one.ok:
                results[name] = Did(_failed(one), output=one.transcript)
    left = {name: subject for name, subject in act.subjects.items() if name not in results}
    settle = act.step.arguments.get("settle_s")
    began = hands.elapsed()
    patience = float(settle) if isinstance(settle, int | float) else SETTLE_S
    while left:
        for name, seen in _look(hands, left.values()).items():
            other = another_machine(left[name].prior, seen.facts) if seen.facts is not None else None
            if other is not None:  # what it says is not of this node, and is not recorded as such
                results[name] = Did(other, output=outputs.get(name, ""))
                continue
            if seen.facts is None:
                result = Outcome("ambiguous", seen_as(seen))
            else:
                problem = owed(vendor, act.step.changes, seen.facts) or identity_lost(left[name].prior, seen.facts)
                result = Outcome("failed", f"not-in-force: {problem}") if problem else Outcome("done")
            results[name] = Did(result, seen, output=outputs.get(name, ""))
        not_ready = any(
            seen is not None and seen.facts is not None and "not-ready" in seen.facts.statuses.values()
            for seen in (results[name].probed for name in left)
        )
        left = {name: subject for name, subject in left.items() if results[name].outcome.result != "done"}
        if not left or hands.elapsed() - began >= (act.step.limit_s if not_ready else min(patience, act.step.limit_s)):
            break
        _nap(hands, act)
    return results


def _validate(hands: Hands, act: Act) -> dict[str, Did]:
    """The vendor's smoke checks on a fresh probe."""
    results = {}
    vendor = hands.vendors.get(act.vendor)
    for name, seen in _look(hands, act.subjects.values()).items():
        if seen.facts is None or vendor is None:
            results[name] = Did(Outcome("ambiguous", seen_as(seen)), seen)
            continue
        count = act.subjects[name].prior.get("count")
        report = judge(seen, vendor, count if isinstance(count, int) else len(seen.facts.accelerators))
        said = "\n".join(f"{item['result']} {item['name']}: {item.get('detail', '')}" for item in report.checks)
        # On the way back only a clear no counts: what an old tool cannot tell, it could not tell before either.
        bad = report.problem if act.move.direction == "forward" or report.verdict == "fail" else ""
        results[name] = Did(Outcome("failed", f"validation: {bad}") if bad else Outcome("done"), seen, output=said)
    return results
