"""Whole rollouts of simulated nodes behind a real Slurm, and behind the API server of the tests."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.kubeclient import OfficialClient
from fleet.kubernetes import BY, KubernetesDrain
from fleet.slurm import SlurmDrain, run_program
from fleet.telling import Transition
from tests.drain.apiserver import ApiServer, Budget
from tests.drain.slurmcluster import NODES, Cluster
from tests.upgrade.site import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path, parallel=2)
    yield made
    made.close()


def reason(site: Site, name: str) -> str:
    return site.store.tasks("r-1")[name].task.reason


@pytest.mark.skipif(os.geteuid() != 0, reason="slurmd needs root")
def test_behind_slurm(site: Site, cluster: Cluster) -> None:
    """A job that ends in time, one that does not, and a node that is out for another reason."""
    short = cluster.job("n02")
    long = cluster.job("n07")
    cluster.must("scontrol", "update", "nodename=n05", "state=drain", "reason=bad DIMM")
    nodes = site.nodes(*NODES)
    slurm = SlurmDrain(run_program, time.time, "/usr/bin/scontrol", str(cluster.config), deadline_s=6)
    site.upgrade.hands = replace(site.upgrade.hands, drain=slurm)
    site.start(nodes, max_failures="50%", drained=True, drain_limit_s=100_000, revisits=0)
    out: set[str] = set()
    end = threading.Timer(2, lambda: cluster.cancel(short))
    end.start()
    site.upgrade.telling.watch = lambda _: out.update(n for n, state in cluster.states().items() if state != "idle")
    site.engine.submit("r-1")
    end.join()

    states = site.states()
    assert {name for name, state in states.items() if state == "done"} == set(NODES) - {"n05", "n07"}, states
    assert reason(site, "n05").startswith("foreign:") and "bad DIMM" in reason(site, "n05")
    assert reason(site, "n07").startswith("revisit:") and long in reason(site, "n07")
    assert {"n01", "n02", "n07"} <= out  # they really were out of service
    assert cluster.reason("n05") == "bad DIMM" and cluster.states()["n05"] == "drained"
    assert {cluster.states()[name] for name in set(NODES) - {"n05", "n07"}} == {"idle"}
    assert cluster.states()["n07"] == "mixed" and cluster.must("squeue", "-h", "-j", long, "-o", "%T") == "RUNNING"
    assert site.fleet.state("n07")["installed"]["driver"] == "1.0"
    cluster.cancel(long)


def test_behind_kubernetes(site: Site, tmp_path: Path) -> None:
    server = ApiServer()
    try:
        for number in range(1, 5):
            server.add_node(f"k{number}")
        server.add_pod("web", "k1")
        server.add_pod("db", "k3", app="db")
        server.change("k2", {"spec": {"unschedulable": True}})
        server.state.budgets = [Budget("db-budget", "db", 0)]
        client = OfficialClient(str(server.kubeconfig(tmp_path / "kubeconfig")))
        kubernetes = KubernetesDrain(client, time.time, deadline_s=2)
        site.upgrade.hands = replace(site.upgrade.hands, drain=kubernetes)
        nodes = site.nodes("k1", "k2", "k3", "k4")
        site.start(nodes, max_failures="80%", drained=True, drain_limit_s=100_000, revisits=0)
        site.engine.submit("r-1")

        assert site.states() == {"k1": "done", "k2": "failed", "k3": "held", "k4": "done"}
        assert reason(site, "k2").startswith("foreign: cordoned by somebody else")
        assert reason(site, "k3").startswith("revisit:") and "db-budget" in reason(site, "k3")
        kept = {name for name, node in server.state.nodes.items() if node["spec"].get("unschedulable")}
        assert kept == {"k2"} and server.on("k3") == {"db"} and server.on("k1") == set()
        assert not any(BY in (node["metadata"].get("annotations") or {}) for node in server.state.nodes.values())
    finally:
        server.stop()


@pytest.mark.parametrize(("code", "slug"), [(401, "kubernetes-denied"), (503, "kubernetes-busy")])
def test_an_api_server_that_refuses_pauses_and_resume_goes_on(site: Site, tmp_path: Path, code: int, slug: str) -> None:
    server = ApiServer()
    try:
        for name in ("k1", "k2"):
            server.add_node(name)
        kubernetes = KubernetesDrain(OfficialClient(str(server.kubeconfig(tmp_path / "kubeconfig"))), time.time)
        site.upgrade.hands = replace(site.upgrade.hands, drain=kubernetes)
        site.start(site.nodes("k1", "k2"), gate=False)

        def later(transition: Transition) -> None:
            if transition.now == "cordoning":
                server.state.down = code

        site.upgrade.telling.watch = later
        lease = site.store.acquire("r-1", site.engine.owner, 1e9, 0.0, lambda _: True)
        ticks = iter(range(400))
        while not site.upgrade.tick("r-1", lease, False).resting:
            site.fleet.clock += 10
            assert next(ticks) < 399, site.states()
        held = site.store.tasks("r-1")["k1"].task
        assert site.states() == {"k1": "held", "k2": "waiting"} and site.store.rollout("r-1").state == "paused"
        assert held.reason.startswith(f"scheduler: {slug}:") and str(code) in held.reason
        assert held.next_action and site.fleet.state("k1")["installed"]["driver"] == "1.0"

        server.state.down, site.upgrade.telling.watch = 0, site.seen.append
        site.go_on()
        assert set(site.states().values()) == {"done"}
        assert not any(node["spec"].get("unschedulable") for node in server.state.nodes.values())
    finally:
        server.stop()
