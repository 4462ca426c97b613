"""What is decided from Slurm's words, without a Slurm."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.core.errors import FleetError
from fleet.core.model import Node
from fleet.drain import Drained, ours
from fleet.slurm import SlurmDrain, SlurmNode, before_cordon, before_resume, emptied, parse_nodes, run_program

TOKEN = "fleet:r-7"


def node(state: str = "IDLE", reason: str = "", at: float = 1000.0) -> SlurmNode:
    base, *flags = state.split("+")
    return SlurmNode("n01", base, frozenset(flags), reason, at)


@pytest.mark.parametrize(
    ("text", "mine"),
    [("fleet:r-7", True), ("fleet:r-7:driver", True), ("fleet:r-7 driver", True), ("fleet:r-71", False), ("", False),
     ("bad DIMM fleet:r-7", False), ("fleet:r-", False)],
)  # fmt: skip
def test_ours_is_the_whole_token(text: str, mine: bool) -> None:
    assert ours(text, TOKEN) is mine


@pytest.mark.parametrize("state", ["IDLE", "ALLOCATED", "MIXED", "IDLE+PLANNED", "MIXED+COMPLETING", "IDLE+MAINT"])
def test_a_serving_node_is_drained(state: str) -> None:
    assert before_cordon(node(state), TOKEN) is None


def test_a_reason_left_over_from_a_resumed_drain_is_no_reason() -> None:
    assert before_cordon(node("IDLE", "bad DIMM"), TOKEN) is None


@pytest.mark.parametrize(
    ("state", "reason"),
    [("IDLE+DRAIN", "bad DIMM"), ("MIXED+DRAIN", "fleet:r-71"), ("DOWN", "Not responding"), ("IDLE+FAIL", ""),
     ("DOWN+DRAIN+REBOOT_ISSUED", "kernel"), ("MIXED+REBOOT_REQUESTED", ""), ("UNKNOWN", ""), ("FUTURE", ""),
     ("ERROR", "")],
)  # fmt: skip
def test_a_node_out_for_another_reason_is_foreign(state: str, reason: str) -> None:
    said = before_cordon(node(state, reason), TOKEN)
    assert said is not None and said.state == "failed" and said.foreign and said.next_action
    assert state.split("+")[0] in said.reason and reason in said.reason


@pytest.mark.parametrize("state", ["IDLE+DRAIN", "MIXED+DRAIN", "DOWN+DRAIN"])
def test_a_second_cordon_of_ours_is_done(state: str) -> None:
    said = before_cordon(node(state, "fleet:r-7:driver"), TOKEN)
    assert said is not None and said.state == "done" and said.prior == {"cordoned": True}


@pytest.mark.parametrize(
    ("state", "jobs", "now", "answer"),
    [
        ("IDLE+DRAIN", [], 9e9, "done"),
        ("DOWN+DRAIN", [], 1001, "done"),
        ("IDLE+DRAIN", ["12"], 1001, "waiting"),  # suspended: it holds memory on an idle node
        ("MIXED+DRAIN", [], 1001, "waiting"),
        ("IDLE+DRAIN+COMPLETING", [], 1001, "waiting"),
        ("MIXED+DRAIN", ["12", "13"], 1101, "failed"),
        ("MIXED+DRAIN", ["12", "13"], 1100, "waiting"),
    ],
)
def test_empty_or_not(state: str, jobs: Sequence[str], now: float, answer: str) -> None:
    said = emptied(node(state, TOKEN), jobs, TOKEN, now, 100)
    assert (said.state, said.foreign) == (answer, False)
    assert said.revisit is (answer == "failed")
    assert all(job in said.reason for job in jobs)


def test_a_drain_lifted_or_taken_over_by_somebody_else_ends_ours() -> None:
    lifted = emptied(node("MIXED", TOKEN), [], TOKEN, 1001, 100)
    taken = emptied(node("IDLE+DRAIN", "bad DIMM"), [], TOKEN, 1001, 100)
    assert lifted.foreign and "back into service" in lifted.reason
    assert taken.foreign and "bad DIMM" in taken.reason


@pytest.mark.parametrize(
    ("state", "reason", "answer", "words"),
    [
        ("IDLE", TOKEN, "done", "in service already"),
        ("IDLE+DRAIN", "bad DIMM", "done", "bad DIMM"),
        ("IDLE+DRAIN", "fleet:r-71", "done", "not ours"),
        ("DOWN+DRAIN+NOT_RESPONDING", TOKEN, "waiting", "slurm-no-slurmd"),
        ("IDLE+DRAIN+INVALID_REG", TOKEN, "failed", "slurm-invalid-node"),
    ],
)
def test_what_is_not_resumed(state: str, reason: str, answer: str, words: str) -> None:
    said = before_resume(node(state, reason), TOKEN)
    assert said is not None and said.state == answer and words in said.reason


@pytest.mark.parametrize("state", ["IDLE+DRAIN", "DOWN+DRAIN", "MIXED+DRAIN"])
def test_what_is_resumed(state: str) -> None:
    assert before_resume(node(state, f"{TOKEN}:firmware"), TOKEN) is None


@given(
    st.sampled_from(["IDLE", "MIXED", "ALLOCATED", "DOWN", "UNKNOWN"]),
    st.frozensets(st.sampled_from(["DRAIN", "FAIL", "REBOOT_REQUESTED", "NOT_RESPONDING", "PLANNED"])),
    st.sampled_from(["", "bad DIMM", "fleet:r-71", TOKEN, f"{TOKEN}:x", "Not responding"]),
)
def test_law_a_foreign_reason_is_never_acted_upon(base: str, flags: frozenset[str], reason: str) -> None:
    found = SlurmNode("n", base, flags, reason)
    if found.out and not ours(reason, TOKEN):
        assert before_cordon(found, TOKEN) is not None and before_resume(found, TOKEN) is not None
    if before_resume(found, TOKEN) is None:
        assert ours(reason, TOKEN)


# --- reading --------------------------------------------------------------------------------------------------------


def test_both_forms_of_state() -> None:
    old = {"name": "a", "state": "mixed", "state_flags": ["DRAIN"], "reason": "x", "reason_changed_at": 7}
    new = {"name": "b", "state": ["IDLE", "DRAIN"], "reason": "", "reason_changed_at": {"set": True, "number": 9}}
    found = parse_nodes(json.dumps({"errors": [], "nodes": [old, new]}))
    assert found == {
        "a": SlurmNode("a", "MIXED", frozenset({"DRAIN"}), "x", 7),
        "b": SlurmNode("b", "IDLE", frozenset({"DRAIN"}), "", 9),
    }
    assert found["a"].state == "MIXED+DRAIN"


@pytest.mark.parametrize("text", ["", "no nodes", "[]", '{"nodes": [{"name": "a"}]}', '{"nodes": 3}', '{"nodes":[7]}'])
def test_junk_is_an_error_with_a_name(text: str) -> None:
    with pytest.raises(FleetError) as caught:
        parse_nodes(text)
    assert caught.value.slug == "slurm-garbled"


def test_a_document_of_errors_is_not_a_cluster_without_nodes() -> None:
    with pytest.raises(FleetError) as caught:
        parse_nodes('{"errors": [{"error": "Unspecified error", "errno": -1}], "nodes": []}')
    assert caught.value.slug == "slurm-unreachable"


# --- acting, with answers written down ------------------------------------------------------------------------------


@dataclass
class Script:
    """Answers by program and first word; what was called."""

    answers: Mapping[str, tuple[int, str, str]]
    called: list[str] = field(default_factory=list)

    def __call__(self, argv: Sequence[str], extra: Mapping[str, str], timeout_s: float) -> tuple[int, str, str]:  # noqa: ARG002
        self.called.append(" ".join(argv))
        return next(answer for key, answer in self.answers.items() if " ".join(argv).startswith(key))


def document(*rows: tuple[str, Sequence[str], str]) -> str:
    return json.dumps({"nodes": [{"name": n, "state": list(s), "reason": r} for n, s, r in rows]})


def test_newer_sinfo_has_no_list_of_nodes_and_scontrol_has() -> None:
    grouped = json.dumps({"sinfo": [{"nodes": {"total": 1}}], "errors": []})
    script = Script({
        "/opt/slurm/bin/sinfo": (0, grouped, ""),
        "/opt/slurm/bin/scontrol show nodes --json": (0, document(("n1", ["IDLE", "DRAIN"], TOKEN)), ""),
        "/opt/slurm/bin/squeue": (0, "", ""),
    })  # fmt: skip
    drain = SlurmDrain(script, lambda: 5.0, "/opt/slurm/bin/scontrol")
    assert drain.drain(Node("n1", "192.0.2.1"), TOKEN).state == "done"


def test_a_denied_drain_says_what_the_controller_lacks() -> None:
    script = Script({
        "sinfo": (0, document(("n1", ["IDLE"], "")), ""),
        "scontrol update": (1, "", "slurm_update error: Access/permission denied"),
    })  # fmt: skip
    said = SlurmDrain(script, lambda: 5.0).cordon(Node("n1", "192.0.2.1"), TOKEN)
    assert said.state == "failed" and said.reason.startswith("slurm-denied") and "operator" in said.next_action


def test_a_drain_that_does_not_show_has_failed() -> None:
    script = Script({"sinfo": (0, document(("n1", ["IDLE"], "")), ""), "scontrol": (0, "", "")})
    said = SlurmDrain(script, lambda: 5.0).cordon(Node("n1", "192.0.2.1"), TOKEN)
    assert said == Drained(
        "failed", "slurm-failed: Slurm took the drain but does not show it",
        next_action="scontrol show node; slurmctld's log",
    )  # fmt: skip


def test_a_program_that_is_not_there_or_does_not_end() -> None:
    with pytest.raises(FleetError) as caught:
        run_program(["/nowhere/scontrol"], {}, 1)
    assert caught.value.slug == "slurm-no-tool"
    assert run_program(["sleep", "5"], {}, 0.05) == (124, "", "timed out after 0 s")
    assert run_program(["sh", "-c", "echo $A; exit 3"], {"A": "x"}, 5)[:2] == (3, "x\n")
