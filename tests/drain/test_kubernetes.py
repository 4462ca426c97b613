"""Drain by Kubernetes: the official client against an API server of ours, which real kubectl binaries accept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.core.errors import FleetError
from fleet.core.model import Node
from fleet.drain import Drained
from fleet.kubernetes import AT, BY, LABEL, Consent, KubernetesDrain, OfficialClient
from tests.drain.apiserver import ApiServer, Budget
from tests.drain.kubectl import binaries, kubectl, minor

TOKEN = "fleet:r-7"
N1 = Node("n1", "192.0.2.1")
PATCH = "PATCH /api/v1/nodes/n1"


class Clock:
    """Time that only the test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(params=[("v1", "v1beta1"), ("v1beta1",)], ids=["policy/v1", "policy/v1beta1"])
def server(request: pytest.FixtureRequest) -> Iterator[ApiServer]:
    started = ApiServer(request.param)
    started.add_node("n1")
    yield started
    started.stop()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def drainer(server: ApiServer, clock: Clock, tmp_path: Path) -> Callable[..., KubernetesDrain]:
    """Makes adapters, each as a fresh process would."""
    config = str(server.kubeconfig(tmp_path / "kubeconfig"))

    def make(**more: Any) -> KubernetesDrain:
        return KubernetesDrain(OfficialClient(config, "test", 10), clock, **more)

    return make


Make = Callable[..., KubernetesDrain]


def spec(server: ApiServer) -> dict[str, Any]:
    found: dict[str, Any] = server.state.nodes["n1"]["spec"]
    return found


def notes(server: ApiServer) -> dict[str, str]:
    found: dict[str, str] = server.state.nodes["n1"]["metadata"].get("annotations", {})
    return found


# --- cordon and uncordon --------------------------------------------------------------------------------------------


def test_cordon_carries_our_token_and_uncordon_takes_all_of_it_back(server: ApiServer, drainer: Make) -> None:
    server.change("n1", {"metadata": {"annotations": {"site": "a"}}})
    drain = drainer()
    said = drain.cordon(N1, TOKEN)
    assert said == Drained("done", "", {"cordoned": True, "ready": True})
    assert spec(server) == {"unschedulable": True}
    assert notes(server) == {"site": "a", BY: TOKEN, AT: "1000000"}
    assert drain.drain(N1, TOKEN).state == "done"
    assert drain.uncordon(N1, TOKEN, said.prior).state == "done"
    assert spec(server) == {} and notes(server) == {"site": "a"}


def test_each_call_may_be_repeated_by_another_process(server: ApiServer, drainer: Make) -> None:
    for _ in range(3):
        assert drainer().cordon(N1, TOKEN).state == "done"
    for _ in range(3):
        assert drainer().uncordon(N1, TOKEN, {}).state == "done"
    assert len(server.asked("PATCH")) == 2


@pytest.mark.parametrize("other", ["", "fleet:r-71", "somebody"])
def test_a_foreign_cordon_stays(server: ApiServer, drainer: Make, other: str) -> None:
    server.change("n1", {"spec": {"unschedulable": True}, "metadata": {"annotations": {BY: other or None}}})
    server.add_pod("web")
    drain = drainer()
    for said in (drain.cordon(N1, TOKEN), drain.drain(N1, TOKEN)):
        assert said.state == "failed" and said.foreign and (other or "somebody else") in said.reason
    assert drain.uncordon(N1, TOKEN, {"cordoned": True}).reason.startswith("left cordoned")
    assert spec(server) == {"unschedulable": True} and server.on("n1") == {"web"}
    assert not server.asked("PATCH") and not server.asked("POST")


def test_an_uncordon_by_somebody_else_ends_our_drain(server: ApiServer, drainer: Make) -> None:
    drain = drainer()
    drain.cordon(N1, TOKEN)
    server.change("n1", {"spec": {"unschedulable": None}})
    server.add_pod("web")
    said = drain.drain(N1, TOKEN)
    assert said.state == "failed" and said.foreign and not server.asked("POST")
    assert drain.uncordon(N1, TOKEN, {}).state == "done"
    assert BY not in notes(server)


def test_a_conflict_is_read_again(server: ApiServer, drainer: Make) -> None:
    server.state.conflicts = [{"metadata": {"labels": {"x": "1"}}}, {"metadata": {"labels": {"x": "2"}}}]
    assert drainer().cordon(N1, TOKEN).state == "done"
    assert len(server.asked("PATCH")) == 3 and server.state.nodes["n1"]["metadata"]["labels"] == {"x": "2"}


