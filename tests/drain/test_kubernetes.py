"""Drain by Kubernetes: the official client against an API server of ours, which real kubectl binaries accept."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleet.core.errors import FleetError
from fleet.core.model import Node
from fleet.drain import Census, Drained
from fleet.kubeclient import OfficialClient
from fleet.kubernetes import AT, BY, LABEL, Consent, KubernetesDrain
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


GET = "GET /api/v1/nodes/n1"


@pytest.mark.parametrize("request_", [GET, PATCH])
@pytest.mark.parametrize(
    ("code", "slug", "action"),
    [(403, "kubernetes-denied", "account"), (401, "kubernetes-denied", "account"), (429, "kubernetes-busy", "readyz"),
     (500, "kubernetes-busy", "readyz"), (503, "kubernetes-busy", "readyz"), (504, "kubernetes-busy", "readyz")],
)  # fmt: skip
def test_refusals_of_the_server_are_an_outage_and_not_the_nodes(
    server: ApiServer, drainer: Make, request_: str, code: int, slug: str, action: str
) -> None:
    drain = drainer()
    for phase in ("cordon", "uncordon"):
        server.state.refusals = {request_: code}
        said = drain.cordon(N1, TOKEN) if phase == "cordon" else drain.uncordon(N1, TOKEN, {})
        assert (said.state, said.outage) == ("waiting", True) and said.reason.startswith(f"{slug}:")
        assert action in said.next_action and str(code) in said.reason and not server.state.refusals
        drain.cordon(N1, TOKEN)
    server.state.refusals = {GET: code}
    said = drain.drain(N1, TOKEN)
    assert said.outage and said.reason.startswith(f"{slug}:")


@pytest.mark.parametrize("code", [400, 422])
def test_other_refusals_are_the_nodes(server: ApiServer, drainer: Make, code: int) -> None:
    server.state.refusals = {PATCH: code}
    said = drainer().cordon(N1, TOKEN)
    assert (said.state, said.outage) == ("failed", False) and said.reason.startswith("kubernetes-failed:")


def test_no_right_to_evict_is_an_outage_and_a_webhooks_no_is_the_pods(server: ApiServer, drainer: Make) -> None:
    server.add_pod("web")
    drain = drainer()
    drain.cordon(N1, TOKEN)
    evict = "POST /api/v1/namespaces/work/pods/web/eviction"
    server.state.refusals = {evict: 403}
    assert drain.drain(N1, TOKEN).reason.startswith("kubernetes-denied:") and not server.state.refusals
    server.state.refusals, server.state.refusal = {evict: 403}, 'admission webhook "keep" denied the request'
    said = drain.drain(N1, TOKEN)
    assert (said.state, said.outage) == ("waiting", False) and "work/web: 403 admission webhook" in said.reason


def test_no_server_is_a_reason_of_its_own(server: ApiServer, drainer: Make) -> None:
    drain = drainer()
    server.stop()
    for said in (drain.cordon(N1, TOKEN), drain.drain(N1, TOKEN), drain.uncordon(N1, TOKEN, {})):
        assert (said.state, said.outage) == ("waiting", True) and said.next_action
        assert said.reason.startswith("kubernetes-unreachable")
    with pytest.raises(FleetError) as caught:
        drain.away([N1])
    assert caught.value.slug == "scheduler-unreachable" and caught.value.hint == "kubectl get nodes"


def test_a_server_that_does_not_answer_in_time(clock: Clock, tmp_path: Path) -> None:
    """It takes the connection and says nothing, as behind a load balancer without a server."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = tmp_path / "kubeconfig"
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{silent.getsockname()[1]}"}}
        config.write_text(json.dumps({"clusters": [cluster], "contexts": [{"name": "c", "context": {"cluster": "c",
            "user": "u"}}], "users": [{"name": "u", "user": {}}], "current-context": "c"}))  # fmt: skip
        said = KubernetesDrain(OfficialClient(str(config), timeout_s=0.3), clock).cordon(N1, TOKEN)
    assert said.outage and said.reason.startswith("kubernetes-unreachable") and "timed out" in said.reason


