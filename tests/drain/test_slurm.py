"""Drain against a real Slurm: one slurmctld and eight slurmd on loopback."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from fleet.core.model import Node
from fleet.drain import BatchDrain, Drained
from fleet.slurm import LABEL, SlurmDrain, run_program
from tests.drain.slurmcluster import NODES, Cluster, end_rest, left_behind, sweep
from tests.postgresql import started

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "fleet:r-7"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="slurmd needs root")


class Counted:
    """The real programs, and how often each was started."""

    def __init__(self) -> None:
        self.updates: list[str] = []

    def __call__(self, argv: Sequence[str], extra: Mapping[str, str], timeout_s: float) -> tuple[int, str, str]:
        if argv[1] == "update":
            self.updates.append(" ".join(argv[2:]))
        return run_program(argv, extra, timeout_s)


def nodes(*names: str) -> list[Node]:
    return [Node(name, "127.0.0.1") for name in names]


def adapter(cluster: Cluster, run: Counted | None = None, **more: float) -> SlurmDrain:
    return SlurmDrain(run or Counted(), time.time, "/usr/bin/scontrol", str(cluster.config), **more)


@pytest.fixture(autouse=True)
def as_before(cluster: Cluster) -> Iterator[None]:
    """Each test finds and leaves eight idle nodes."""
    yield
    cluster.must("scancel", "--user=root")
    for name, state in cluster.states().items():
        if state not in ("idle", "mixed", "allocated", "completing"):
            cluster.command("scontrol", "update", f"nodename={name}", "state=resume")
    cluster.until(lambda: set(cluster.states("").values()) == {"idle"}, "all nodes idle again")


def asked(ask: Callable[[], Drained], state: str, seconds: float = 20) -> Drained:
    """Ask until that is the state."""
    end = time.monotonic() + seconds
    while (said := ask()).state != state:
        assert time.monotonic() < end, said
        time.sleep(0.2)
    return said


def test_drain_waits_for_the_job_and_gives_back(cluster: Cluster) -> None:
    drain = adapter(cluster)
    [node] = nodes("n01")
    job = cluster.job("n01")
    said = drain.cordon(node, TOKEN)
    assert said.state == "done" and said.prior == {"cordoned": True, "state": "MIXED", "reason": ""}
    assert cluster.states()["n01"] == "draining" and cluster.reason("n01") == TOKEN
    waiting = drain.drain(node, TOKEN)
    assert waiting.state == "waiting" and job in waiting.reason
    assert cluster.command("squeue", "-h", "-j", job, "-o", "%T").stdout.strip() == "RUNNING"  # it was not ended
    cluster.cancel(job)
    assert asked(lambda: drain.drain(node, TOKEN), "done").reason == ""
    assert cluster.states()["n01"] == "drained"
    assert drain.uncordon(node, TOKEN, said.prior).state == "done"
    assert cluster.states()["n01"] == "idle"


def test_no_job_starts_on_a_node_that_we_drain(cluster: Cluster) -> None:
    drain = adapter(cluster)
    drain.cordon_all(nodes("n03"), TOKEN)
    job = cluster.must("sbatch", "--parsable", "--nodelist=n03", "--output=/dev/null", "--chdir=/", "--wrap=sleep 60")
    cluster.job("n04")
    assert cluster.must("squeue", "-h", "-j", job, "-o", "%T") == "PENDING"
    drain.uncordon_all(nodes("n03"), TOKEN)
    cluster.until(lambda: cluster.must("squeue", "-h", "-j", job, "-o", "%T") == "RUNNING", "it runs after the resume")


def test_many_nodes_in_one_call(cluster: Cluster) -> None:
    run = Counted()
    drain = adapter(cluster, run)
    assert isinstance(drain, BatchDrain)
    said = drain.cordon_all(nodes(*NODES), TOKEN)
    assert {one.state for one in said.values()} == {"done"}
    assert run.updates == [f"nodename={','.join(NODES)} state=drain reason={TOKEN}"]
    assert {one.state for one in drain.drain_all(nodes(*NODES), TOKEN).values()} == {"done"}
    assert {one.state for one in drain.uncordon_all(nodes(*NODES), TOKEN).values()} == {"done"}
    assert run.updates[1:] == [f"nodename={','.join(NODES)} state=resume"]
    assert set(cluster.states().values()) == {"idle"}


def test_each_call_may_be_repeated(cluster: Cluster) -> None:
    run = Counted()
    drain = adapter(cluster, run)
    for _ in range(3):
        assert drain.cordon_all(nodes("n02"), TOKEN)["n02"].state == "done"
    for _ in range(3):
        assert drain.uncordon_all(nodes("n02"), TOKEN)["n02"].state == "done"
    assert len(run.updates) == 2


def test_a_foreign_reason_is_neither_overwritten_nor_resumed(cluster: Cluster) -> None:
    run = Counted()
    drain = adapter(cluster, run)
    cluster.must("scontrol", "update", "nodename=n05", "state=drain", "reason=bad DIMM, ticket 41")
    said = drain.cordon_all(nodes("n05", "n06"), TOKEN)
    assert said["n05"].foreign and "bad DIMM, ticket 41" in said["n05"].reason and said["n06"].state == "done"
    assert drain.drain_all(nodes("n05"), TOKEN)["n05"].foreign
    given = drain.uncordon_all(nodes("n05", "n06"), TOKEN)
    assert "not ours" in given["n05"].reason
    assert cluster.reason("n05") == "bad DIMM, ticket 41"
    assert (cluster.states()["n05"], cluster.states()["n06"]) == ("drained", "idle")
    assert all("n05" not in update for update in run.updates)


def test_a_reason_put_over_ours_is_kept(cluster: Cluster) -> None:
    drain = adapter(cluster)
    drain.cordon_all(nodes("n05"), TOKEN)
    cluster.must("scontrol", "update", "nodename=n05", "state=drain", "reason=fan failed")
    assert drain.drain_all(nodes("n05"), TOKEN)["n05"].foreign
    assert drain.uncordon_all(nodes("n05"), TOKEN)["n05"].state == "done"
    assert (cluster.states()["n05"], cluster.reason("n05")) == ("drained", "fan failed")


def test_another_rollout_of_ours_is_foreign_too(cluster: Cluster) -> None:
    drain = adapter(cluster)
    drain.cordon_all(nodes("n05"), "fleet:r-71")
    assert drain.cordon_all(nodes("n05"), TOKEN)["n05"].foreign
    drain.uncordon_all(nodes("n05"), TOKEN)
    assert cluster.reason("n05") == "fleet:r-71"


def test_a_resume_by_somebody_else_is_noticed_and_no_error_afterwards(cluster: Cluster) -> None:
    drain = adapter(cluster)
    drain.cordon_all(nodes("n02"), TOKEN)
    cluster.must("scontrol", "update", "nodename=n02", "state=resume")
    said = drain.drain_all(nodes("n02"), TOKEN)["n02"]
    assert said.state == "failed" and said.foreign and "somebody else" in said.reason
    assert drain.uncordon_all(nodes("n02"), TOKEN)["n02"].state == "done"


def test_invalid_node_state_of_one_does_not_keep_the_others_out(cluster: Cluster) -> None:
    """Somebody resumes a node between our look and our resume: Slurm then says `Invalid node state`."""
    drained = adapter(cluster)
    drained.cordon_all(nodes("n01", "n02", "n03"), TOKEN)

    def run(argv: Sequence[str], extra: Mapping[str, str], timeout_s: float) -> tuple[int, str, str]:
        if argv[1] == "update" and "," in argv[2]:
            cluster.must("scontrol", "update", "nodename=n01", "state=resume")
        return run_program(argv, extra, timeout_s)

    raced = SlurmDrain(run, time.time, "/usr/bin/scontrol", str(cluster.config))
    said = raced.uncordon_all(nodes("n01", "n02", "n03"), TOKEN)
    assert {one.state for one in said.values()} == {"done"}
    assert set(cluster.states().values()) == {"idle"}


def test_jobs_past_the_deadline_mean_another_time(cluster: Cluster) -> None:
    job = cluster.job("n07", "n08")
    drain = adapter(cluster, deadline_s=1.5)
    drain.cordon_all(nodes("n07", "n08"), TOKEN)
    said = asked(lambda: drain.drain_all(nodes("n07", "n08"), TOKEN)["n08"], "failed")
    assert said.revisit and not said.foreign and job in said.reason and "squeue" in said.next_action
    drain.uncordon_all(nodes("n07", "n08"), TOKEN)
    assert cluster.must("squeue", "-h", "-j", job, "-o", "%T") == "RUNNING"
    assert cluster.states()["n07"] == "mixed"


def test_a_reboot_asked_of_slurm_is_left_alone(cluster: Cluster) -> None:
    cluster.must("scontrol", "reboot", "ASAP", "nextstate=RESUME", "reason=new kernel", "n04")
    cluster.until(lambda: "reboot issued" in cluster.reason("n04"), "the reboot is issued")
    said = adapter(cluster).cordon_all(nodes("n04"), TOKEN)["n04"]
    assert said.foreign and "REBOOT_ISSUED" in said.reason and "new kernel" in said.reason
    cluster.reboot("n04", lambda: cluster.states()["n04"] == "idle", "Slurm gives it back after the start")
    assert adapter(cluster).cordon_all(nodes("n04"), TOKEN)["n04"].state == "done"


def test_our_own_reboot_under_a_drain(cluster: Cluster) -> None:
    """With ReturnToService=0 the node is down after its start, and still ours."""
    drain = adapter(cluster)
    drain.cordon_all(nodes("n03"), TOKEN)
    cluster.reboot("n03", lambda: cluster.full_state("n03").startswith("DOWN+DRAIN"), "the start is noticed")
    assert drain.cordon_all(nodes("n03"), TOKEN)["n03"].state == "done"
    assert drain.drain_all(nodes("n03"), TOKEN)["n03"].state == "done"
    asked(lambda: drain.uncordon_all(nodes("n03"), TOKEN)["n03"], "done")
    assert cluster.states()["n03"] == "idle"
    cluster.job("n03")


def test_a_node_that_slurm_holds_for_dead(cluster: Cluster) -> None:
    drain = adapter(cluster)
    drain.cordon_all(nodes("n06"), TOKEN)
    cluster.kill("n06")
    cluster.must("scontrol", "update", "nodename=n06", "state=noresp")
    said = drain.uncordon_all(nodes("n06"), TOKEN)["n06"]
    assert said.state == "waiting" and "slurmd" in said.reason and "start slurmd" in said.next_action
    cluster.start_node("n06")
    asked(lambda: drain.uncordon_all(nodes("n06"), TOKEN)["n06"], "done")
    cluster.until(lambda: cluster.states()["n06"] == "idle", "it serves again")


def test_a_node_that_lost_a_card_stays_drained(cluster: Cluster) -> None:
    drain = adapter(cluster)
    drain.cordon_all(nodes("n06"), TOKEN)
    cluster.kill("n06")
    try:
        cluster.write_gpus({"n06": 7})
        cluster.start_node("n06")
        cluster.until(lambda: "INVAL" in cluster.full_state("n06"), "the lost card is noticed")
        said = asked(lambda: drain.uncordon_all(nodes("n06"), TOKEN)["n06"], "failed")
        assert said.reason.startswith("slurm-invalid-node") and said.next_action
        assert cluster.states("")["n06"] != "idle" and cluster.reason("n06").startswith(TOKEN)
    finally:
        cluster.kill("n06")
        cluster.write_gpus({})
        cluster.start_node("n06")
    cluster.until(lambda: "INVAL" not in cluster.full_state("n06"), "the card is back")
    asked(lambda: drain.uncordon_all(nodes("n06"), TOKEN)["n06"], "done")


def test_a_down_node_is_foreign(cluster: Cluster) -> None:
    cluster.must("scontrol", "update", "nodename=n02", "state=down", "reason=PSU")
    said = adapter(cluster).cordon_all(nodes("n02"), TOKEN)["n02"]
    assert said.foreign and "PSU" in said.reason
    assert cluster.reason("n02") == "PSU"


def test_names_of_nodes_and_nodes_unknown_to_slurm(cluster: Cluster) -> None:
    named = Node("gpu-a.example", "127.0.0.1", labels={LABEL: "n01"})
    said = adapter(cluster).cordon_all([named, *nodes("n99")], TOKEN)
    assert said["gpu-a.example"].state == "done" and cluster.reason("n01") == TOKEN
    assert said["n99"].state == "failed" and "slurm-unknown-node" in said["n99"].reason and said["n99"].next_action


def test_no_controller_is_a_reason_of_its_own_and_waited_for(cluster: Cluster) -> None:
    drain = adapter(cluster)
    drain.cordon_all(nodes("n01"), TOKEN)
    cluster.kill("slurmctld")
    try:
        for ask in (drain.cordon_all, drain.uncordon_all):
            said = ask(nodes("n01", "n02"), TOKEN)
            assert {one.state for one in said.values()} == {"waiting"}
            assert said["n02"].reason.startswith("slurm-unreachable") and "slurmctld" in said["n02"].next_action
    finally:
        cluster.start_controller()
    assert asked(lambda: drain.uncordon_all(nodes("n01"), TOKEN)["n01"], "done")
    cluster.until(lambda: cluster.states()["n01"] == "idle", "it serves again")


def test_a_killed_test_run_leaves_nothing() -> None:
    """A cluster whose owner was killed with -9 is found and ended by the next run."""
    program = (
        "import time; from tests.drain.slurmcluster import *; c = Cluster(new_folder()); c.start();"
        "c.job('n01'); print(c.folder, flush=True); time.sleep(300)"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        assert folder.name.startswith("fleet-test-slurm-")
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    alive = list(left_behind(folder))
    assert len(alive) >= 10  # the daemons and the job
    try:
        assert folder in sweep()
        assert not [pid for pid in alive if started(pid)] and not folder.exists()
    finally:
        end_rest(folder)
        shutil.rmtree(folder, ignore_errors=True)
    assert Path(f"/proc/{os.getpid()}").exists()
