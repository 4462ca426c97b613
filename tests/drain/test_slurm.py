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

from fleet.core.errors import FleetError
from fleet.core.model import Node
from fleet.drain import BatchDrain, Census, Drained
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
        self.calls = 0

    def __call__(self, argv: Sequence[str], extra: Mapping[str, str], timeout_s: float) -> tuple[int, str, str]:
        self.calls += 1
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


def asked(ask: Callable[[], Drained], state: str, seconds: float = 60) -> Drained:
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
    at = said.prior["at"]
    assert said.state == "done" and said.prior == {"cordoned": True, "state": "MIXED", "reason": "", "at": at}
    assert isinstance(at, float) and abs(at - time.time()) < 60
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


def test_nodes_that_slurm_puts_down_while_they_reboot(cluster: Cluster) -> None:
    """ReturnToService=0: a node that was away too long stays down until it is resumed, by whoever has it out."""
    drain = adapter(cluster)
    names = ("n01", "n02", "n03")
    priors = {name: said.prior for name, said in drain.cordon_all(nodes(*names), TOKEN).items()}
    time.sleep(1.1)  # Slurm counts whole seconds
    with cluster.impatient(3):
        for name in (*names, "n04"):
            cluster.kill(name)
        dead = "DOWN+DRAIN+NOT_RESPONDING"
        cluster.until(lambda: {cluster.full_state(n) for n in names} == {dead}, "all are held for dead")
        cluster.until(lambda: cluster.full_state("n04").startswith("DOWN"), "the one that is not ours too")
        assert {cluster.reason(n) for n in names} == {TOKEN} and cluster.reason("n04") == "Not responding"
        assert set(drain.away(nodes(*NODES))) == {"n04"}  # the others are away by our will
        said = drain.uncordon_all(nodes(*names), TOKEN, priors)
        assert {(one.state, one.outage) for one in said.values()} == {("waiting", False)}
        assert all(one.reason.startswith("slurm-no-slurmd") for one in said.values())
    cluster.must("scontrol", "update", "nodename=n02", "state=resume")  # somebody lifts our drain: it is not there
    cluster.must("scontrol", "update", "nodename=n03", "state=drain", "reason=fan failed")
    time.sleep(2)
    for name in (*names, "n04"):
        cluster.start_node(name, rebooted=True)
    cluster.until(lambda: cluster.reason("n02") == "Node unexpectedly rebooted", "n02 is down by Slurm's own word")
    for name in (*names, "n04"):
        cluster.until(lambda name=name: "NOT" not in cluster.full_state(name), "Slurm sees it again")  # type: ignore[misc]
        cluster.kill(name)  # with -b it would say at each registration that it has just booted
        cluster.start_node(name)
    assert cluster.full_state("n02") == cluster.full_state("n04") == "DOWN"

    left = drain.uncordon_all(nodes("n02"), TOKEN)["n02"]
    assert left.state == "done" and "not ours" in left.reason and cluster.full_state("n02") == "DOWN"
    given = {name: asked(lambda n=name: drain.uncordon_all(nodes(n), TOKEN, priors)[n], "done") for name in names}  # type: ignore[misc]
    assert "fan failed" in given["n03"].reason
    cluster.until(lambda: {cluster.states("")[n] for n in ("n01", "n02")} == {"idle"}, "both serve again")
    assert (cluster.full_state("n03"), cluster.reason("n03")) == ("DOWN+DRAIN", "fan failed")
    assert cluster.full_state("n04") == "DOWN"  # never ours
    cluster.job("n01", "n02")


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
        for ask in (drain.cordon_all, drain.drain_all, drain.uncordon_all):
            said = ask(nodes("n01", "n02"), TOKEN)
            assert {(one.state, one.outage) for one in said.values()} == {("waiting", True)}
            assert said["n02"].reason.startswith("slurm-unreachable") and "slurmctld" in said["n02"].next_action
        with pytest.raises(FleetError) as caught:
            drain.away(nodes("n01"))
        assert caught.value.slug == "scheduler-unreachable" and "sinfo" in caught.value.what and caught.value.hint
    finally:
        cluster.start_controller()
    assert asked(lambda: drain.uncordon_all(nodes("n01"), TOKEN)["n01"], "done")
    # A killed slurmctld may have forgotten the last seconds, the end of a job among them: n01 may seem to be at work.
    cluster.until(lambda: cluster.states()["n01"] in ("idle", "mixed", "allocated", "completing"), "it serves again")


def test_the_census_names_who_serves_nothing_and_is_not_ours(cluster: Cluster) -> None:
    run = Counted()
    drain = adapter(cluster, run)
    assert isinstance(drain, Census)
    assert drain.away(nodes(*NODES)) == {}
    job = cluster.job("n02")
    cluster.must("scontrol", "update", "nodename=n01", "state=drain", "reason=bad DIMM, ticket 41")
    cluster.must("scontrol", "update", "nodename=n02", "state=drain", "reason=fan failed")  # its job still runs
    cluster.must("scontrol", "update", "nodename=n03", "state=down", "reason=PSU")
    cluster.must("scontrol", "update", "nodename=n04", "state=fail", "reason=wobbles")
    drain.cordon_all(nodes("n05"), TOKEN)
    drain.cordon_all(nodes("n06"), "fleet:r-71:firmware")
    cluster.must("scontrol", "create", "reservation", "reservationname=window", "flags=maint,ignore_jobs", "user=root",
                 "nodes=n07", "starttime=now", "duration=10")  # fmt: skip
    try:
        cluster.until(lambda: "MAINT" in cluster.full_state("n07"), "the window has begun")
        run.calls = 0
        said = drain.away([Node("gpu-a", "127.0.0.1", labels={LABEL: "n01"}), *nodes(*NODES[1:], "n99")])
    finally:
        cluster.must("scontrol", "delete", "reservationname=window")
    assert run.calls == 1 and set(said) == {"gpu-a", "n02", "n03", "n04", "n07"}, said
    assert "bad DIMM, ticket 41" in said["gpu-a"] and "MIXED+DRAIN" in said["n02"] and "PSU" in said["n03"]
    assert "MAINT" in said["n07"]
    cluster.cancel(job)
    drain.uncordon_all(nodes("n06"), "fleet:r-71")


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