@pytest.mark.parametrize("patch", [{"spec": 7}, {"metadata": {"uid": 1}}])
def test_answers_that_are_not_understood_have_a_name(server: ApiServer, drainer: Make, patch: dict[str, Any]) -> None:
    drain = drainer()
    drain.cordon(N1, TOKEN)
    server.add_pod("web", owner="", app="x")
    server.change("n1", patch)
    if "uid" in str(patch):
        del server.state.pods["work", "web"]["metadata"]["name"]
    said = drain.drain(N1, TOKEN)
    assert said.outage and said.reason.startswith("kubernetes-garbled:") and said.next_action


def test_a_note_of_ours_that_somebody_changed_is_not_the_servers_fault(server: ApiServer, drainer: Make) -> None:
    drain = drainer()
    drain.cordon(N1, TOKEN)
    server.add_pod("bare", owner="")
    server.change("n1", {"metadata": {"annotations": {AT: "noon"}}})
    said = drain.drain(N1, TOKEN)
    assert said.revisit and not said.outage
    assert drain.uncordon(N1, TOKEN, {}).state == "done" and notes(server) == {}


def test_no_kubeconfig_is_an_error_with_a_name(tmp_path: Path, clock: Clock) -> None:
    client = OfficialClient(str(tmp_path / "none"))
    with pytest.raises(FleetError) as caught:
        client.node("n1")
    assert caught.value.slug == "kubernetes-no-config"
    said = KubernetesDrain(client, clock).cordon(N1, TOKEN)
    assert said.outage and said.reason.startswith("kubernetes-no-config") and "kubeconfig" in said.next_action


# --- pods that are let run to their end -----------------------------------------------------------------------------


def test_training_pods_end_before_anything_is_evicted(server: ApiServer, drainer: Make) -> None:
    server.add_pod("train-0", owner="Job", job="training")
    server.add_pod("train-1", owner="", job="training", emptydir=True, phase="Pending")
    server.add_pod("other", node="n2", owner="Job", job="training")
    server.add_pod("agent", owner="DaemonSet", job="training")
    server.add_pod("done", owner="Job", job="training", phase="Failed")
    server.add_pod("web")
    drain = drainer(wait_selector="job in (training, tuning),app!=db")
    drain.cordon(N1, TOKEN)
    said = drain.drain(N1, TOKEN)
    assert said.state == "waiting" and not server.asked("POST")
    assert said.reason == "2 pods are let run to their end: work/train-0: Running; work/train-1: Pending"
    server.ended("train-0")
    assert "1 pods" in drain.drain(N1, TOKEN).reason and server.on("n1") >= {"web"} and not server.asked("POST")
    server.finish("train-1")
    assert drain.drain(N1, TOKEN).state == "waiting"
    assert drain.drain(N1, TOKEN).state == "done"
    assert server.on("n1") == {"agent", "done", "train-0"} and not server.asked("DELETE")


def test_training_that_outlasts_the_deadline_is_not_ended(server: ApiServer, drainer: Make, clock: Clock) -> None:
    server.add_pod("train-0", owner="Job", job="training")
    server.add_pod("web")
    drain = drainer(wait_selector="job", deadline_s=100)
    prior = drain.cordon(N1, TOKEN).prior
    clock.now += 101
    said = drain.drain(N1, TOKEN)
    assert said.state == "failed" and said.revisit and "train-0" in said.reason and "101 s" in said.reason
    assert drain.uncordon(N1, TOKEN, prior).state == "done"
    assert server.on("n1") == {"train-0", "web"} and not server.asked("POST")


def test_a_selector_that_is_none_is_the_settings_fault(server: ApiServer, drainer: Make) -> None:
    server.add_pod("web")
    drain = drainer(wait_selector="job in training")
    drain.cordon(N1, TOKEN)
    said = drain.drain(N1, TOKEN)
    assert said.outage and said.reason.startswith("kubernetes-bad-selector") and "drain_wait_selector" in said.reason
    assert server.on("n1") == {"web"} and not server.asked("POST")


