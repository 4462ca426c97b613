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
from fleet.drain import Drained, marked, ours
from fleet.slurm import SlurmDrain, SlurmNode, away, before_cordon, before_resume, emptied, parse_nodes, run_program

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
    assert said is not None and said.state == "done" and said.prior == {"cordoned": True, "at": 1000.0}


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
        ("DOWN+NOT_RESPONDING", "Not responding", "waiting", "slurm-no-slurmd"),
        ("DOWN", "PSU", "done", "not ours"),
        ("DOWN", "", "done", "not ours"),
        ("DOWN+DRAIN+REBOOT_ISSUED", f"{TOKEN} : reboot issued", "waiting", "slurm-rebooting"),
        ("IDLE+DRAIN+INVALID_REG", TOKEN, "failed", "slurm-invalid-node"),
    ],
)
def test_what_is_not_resumed(state: str, reason: str, answer: str, words: str) -> None:
    said = before_resume(node(state, reason), TOKEN, 900.0)
    assert said is not None and said.state == answer and words in said.reason


@pytest.mark.parametrize("state", ["IDLE+DRAIN", "DOWN+DRAIN", "MIXED+DRAIN"])
def test_what_is_resumed(state: str) -> None:
    assert before_resume(node(state, f"{TOKEN}:firmware"), TOKEN) is None


@pytest.mark.parametrize(
    ("state", "reason", "cordoned_at", "resumed"),
    [
        ("DOWN", "Node unexpectedly rebooted", 1000, True),
        ("DOWN+DRAIN", "Node unexpectedly rebooted", 999, True),
        ("DOWN", "Not responding", 400, True),
        ("DOWN", "Not responding", 1001, False),  # it was away before we came
        ("DOWN", "Not responding", 0, False),  # nobody knows since when it is ours
        ("DOWN", "PSU: Not responding", 400, False),
        ("DOWN", TOKEN, 0, True),  # 24.11 keeps the text of a drain that somebody lifted
        ("DOWN", "fleet:r-71", 400, False),
    ],
)
def test_what_slurm_put_down_is_ours_from_our_cordon_on(
    state: str, reason: str, cordoned_at: float, resumed: bool
) -> None:
    assert (before_resume(node(state, reason), TOKEN, cordoned_at) is None) is resumed


@pytest.mark.parametrize(
    ("state", "reason", "counts"),
    [("IDLE", "", False), ("MIXED+PLANNED", "", False), ("ALLOCATED+COMPLETING", "", False), ("IDLE", TOKEN, False),
     ("IDLE+POWERED_DOWN", "", False), ("IDLE+DRAIN", "bad DIMM", True), ("IDLE+DRAIN", "", True), ("DOWN", "", True),
     ("DOWN+NOT_RESPONDING", "Not responding", True), ("IDLE+NOT_RESPONDING", "", True), ("IDLE+MAINT", "", True),
     ("IDLE+MAINTENANCE", "", True), ("MIXED+REBOOT_REQUESTED", "", True), ("IDLE+FAIL", "x", True),
     ("UNKNOWN", "", True), ("IDLE+DRAIN", "fleet:r-71:driver", False), ("DOWN+DRAIN", TOKEN, False),
     ("DOWN", TOKEN, True), ("IDLE+DRAIN", "fleet:", True), ("IDLE+DRAIN+INVALID_REG", "gres/gpu count", True)],
)  # fmt: skip
def test_who_counts_as_away(state: str, reason: str, counts: bool) -> None:
    said = away(node(state, reason))
    assert bool(said) is counts and (not counts or (state.split("+")[0] in said and reason in said))
    assert marked(reason) is (reason in (TOKEN, "fleet:r-71:driver"))


@given(
    st.sampled_from(["IDLE", "MIXED", "ALLOCATED", "DOWN", "UNKNOWN"]),
    st.frozensets(st.sampled_from(["DRAIN", "FAIL", "REBOOT_REQUESTED", "NOT_RESPONDING", "PLANNED"])),
    st.sampled_from(["", "bad DIMM", "fleet:r-71", TOKEN, f"{TOKEN}:x", "Not responding"]),
    st.sampled_from([0.0, 99.0, 100.0, 101.0]),
)
def test_law_a_foreign_reason_is_never_acted_upon(
    base: str, flags: frozenset[str], reason: str, cordoned_at: float
) -> None:
    found = SlurmNode("n", base, flags, reason, 100.0)
    if found.out and not ours(reason, TOKEN):
        assert before_cordon(found, TOKEN) is not None
    if before_resume(found, TOKEN, cordoned_at) is None:
        assert ours(reason, TOKEN) or (reason == "Not responding" and 0 < cordoned_at <= 100)


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


def test_a_denied_drain_is_no_fault_of_the_node() -> None:
    script = Script({
        "sinfo": (0, document(("n1", ["IDLE"], "")), ""),
        "scontrol update": (1, "", "slurm_update error: Access/permission denied"),
    })  # fmt: skip
    said = SlurmDrain(script, lambda: 5.0).cordon(Node("n1", "192.0.2.1"), TOKEN)
    assert said.state == "waiting" and said.outage and "operator" in said.next_action
    assert said.reason.startswith("slurm-denied")


