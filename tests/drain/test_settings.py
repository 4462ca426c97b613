"""Which adapter the settings choose, and what a scheduler's answer becomes for the rollout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fleet.act import Act, Subject
from fleet.cli.driving import drain_of
from fleet.config import load
from fleet.core.errors import BadInput
from fleet.core.model import Json, Node, Step
from fleet.core.move import Do
from fleet.drain import BatchDrain, Census, Drained, HookDrain, NoDrain
from fleet.kubernetes import Consent, KubernetesDrain
from fleet.slurm import SlurmDrain
from fleet.step import do
from tests.upgrade.simfleet import SimFleet, hands

HOME = {"HOME": "/nonexistent"}


def test_the_default_is_none_or_the_command() -> None:
    assert isinstance(drain_of(load(env=HOME)), NoDrain) and load(env=HOME).drainer == "none"
    assert isinstance(drain_of(load(env={**HOME, "FLEET_DRAIN_COMMAND": "true"})), HookDrain)
    assert isinstance(drain_of(load(env={**HOME, "FLEET_DRAIN_COMMAND": "true", "FLEET_DRAIN": "none"})), NoDrain)


def test_a_command_that_counts_who_is_away() -> None:
    hook = drain_of(load(env={**HOME, "FLEET_DRAIN_COMMAND": "true", "FLEET_CENSUS_COMMAND": "echo n1 repair"}))
    assert isinstance(hook, Census) and hook.away([Node("n1", "192.0.2.1")]) == {"n1": "repair"}


def test_slurm_and_kubernetes() -> None:
    slurm = drain_of(load(env={**HOME, "FLEET_DRAIN": "slurm", "FLEET_SCONTROL_PATH": "/opt/slurm/bin/scontrol",
                               "FLEET_DRAIN_DEADLINE": "60"}))  # fmt: skip
    assert isinstance(slurm, SlurmDrain) and isinstance(slurm, BatchDrain)
    assert (slurm.scontrol, slurm.deadline_s) == ("/opt/slurm/bin/scontrol", 60)
    kubernetes = drain_of(load(env={**HOME, "FLEET_DRAIN": "kubernetes", "FLEET_DRAIN_EMPTYDIR": "1",
                                    "FLEET_DRAIN_WAIT_SELECTOR": "job=training"}))  # fmt: skip
    assert isinstance(kubernetes, KubernetesDrain) and kubernetes.consent == Consent(emptydir=True)
    assert kubernetes.wait_selector == "job=training"
    assert not isinstance(kubernetes, BatchDrain)


@pytest.mark.parametrize(("name", "value"), [("DRAIN", "slrm"), ("DRAIN_DEADLINE", "0"), ("DRAIN_EMPTYDIR", "some")])
def test_other_words_are_refused(name: str, value: str) -> None:
    with pytest.raises(BadInput) as caught:
        load(env={**HOME, f"FLEET_{name}": value})
    assert caught.value.slug == "bad-setting" and value in caught.value.what


@dataclass
class Scripted:
    """A scheduler that takes lists, with given answers."""

    answer: Drained
    asked: list[list[str]] = field(default_factory=list)

    def _said(self, nodes: Sequence[Node]) -> dict[str, Drained]:
        self.asked.append([node.name for node in nodes])
        return {node.name: self.answer for node in nodes}

    def cordon_all(self, nodes: Sequence[Node], token: str) -> dict[str, Drained]:  # noqa: ARG002
        return self._said(nodes)

    drain_all = cordon_all

    def uncordon_all(
        self,
        nodes: Sequence[Node],
        token: str,  # noqa: ARG002
        priors: Mapping[str, Mapping[str, Json]] | None = None,  # noqa: ARG002
    ) -> dict[str, Drained]:
        return self._said(nodes)

    def cordon(self, node: Node, token: str) -> Drained:  # noqa: ARG002
        raise AssertionError("one by one")

    drain = cordon

    def uncordon(self, node: Node, token: str, prior: object) -> Drained:  # noqa: ARG002
        raise AssertionError("one by one")


@pytest.mark.parametrize(
    ("answer", "result", "reason", "action"),
    [
        (Drained("done"), "done", "", ""),
        (Drained("waiting", "2 jobs run"), "waiting", "2 jobs run", ""),
        (Drained("waiting", "slurm-unreachable: no", next_action="ping"), "waiting", "slurm-unreachable: no", "ping"),
        (Drained("failed", "bad DIMM", foreign=True), "failed", "foreign: bad DIMM", "ask who took it out of service"),
        (Drained("failed", "3 jobs", revisit=True, next_action="squeue"), "failed", "revisit: 3 jobs", "squeue"),
    ],
)
def test_a_list_of_nodes_in_one_call_and_what_becomes_of_the_answer(
    tmp_path: Path, answer: Drained, result: str, reason: str, action: str
) -> None:
    fleet = SimFleet(tmp_path / "fleet")
    nodes = [fleet.add(name) for name in ("a", "b", "c")]
    scheduler = Scripted(answer)
    step = Step("drain")
    move = Do(("a", "b", "c"), 0, "forward", 1, 1, step)
    act = Act(move, "acme", {node.name: Subject(node, "") for node in nodes}, "r-1", 1)
    did = do(replace(hands(fleet), drain=scheduler), act)
    assert scheduler.asked == [["a", "b", "c"]]
    for name in "abc":
        outcome = did[name].outcome
        assert (outcome.result, outcome.reason, outcome.next_action) == (result, reason, action)
