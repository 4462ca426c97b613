"""What the scheduler does for a step: cordon, drain, uncordon."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from fleet.act import Act, Cut, Did, Hands, Subject, nap
from fleet.core.errors import FleetError
from fleet.core.model import Json
from fleet.core.task import Outcome
from fleet.drain import BatchDrain, Drained

GIVEN_BACK_S = 20.0  # how long whoever was late looks what became of the nodes; a process that is to end waits for it


def scheduled(hands: Hands, act: Act) -> dict[str, Did]:
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
    if phase == "cordon" and not act.ours():
        _given_back(hands, act, said)
        raise Cut
    return {name: _drained(phase, said[name], subject) for name, subject in subjects.items() if name in said}


def _given_back(hands: Hands, act: Act, said: Mapping[str, Drained]) -> None:
    """Another process took the rollout over while the scheduler was asked, and cordons and uncordons by itself.

    A node that it has returned to service already would stay out because of us, and nobody would owe it anything.
    """
    left = {name for name in act.subjects if name in said and said[name].state == "done"}
    deadline = hands.elapsed() + GIVEN_BACK_S
    while left:
        for name in sorted(left):
            serves = act.serves(name)
            if serves:
                with contextlib.suppress(FleetError):  # of this one: the others are given back all the same
                    hands.drain.uncordon(act.subjects[name].node, act.token, said[name].prior)
            if serves is not None:
                left.discard(name)
        if left and hands.elapsed() >= deadline:
            return
        if left:
            nap(hands, act)


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