def test_a_node_that_is_down_again_after_the_resume_is_asked_for_again() -> None:
    """Its slurmd has just told that it booted: Slurm puts it down in the moment in which we resume it."""
    row = {"name": "n1", "state": "down", "state_flags": [], "reason": "Node unexpectedly rebooted",
           "reason_changed_at": 9}  # fmt: skip
    script = Script(
        {"sinfo": (0, json.dumps({"nodes": [row]}), ""), "scontrol update nodename=n1 state=resume": (0, "", "")}
    )
    said = SlurmDrain(script, lambda: 12.0).uncordon(Node("n1", "192.0.2.1"), TOKEN, {"cordoned": True, "at": 5})
    assert (said.state, said.outage) == ("waiting", False) and "DOWN again" in said.reason and said.next_action
    left = SlurmDrain(script, lambda: 12.0).uncordon(Node("n1", "192.0.2.1"), TOKEN, {"cordoned": True, "at": 10})
    assert left.state == "done" and "not ours" in left.reason


DRAINED = document(("n1", ["IDLE", "DRAIN"], TOKEN))


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"sinfo": (1, "", "slurm_load_partitions: Unable to contact slurm controller (connect failure)")},
         "slurm-unreachable: Slurm's controller does not answer (slurm_load_partitions: Unable to contact"),
        ({"sinfo": (124, "", "timed out after 60 s")}, "slurm-unreachable"),
        ({"sinfo": (0, '{"errors": [{"error": "Unable to contact slurm controller"}], "nodes": []}', "")},
         "slurm-unreachable"),
        ({"sinfo": (0, "<html>502 Bad Gateway</html>", "")}, "slurm-garbled"),
        ({"sinfo": (0, '{"nodes": [{"name": "n1", "state": []}]}', "")}, "slurm-garbled"),
        ({"sinfo": (1, "", "sinfo: fatal: Unable to process configuration file")}, "slurm-failed: sinfo --json failed"),
        ({"sinfo": (1, "", "Access/permission denied")}, "slurm-denied"),
        ({"sinfo": (0, DRAINED, ""), "squeue": (1, "", "Zero Bytes were transmitted or received")},
         "slurm-unreachable"),
        ({"sinfo": (0, DRAINED, ""), "squeue": (0, "12|n[01-\n", "")}, "bad-nodeset"),
    ],
)  # fmt: skip
def test_a_slurm_that_cannot_be_asked_says_nothing_about_the_node(
    answers: Mapping[str, tuple[int, str, str]], words: str
) -> None:
    drain = SlurmDrain(Script(answers), lambda: 5.0)
    said = drain.drain(Node("n1", "192.0.2.1"), TOKEN)
    assert (said.state, said.outage, said.foreign, said.revisit) == ("waiting", True, False, False)
    assert said.reason.startswith(words), said.reason
    if "squeue" not in answers:
        for other in (drain.cordon(Node("n1", "::1"), TOKEN), drain.uncordon(Node("n1", "::1"), TOKEN, {"at": 3})):
            assert other == said and other.next_action
        with pytest.raises(FleetError) as caught:
            drain.away([Node("n1", "192.0.2.1")])
        assert caught.value.slug == "scheduler-unreachable" and caught.value.cause and caught.value.hint


def test_no_slurm_programs_on_the_controller_is_the_controllers_affair() -> None:
    drain = SlurmDrain(run_program, lambda: 5.0, "/nowhere/scontrol")
    said = drain.cordon_all([Node("n1", "192.0.2.1"), Node("n2", "192.0.2.2")], TOKEN)
    assert {(one.state, one.outage) for one in said.values()} == {("waiting", True)}
    assert said["n2"].reason.startswith("slurm-no-tool: /nowhere/sinfo") and "slurm-client" in said["n2"].next_action


def test_a_controller_that_dies_between_look_and_drain() -> None:
    script = Script({
        "sinfo": (0, document(("n1", ["IDLE"], "")), ""),
        "scontrol update": (1, "", "slurm_update error: Unable to contact slurm controller (connect failure)"),
    })  # fmt: skip
    assert SlurmDrain(script, lambda: 5.0).cordon(Node("n1", "192.0.2.1"), TOKEN).outage


def test_ten_thousand_nodes_are_one_question() -> None:
    rows = [(f"n{i}", ["IDLE", "DRAIN"] if i % 10 == 0 else ["IDLE"], "repair" if i % 10 == 0 else "")
            for i in range(10_000)]  # fmt: skip
    script = Script({"sinfo": (0, document(*rows), "")})
    said = SlurmDrain(script, lambda: 5.0).away([Node(f"n{i}", "192.0.2.1") for i in range(10_000)])
    assert len(said) == 1000 and script.called == ["sinfo --json"]


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
