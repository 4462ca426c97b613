"""One step on some equal nodes: probe, act, prove by another probe. What was learned comes back; nothing is stored.

The intent has been written before this is called, and may have been written by a process that died since (`again`):
then whatever runs on the node is waited for first, and a step whose goal is reached already is not acted again. An act
itself runs under fleet-run on the node, which attaches a second start to the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fleet.act import Act, Cut, Did, Hands, look, nap, told
from fleet.cordon import scheduled
from fleet.core.errors import FleetError
from fleet.core.model import ComponentFact, Json, VersionChange
from fleet.core.task import Outcome
from fleet.core.vendor import Vendor
from fleet.playbook import Play, Played
from fleet.probe import Probed
from fleet.proof import another_machine, identity, identity_lost, may_begin, owed, same, seen_as
from fleet.remote import sweep
from fleet.restart import restart
from fleet.validate import judge

SETTLE_S = 30.0  # how long a node may take after a start until its cards show their values
_RUNNING = """\
run=/var/lib/fleet/bin/fleet-run
[ -x "$run" ] || exit 0
"$run" --running
"""


def do(hands: Hands, act: Act) -> dict[str, Did]:
    """Do the step: a result for each node. Never raises for what a node or a tool does; Cut when it was cut off."""
    results: dict[str, Did] = {}
    left = dict(act.subjects)
    priors: dict[str, Mapping[str, Json]] = {}
    looked: dict[str, Probed] = {}
    try:
        if act.move.direction in ("forward", "return") and act.move.cursor == 0:
            for name, seen in look(hands, left.values()).items():
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
            results.setdefault(name, Did(told(error), looked.get(name)))
    if act.cut():
        raise Cut
    for name in act.subjects:
        results.setdefault(name, Did(Outcome("ambiguous", "the step gave no result for this node")))
    return results


def _merge(did: Did, prior: Mapping[str, Json] | None, looked: Probed | None) -> Did:
    both = None if prior is None and did.prior is None else {**(prior or {}), **(did.prior or {})}
    return replace(did, prior=both, probed=did.probed or looked)


def _phase(hands: Hands, act: Act) -> dict[str, Did]:
    match act.step.phase:
        case "cordon" | "drain" | "uncordon":
            return scheduled(hands, act)
        case "reboot":
            return restart(hands, act)
        case "verify":
            return _verify(hands, act)
        case "validate":
            return _validate(hands, act)
        case "stage" if not act.step.artifacts:
            return {name: Did(Outcome("already", "no packages are needed")) for name in act.subjects}
        case _:
            return _change(hands, act)


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
        nap(hands, act)
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
        for name, seen in look(hands, left.values()).items():
            if seen.facts is not None and not owed(vendor, goal, seen.facts):
                results[name] = Did(Outcome("already", "the node has it already"), seen)
        left = {name: subject for name, subject in left.items() if name not in results}
    if not left or not hands.playbook.has(act.vendor, step.phase):
        return results | {name: Did(Outcome("already", "nothing to do in this phase")) for name in left}
    played = _play(hands, replace(act, subjects=left))
    good = [left[name] for name in left if played[name].ok]
    after = look(hands, good) if goal else {}
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
        for name, seen in look(hands, left.values()).items():
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
        nap(hands, act)
    return results


def _validate(hands: Hands, act: Act) -> dict[str, Did]:
    """The vendor's smoke checks on a fresh probe."""
    results = {}
    vendor = hands.vendors.get(act.vendor)
    for name, seen in look(hands, act.subjects.values()).items():
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