def test_a_conflict_that_is_a_foreign_cordon_wins(server: ApiServer, drainer: Make) -> None:
    """Somebody cordons between our look and our patch: without the resourceVersion we would take it for ours."""
    server.state.conflicts = [{"spec": {"unschedulable": True}}]
    said = drainer().cordon(N1, TOKEN)
    assert said.foreign and BY not in notes(server)


def test_conflicts_without_end_are_asked_again_later(server: ApiServer, drainer: Make) -> None:
    server.state.conflicts = [{"metadata": {"labels": {"x": str(n)}}} for n in range(5)]
    said = drainer().cordon(N1, TOKEN)
    assert said.state == "waiting" and said.reason.startswith("kubernetes-conflict")


def test_a_kubelet_that_is_not_back_is_waited_for(server: ApiServer, drainer: Make) -> None:
    drain = drainer()
    prior = drain.cordon(N1, TOKEN).prior
    server.change("n1", {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})
    said = drain.uncordon(N1, TOKEN, prior)
    assert said.state == "waiting" and "kubelet" in said.next_action and spec(server) == {"unschedulable": True}
    server.change("n1", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    assert drain.uncordon(N1, TOKEN, prior).state == "done"


def test_names_of_nodes_and_unknown_ones(server: ApiServer, drainer: Make) -> None:
    assert drainer().cordon(Node("gpu-a", "192.0.2.1", labels={LABEL: "n1"}), TOKEN).state == "done"
    assert spec(server) == {"unschedulable": True}
    said = drainer().cordon(Node("n9", "192.0.2.9"), TOKEN)
    assert said.state == "failed" and "kubernetes-unknown-node" in said.reason and "n9" in said.next_action


# --- evictions ------------------------------------------------------------------------------------------------------


def test_pods_that_count_are_evicted_and_waited_for(server: ApiServer, drainer: Make) -> None:
    server.state.linger = True
    server.add_pod("web")
    server.add_pod("db", owner="StatefulSet")
    server.add_pod("agent", owner="DaemonSet")
    server.add_pod("static", owner="", mirror=True)
    server.add_pod("ended", phase="Succeeded", owner="Job")
    server.add_pod("other", node="n2")
    drain = drainer()
    drain.cordon(N1, TOKEN)
    assert drain.drain(N1, TOKEN).state == "waiting"
    said = drain.drain(N1, TOKEN)
    assert said.state == "waiting" and "work/web: it is ending" in said.reason
    assert sorted(request[1].split("/")[-2] for request in server.asked("POST", "/eviction")) == ["db", "web"]
    server.finish("web")
    server.finish("db")
    assert drain.drain(N1, TOKEN).state == "done"
    assert server.on("n1") == {"agent", "static", "ended"} and server.on("n2") == {"other"}
    assert not server.asked("DELETE")


def test_the_version_of_the_eviction_is_the_servers(server: ApiServer, drainer: Make) -> None:
    server.add_pod("web")
    drain = drainer()
    drain.cordon(N1, TOKEN)
    drain.drain(N1, TOKEN)
    [(_, _, body)] = server.asked("POST", "/eviction")
    assert body["apiVersion"] == f"policy/{server.policy[0]}" and server.on("n1") == set()


def test_a_pod_made_again_under_its_name_is_another_pod(server: ApiServer, drainer: Make) -> None:
    uid = server.add_pod("db", owner="StatefulSet")
    drain = drainer()
    drain.cordon(N1, TOKEN)
    assert drain.drain(N1, TOKEN).state == "waiting"
    assert drain.drain(N1, TOKEN).state == "done"
    assert server.on("elsewhere") == {"db"}
    [(_, _, body)] = server.asked("POST", "/eviction")
    assert body["deleteOptions"]["preconditions"] == {"uid": uid}


def test_a_pod_replaced_between_look_and_eviction_is_not_hit(server: ApiServer, drainer: Make) -> None:
    server.add_pod("db", owner="StatefulSet")
    drain = drainer()
    drain.cordon(N1, TOKEN)
    looked = drain.api.pods("n1")
    server.finish("db")
    server.add_pod("db", node="n2", owner="StatefulSet")
    assert drain._evicted(looked[0]) == "it was replaced"
    assert server.on("n2") == {"db"}


def test_a_disruption_budget_is_named_and_waited_for(server: ApiServer, drainer: Make) -> None:
    server.add_pod("a", app="db")
    server.add_pod("b", app="db")
    server.state.budgets = [Budget("db-budget", "db", 1)]
    drain = drainer()
    drain.cordon(N1, TOKEN)
    said = drain.drain(N1, TOKEN)
    assert said.state == "waiting" and "work/b: The disruption budget db-budget" in said.reason
    server.state.budgets[0].allowed = 1
    assert drain.drain(N1, TOKEN).state == "waiting"
    assert drain.drain(N1, TOKEN).state == "done"


def test_retry_after_is_honoured(server: ApiServer, drainer: Make, clock: Clock) -> None:
    server.add_pod("a", app="db")
    server.state.budgets = [Budget("db-budget", "db", 1, settling=True)]
    drain = drainer()
    drain.cordon(N1, TOKEN)
    for _ in range(4):
        assert "db-budget" in drain.drain(N1, TOKEN).reason
        clock.now += 2
    assert len(server.asked("POST")) == 1
    clock.now += 2
    server.state.budgets[0].settling = False
    drain.drain(N1, TOKEN)
    assert len(server.asked("POST")) == 2 and server.on("n1") == set()


def test_two_budgets_on_one_pod_are_told(server: ApiServer, drainer: Make) -> None:
    server.add_pod("a", app="db")
    server.state.budgets = [Budget("one", "db", 1), Budget("two", "db", 1)]
    drain = drainer()
    drain.cordon(N1, TOKEN)
    said = drain.drain(N1, TOKEN)
    assert said.state == "waiting" and "more than one disruption budget" in said.reason
    assert server.on("n1") == {"a"} and not server.asked("DELETE")


@pytest.mark.parametrize(
    ("pod", "consent", "word"),
    [({"owner": ""}, Consent(unmanaged=True), "drain_unmanaged_pods"),
     ({"emptydir": True}, Consent(emptydir=True), "drain_emptydir"),
     ({"emptydir": True, "owner": ""}, Consent(True, True), "drain_unmanaged_pods")],
)  # fmt: skip
def test_what_would_be_lost_needs_a_word(
    server: ApiServer, drainer: Make, pod: dict[str, Any], consent: Consent, word: str
) -> None:
    server.add_pod("precious", **pod)
    drain = drainer()
    drain.cordon(N1, TOKEN)
    said = drain.drain(N1, TOKEN)
    assert said.state == "waiting" and word in said.reason and server.on("n1") == {"precious"}
    assert not server.asked("POST")
    allowed = drainer(consent=consent)
    allowed.drain(N1, TOKEN)
    assert allowed.drain(N1, TOKEN).state == "done"


def test_past_the_deadline_means_another_time(server: ApiServer, drainer: Make, clock: Clock) -> None:
    """The time of the cordon is on the node: a controller that took over counts from there."""
    server.add_pod("a", app="db")
    server.state.budgets = [Budget("db-budget", "db", 0)]
    drainer(deadline_s=100).cordon(N1, TOKEN)
    clock.now += 100
    assert drainer(deadline_s=100).drain(N1, TOKEN).state == "waiting"
    clock.now += 1
    said = drainer(deadline_s=100).drain(N1, TOKEN)
    assert said.state == "failed" and said.revisit and "db-budget" in said.reason and "101 s" in said.reason
    assert drainer().uncordon(N1, TOKEN, {}).state == "done"
    assert server.on("n1") == {"a"} and spec(server) == {}


def test_many_pods_are_read_in_pages(server: ApiServer, drainer: Make) -> None:
    for number in range(501):
        server.add_pod(f"p{number}")
    drain = drainer()
    assert len(drain.api.pods("n1")) == 501
    assert len(server.asked("GET", "/pods")) == 2


# --- the server's moods ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "state", "slug"),
    [(403, "failed", "kubernetes-denied"), (401, "failed", "kubernetes-denied"), (429, "waiting", "kubernetes-busy"),
     (503, "waiting", "kubernetes-busy"), (500, "failed", "kubernetes-failed")],
)  # fmt: skip
def test_refusals_have_names(server: ApiServer, drainer: Make, code: int, state: str, slug: str) -> None:
    server.state.refusals = {PATCH: code}
    said = drainer().cordon(N1, TOKEN)
    assert said.state == state and said.reason.startswith(f"{slug}:") and len(server.asked("PATCH")) == 1


