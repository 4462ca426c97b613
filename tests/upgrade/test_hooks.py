"""Drain and power through commands of the site's, for real."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.core.errors import FleetError
from fleet.core.model import Node
from fleet.drain import Census, HookDrain, NoDrain
from fleet.power import HookPower, NoPower, run_hook

NODE = Node("n1", "192.0.2.1", bmc="192.0.2.2")


def test_the_drain_command_gets_node_action_and_token_and_its_words_come_back(tmp_path: Path) -> None:
    log = tmp_path / "log"
    drain = HookDrain(
        f'echo "$NODE $ADDRESS $ACTION $TOKEN" >>{log}; echo state=idle', f'echo "$ACTION $PRIOR" >>{log}', run_hook
    )
    cordoned = drain.cordon(NODE, "fleet:r-1")
    assert (cordoned.state, cordoned.prior["said"]) == ("done", "state=idle")
    assert drain.drain(NODE, "fleet:r-1").state == "done"
    assert drain.uncordon(NODE, "fleet:r-1", cordoned.prior).state == "done"
    assert log.read_text().splitlines() == [
        "n1 192.0.2.1 cordon fleet:r-1", "n1 192.0.2.1 drain fleet:r-1", "uncordon state=idle",
    ]  # fmt: skip


def test_what_we_did_not_cordon_we_do_not_uncordon(tmp_path: Path) -> None:
    drain = HookDrain("exit 1", f"touch {tmp_path}/undone", run_hook)
    assert drain.uncordon(NODE, "t", {}).state == "done"
    assert not (tmp_path / "undone").exists()


@pytest.mark.parametrize(
    ("command", "state", "foreign", "words"),
    [
        ("echo 2 jobs; exit 75", "waiting", False, "2 jobs"),
        ("echo ticket 7; exit 77", "failed", True, "ticket 7"),
        ("echo no route >&2; exit 3", "failed", False, "no route"),
        ("exit 3", "failed", False, "exit status 3"),
        ("echo no scheduler; exit 69", "waiting", False, "drain-command-away: drain of n1: no scheduler"),
    ],
)
def test_exit_statuses_of_a_drain(command: str, state: str, foreign: bool, words: str) -> None:
    said = HookDrain(command, "", run_hook).drain(NODE, "t")
    assert (said.state, said.foreign) == (state, foreign) and words in said.reason
    assert said.outage is ("69" in command)


def test_the_census_command_is_asked_once_for_all(tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("n1 bad  DIMM, ticket 41\n\nn2\nn3 fleet:r-7\nelsewhere broken\n  n4\tfan\n")
    nodes = [Node(f"n{number}", "192.0.2.1") for number in range(1, 6)]
    hook = HookDrain("", "", run_hook, census_command=f'echo "$ACTION" >>{tmp_path}/asked; cat {lines}')
    assert isinstance(hook, Census)
    assert hook.away(nodes) == {"n1": "bad  DIMM, ticket 41", "n2": "no reason given", "n4": "fan"}
    assert (tmp_path / "asked").read_text() == "census\n"
    assert HookDrain("false", "false", run_hook).away(nodes) == {}


@pytest.mark.parametrize(("command", "cause"), [("echo n1; echo no scheduler; exit 1", "no scheduler"),
                                                ("exit 3", "exit status 3"), ("sleep 9", "no end within")])  # fmt: skip
def test_a_census_command_that_fails_is_not_an_empty_census(command: str, cause: str) -> None:
    with pytest.raises(FleetError) as caught:
        HookDrain("", "", run_hook, timeout_s=0.3, census_command=command).away([NODE])
    assert caught.value.slug == "scheduler-unreachable" and cause in caught.value.cause and caught.value.hint


def test_a_hanging_hook_is_ended() -> None:
    slow = HookDrain("sleep 30", "", run_hook, timeout_s=0.3)
    said = slow.cordon(NODE, "t")
    assert (said.state, said.outage) == ("waiting", True) and "no end within" in said.reason
    said = slow.drain(NODE, "t")  # it may be waiting for the jobs
    assert (said.state, said.outage) == ("waiting", False)


def test_no_drain_is_always_done() -> None:
    drain = NoDrain()
    assert {drain.cordon(NODE, "t").state, drain.drain(NODE, "t").state, drain.uncordon(NODE, "t", {}).state} == {
        "done"
    }


def test_power_by_command(tmp_path: Path) -> None:
    log = tmp_path / "log"
    power = HookPower(f'echo "$NODE $BMC $ACTION $OFF_SECONDS" >>{log}; echo ON', run_hook)
    assert power.available(NODE) and power.do(NODE, "status") == "on"
    power.do(NODE, "cycle", 30)
    assert log.read_text().splitlines()[-1] == "n1 192.0.2.2 cycle 30"
    assert HookPower("echo what?", run_hook).do(NODE, "status") == "unknown"
    with pytest.raises(FleetError, match="power cycle of n1 failed"):
        HookPower("exit 2", run_hook).do(NODE, "cycle")
    assert not NoPower().available(NODE)
    with pytest.raises(FleetError):
        NoPower().do(NODE, "off")