# --- the census -----------------------------------------------------------------------------------------------------


def test_the_census_names_who_serves_nothing_and_is_not_ours(server: ApiServer, drainer: Make) -> None:
    for number in range(2, 9):
        server.add_node(f"n{number}")
    drain = drainer()
    assert isinstance(drain, Census) and drain.away([N1]) == {}
    drain.cordon(N1, TOKEN)
    server.change("n2", {"spec": {"unschedulable": True}})
    server.change("n3", {"spec": {"unschedulable": True}, "metadata": {"annotations": {BY: "li"}}})
    dead = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
    server.change("n4", {"status": {"conditions": [{"type": "DiskPressure", "status": "True"}, dead]}})
    server.change("n5", {"status": {"conditions": None}})
    server.change("n6", {"metadata": {"annotations": {BY: "fleet:r-71"}}})  # left behind: it serves
    server.change("n7", {"spec": {"unschedulable": True}, "metadata": {"annotations": {BY: "fleet:r-71"}}})
    server.change("n8", {"status": {"conditions": [dead]}, "metadata": {"annotations": {BY: TOKEN}}})
    server.state.requests.clear()
    asked = [Node("gpu-a", "192.0.2.2", labels={LABEL: "n2"}), *(Node(f"n{i}", "192.0.2.1") for i in (1, 3, 4, 5, 6, 7,
             8, 99))]  # fmt: skip
    assert drain.away(asked) == {
        "gpu-a": "cordoned by somebody else", "n3": "cordoned by li",
        "n4": "its Ready condition is Unknown, NodeStatusUnknown", "n5": "its Ready condition is missing",
        "n8": "its Ready condition is Unknown, NodeStatusUnknown",
    }  # fmt: skip
    assert len(server.state.requests) == 1


def test_a_census_of_many_is_read_in_pages_and_begun_again_when_the_server_forgets(
    server: ApiServer, drainer: Make
) -> None:
    for number in range(2, 1202):
        server.add_node(f"n{number}", unschedulable=number == 1201)
    asked = [Node(f"n{number}", "192.0.2.1") for number in range(1, 1202)]
    assert drainer().away(asked) == {"n1201": "cordoned by somebody else"}
    assert len(server.asked("GET", "/nodes")) == 3
    server.state.forgets = 1
    assert set(drainer().away(asked)) == {"n1201"}
    server.state.forgets = 2
    with pytest.raises(FleetError) as caught:
        drainer().away(asked)
    assert caught.value.slug == "scheduler-unreachable" and "410" in caught.value.cause


@pytest.mark.parametrize(("code", "hint"), [(403, "list"), (401, "account"), (500, "kubectl get nodes")])
def test_a_census_that_is_refused(server: ApiServer, drainer: Make, code: int, hint: str) -> None:
    server.state.refusals = {"GET /api/v1/nodes": code}
    with pytest.raises(FleetError) as caught:
        drainer().away([N1])
    assert (
        caught.value.slug == "scheduler-unreachable" and str(code) in caught.value.cause and hint in caught.value.hint
    )


def test_a_census_that_is_not_understood(server: ApiServer, drainer: Make) -> None:
    server.state.nodes["n1"] = {"kind": "Node"}
    with pytest.raises(FleetError) as caught:
        drainer().away([N1])
    assert caught.value.slug == "scheduler-unreachable" and "KeyError" in caught.value.cause


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

        done = kubectl(path, config, "get", "nodes", "-o", "name")
        assert done.stdout.split() == ["node/n1"], (name, done.stderr)
        where = ("--field-selector", "spec.nodeName=n1", "-o", "name")
        done = kubectl(path, config, "get", "pods", "-A", "-l", "app in (db, x),!job,app!=x", *where)
        assert done.stdout.split() == ["pod/db"], (name, done)
        assert kubectl(path, config, "get", "pods", "-A", "-l", "job in training", *where).returncode != 0

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