def test_no_server_is_a_reason_of_its_own(server: ApiServer, drainer: Make) -> None:
    drain = drainer()
    server.stop()
    for said in (drain.cordon(N1, TOKEN), drain.drain(N1, TOKEN), drain.uncordon(N1, TOKEN, {})):
        assert said.state == "waiting" and said.reason.startswith("kubernetes-unreachable") and said.next_action


@pytest.mark.parametrize("patch", [{"metadata": {"annotations": {AT: "noon"}}}, {"spec": 7}, {"metadata": {"uid": 1}}])
def test_answers_that_are_not_understood_have_a_name(server: ApiServer, drainer: Make, patch: dict[str, Any]) -> None:
    drain = drainer()
    drain.cordon(N1, TOKEN)
    server.add_pod("web", owner="", app="x")
    server.change("n1", patch)
    if "uid" in str(patch):
        del server.state.pods["work", "web"]["metadata"]["name"]
    said = drain.drain(N1, TOKEN)
    assert said.state == "failed" and said.reason.startswith("kubernetes-garbled:") and said.next_action


def test_no_kubeconfig_is_an_error_with_a_name(tmp_path: Path) -> None:
    with pytest.raises(FleetError) as caught:
        OfficialClient(str(tmp_path / "none")).node("n1")
    assert caught.value.slug == "kubernetes-no-config"


# --- the server against real kubectl --------------------------------------------------------------------------------


@pytest.fixture(params=["v1", "v1beta1"])
def old_or_new(request: pytest.FixtureRequest) -> Iterator[ApiServer]:
    """As Kubernetes 1.32, or as 1.20, would answer."""
    started = ApiServer(("v1",) if request.param == "v1" else ("v1beta1",))
    started.add_node("n1")
    yield started
    started.stop()


def test_kubectl_accepts_the_server(old_or_new: ApiServer, tmp_path: Path) -> None:
    """cordon, drain against a budget, uncordon by each binary that speaks this version; at least one must."""
    server, config = old_or_new, old_or_new.kubeconfig(tmp_path / "kubeconfig")
    speaking = {name: path for name, path in binaries().items() if (minor(path) >= 22) == (server.policy == ("v1",))}
    assert speaking, f"no kubectl for {server.policy[0]}, run scripts/setup; found {binaries()}"
    for name, path in speaking.items():
        for pod, more in {"web": {}, "db": {"owner": "StatefulSet", "app": "db"}, "bare": {"owner": ""},
                          "agent": {"owner": "DaemonSet"}, "cache": {"emptydir": True}}.items():  # fmt: skip
            server.add_pod(pod, **more)  # type: ignore[arg-type]
        server.add_pod("static", owner="", mirror=True)
        server.state.budgets = [Budget("db-budget", "db", 0)]
        server.state.requests.clear()

        done = kubectl(path, config, "cordon", "n1")
        assert done.returncode == 0 and "cordoned" in done.stdout, (name, done.stderr)
        assert spec(server) == {"unschedulable": True}

        done = kubectl(path, config, "drain", "n1")
        assert done.returncode != 0 and "declare no controller" in done.stderr.replace("not managed by", "declare no "
            "controller") and "local storage" in done.stderr and not server.asked("POST"), (name, done)  # fmt: skip

        freed = threading.Timer(1, lambda: setattr(server.state.budgets[0], "allowed", 1))
        freed.start()
        words = ("drain", "n1", "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--timeout=40s")
        done = kubectl(path, config, *words)
        freed.join()
        assert done.returncode == 0, (name, done.stderr)
        assert "will retry" in done.stderr and server.on("n1") == {"agent", "static"}
        assert server.on("elsewhere") == {"db"} and not server.asked("DELETE")

        done = kubectl(path, config, "uncordon", "n1")
        assert done.returncode == 0 and spec(server) == {}, (name, done.stderr)


def test_kubectl_and_fleet_leave_the_same_pods(old_or_new: ApiServer, tmp_path: Path, clock: Clock) -> None:
    """What fleet cordons kubectl shows as cordoned, and both evict the same pods."""
    server, config = old_or_new, old_or_new.kubeconfig(tmp_path / "kubeconfig")
    for pod, owner in {"web": "ReplicaSet", "bare": "", "agent": "DaemonSet"}.items():
        server.add_pod(pod, owner=owner)
    drain = KubernetesDrain(OfficialClient(str(config)), clock, Consent(unmanaged=True))
    drain.cordon(N1, TOKEN)
    assert [drain.drain(N1, TOKEN).state for _ in range(2)] == ["waiting", "done"]
    path = next(p for p in binaries().values() if (minor(p) >= 22) == (server.policy == ("v1",)))
    server.state.requests.clear()
    done = kubectl(path, config, "drain", "n1", "--ignore-daemonsets", "--timeout=10s")
    assert done.returncode == 0 and "already cordoned" in done.stdout, done.stderr
    assert not server.asked("POST") and not server.asked("PATCH") and server.on("n1") == {"agent"}
