"""Drain by Kubernetes: cordon with our annotation, evict through the eviction API, never delete.

A node that is cordoned without our annotation belongs to somebody else. A disruption budget that forbids an eviction
is waited for as long as its answer says. Pods that eviction would lose for good (no controller, or data in an
emptyDir) need a setting. Only this module knows the official client, and imports it when it is used.
https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fleet.core.errors import FleetError
from fleet.core.model import Json, Node
from fleet.drain import Drained, ours

LABEL = "kubernetes_node"  # the label of a node whose name in Kubernetes is not its name here
BY = "accelfleet/cordoned-by"  # annotation: our token
AT = "accelfleet/cordoned-at"  # annotation: seconds since the epoch
MIRROR = "kubernetes.io/config.mirror"
TRIES = 5  # of a change that somebody else came before

Object = Mapping[str, Any]


class ApiError(Exception):
    """The API server said no: `status`, its Status document, `retry_after` in seconds where it named one."""

    def __init__(self, status: int, body: Object, retry_after: float = 0.0) -> None:
        super().__init__(f"{status} {body.get('message', '')}".strip())
        self.status = status
        self.body = body
        self.retry_after = retry_after


class Api(Protocol):
    """The few calls that draining needs. Each raises ApiError, or FleetError `kubernetes-unreachable`."""

    def node(self, name: str) -> Object:
        """A Node."""
        ...

    def patch_node(self, name: str, patch: Object) -> Object:
        """Merge a patch into a Node; 409 when its resourceVersion is not that of the patch."""
        ...

    def pods(self, node: str) -> Sequence[Object]:
        """The pods bound to a node, of all namespaces."""
        ...

    def evict(self, namespace: str, name: str, uid: str) -> None:
        """Ask for the eviction of the pod with that uid."""
        ...


@dataclass(frozen=True)
class Consent:
    """What may be lost. `unmanaged` = pods without a controller, `emptydir` = the content of emptyDir volumes."""

    unmanaged: bool = False
    emptydir: bool = False


# --- decisions ------------------------------------------------------------------------------------------------------


def _annotations(thing: Object) -> Object:
    found: Object = thing["metadata"].get("annotations") or {}
    return found


def cordoned(node: Object) -> bool:
    """Whether new pods are kept off."""
    return bool((node.get("spec") or {}).get("unschedulable"))


def ready(node: Object) -> bool:
    """Whether its kubelet says that it can take pods."""
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def owned(node: Object, token: str) -> bool:
    """Whether the cordon is ours."""
    return cordoned(node) and ours(str(_annotations(node).get(BY, "")), token)


def foreign(node: Object) -> Drained:
    """Somebody else keeps it out."""
    name, by = node["metadata"]["name"], _annotations(node).get(BY)
    who = f"by {by}" if by else "by somebody else"
    return Drained("failed", f"cordoned {who}", foreign=True, next_action=f"kubectl describe node {name}")


def stays(pod: Object) -> bool:
    """Whether the pod does not count: finished, of the kubelet itself (mirror), or of a DaemonSet."""
    return (
        (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        or MIRROR in _annotations(pod)
        or (_controller(pod) or {}).get("kind") == "DaemonSet"
    )


def withheld(pod: Object, consent: Consent) -> str:
    """Why the pod is not evicted without a word of the operator's, "" when it may be."""
    if _controller(pod) is None and not consent.unmanaged:
        return "no controller would make it again: drain_unmanaged_pods"
    volumes = (pod.get("spec") or {}).get("volumes") or []
    if any("emptyDir" in volume for volume in volumes) and not consent.emptydir:
        return "its emptyDir would be lost: drain_emptydir"
    return ""


def _controller(pod: Object) -> Object | None:
    owners: Sequence[Object] = pod["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def budget_of(error: ApiError) -> str:
    """What a refused eviction says about the disruption budget, else its message."""
    causes = (error.body.get("details") or {}).get("causes") or ()
    said = [str(c.get("message")) for c in causes if c.get("reason") == "DisruptionBudget"]
    return said[0] if said else str(error.body.get("message") or error)


# --- acting ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KubernetesDrain:
    """A Drain. `clock`: epoch seconds. `later` remembers by uid until when an eviction need not be asked again."""

    api: Api
    clock: Callable[[], float]
    consent: Consent = Consent()
    deadline_s: float = 3600.0
    later: dict[str, tuple[float, str]] = field(default_factory=dict)

    def cordon(self, node: Node, token: str) -> Drained:
        """Cordon the node with our annotation, unless it is cordoned; `prior` says whether it was ready."""
        return self._told(node, lambda name: self._cordon(name, token))

    def drain(self, node: Node, token: str) -> Drained:
        """Evict what may be evicted; `done` once nothing is left that counts."""
        return self._told(node, lambda name: self._drain(name, token))

    def uncordon(self, node: Node, token: str, prior: Mapping[str, Json]) -> Drained:
        """Lift the cordon if it is ours, once the node is as ready as it was."""
        return self._told(node, lambda name: self._uncordon(name, token, prior))

    def _told(self, node: Node, ask: Callable[[str], Drained]) -> Drained:
        name = node.labels.get(LABEL, node.name)
        try:
            return ask(name)
        except FleetError as error:
            if error.slug != "kubernetes-unreachable":
                raise
            said = f"{error.slug}: {error.what}" + (f" ({error.cause})" if error.cause else "")
            return Drained("waiting", said, next_action=error.hint)
        except ApiError as error:
            if error.status in (429, 503):
                return Drained("waiting", f"kubernetes-busy: the API server says {error}")
            if error.status in (401, 403):
                action = "give the controller's account nodes get/patch, pods list, pods/eviction create"
                return Drained("failed", f"kubernetes-denied: {error}", next_action=action)
            if error.status == 404:
                action = f"kubectl get node {name}; fleet node label {node.name} {LABEL}=NAME"
                said = f"kubernetes-unknown-node: Kubernetes has no node {name!r}"
                return Drained("failed", said, next_action=action)
            return Drained("failed", f"kubernetes-failed: {error}", next_action=f"kubectl describe node {name}")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            said = f"kubernetes-garbled: the answer is not understood: {type(error).__name__} {error}"
            return Drained("failed", said, next_action=f"kubectl get node {name} -o json")

    def _change(self, name: str, decide: Callable[[Object], Drained | tuple[Object, Drained]]) -> Drained:
        """Read, decide, patch what was read; once more when somebody else was faster."""
        for _ in range(TRIES):
            found = self.api.node(name)
            decided = decide(found)
            if isinstance(decided, Drained):
                return decided
            patch, said = decided
            version = found["metadata"]["resourceVersion"]
            metadata = {**patch.get("metadata", {}), "resourceVersion": version}
            try:
                self.api.patch_node(name, {**patch, "metadata": metadata})
            except ApiError as error:
                if error.status != 409:
                    raise
                continue
            return said
        return Drained("waiting", f"kubernetes-conflict: others changed the node {TRIES} times meanwhile")

    def _cordon(self, name: str, token: str) -> Drained:
        def decide(node: Object) -> Drained | tuple[Object, Drained]:
            prior: dict[str, Json] = {"cordoned": True, "ready": ready(node)}
            if owned(node, token):
                return Drained("done", "ours already", prior)
            if cordoned(node):
                return foreign(node)
            notes = {BY: token, AT: f"{self.clock():.0f}"}
            return {"metadata": {"annotations": notes}, "spec": {"unschedulable": True}}, Drained("done", "", prior)

        return self._change(name, decide)

    def _uncordon(self, name: str, token: str, prior: Mapping[str, Json]) -> Drained:
        def decide(node: Object) -> Drained | tuple[Object, Drained]:
            if cordoned(node) and not owned(node, token):
                return Drained("done", f"left cordoned: {foreign(node).reason}")
            if not cordoned(node) and not ours(str(_annotations(node).get(BY, "")), token):
                return Drained("done", "in service already")
            if prior.get("ready") and not ready(node):
                start = f"systemctl status kubelet on {name}"
                return Drained("waiting", "kubernetes-not-ready: its kubelet is not ready yet", next_action=start)
            return {"metadata": {"annotations": {BY: None, AT: None}}, "spec": {"unschedulable": None}}, Drained("done")

        return self._change(name, decide)

    def _drain(self, name: str, token: str) -> Drained:
        node = self.api.node(name)
        if not cordoned(node):
            ask = f"ask who uncordoned {name}"
            return Drained("failed", "somebody else uncordoned it", foreign=True, next_action=ask)
        if not owned(node, token):
            return foreign(node)
        left = {}
        for pod in self.api.pods(name):
            if not stays(pod):
                left[f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"] = self._evicted(pod)
        if not left:
            return Drained("done")
        shown = [f"{pod}: {why}" for pod, why in list(left.items())[:5]]
        what = f"{len(left)} pods left: " + "; ".join(shown) + ("; …" if len(left) > 5 else "")
        waited = self.clock() - float(_annotations(node).get(AT) or 0)  # without the time it is long over
        if waited <= self.deadline_s:
            return Drained("waiting", what)
        return Drained(
            "failed", f"{what}; after {waited:.0f} s, the limit is {self.deadline_s:.0f} s", revisit=True,
            next_action=f"kubectl get pods -A --field-selector spec.nodeName={name}; fleet upgrade again later",
        )  # fmt: skip

    def _evicted(self, pod: Object) -> str:
        """Ask for the eviction of a pod where it may be asked; what is to be said about the pod."""
        about = pod["metadata"]
        if about.get("deletionTimestamp"):
            return "it is ending"
        why = withheld(pod, self.consent)
        if why:
            return why
        until, said = self.later.get(about["uid"], (0.0, ""))
        if self.clock() < until:
            return said
        try:
            self.api.evict(about["namespace"], about["name"], about["uid"])
        except ApiError as error:
            if error.status in (404, 409):  # gone, or another pod of that name by now: the next look tells
                return "it was replaced"
            if error.status in (401, 403) and "being terminated" not in str(error):
                raise
            said = budget_of(error) if error.status == 429 else str(error)
            self.later[about["uid"]] = (self.clock() + error.retry_after, said)
            return said
        self.later.pop(about["uid"], None)
        return "it is asked to end"


# --- the official client --------------------------------------------------------------------------------------------


class OfficialClient:
    """The Api by the official client. `kubeconfig` "" = its defaults, or the service account inside a cluster."""

    def __init__(self, kubeconfig: str = "", context: str = "", timeout_s: float = 30.0) -> None:
        self.kubeconfig, self.context, self.timeout_s = kubeconfig, context, timeout_s
        self._core: Any = None
        self._eviction = ""

    def node(self, name: str) -> Object:
        """See Api."""
        return self._ask("read_node", name)

    def patch_node(self, name: str, patch: Object) -> Object:
        """See Api."""
        return self._ask("patch_node", name, dict(patch), _content_type="application/merge-patch+json")

    def pods(self, node: str) -> Sequence[Object]:
        """See Api. Read in pages."""
        found: list[Object] = []
        more = None
        while True:
            page = self._ask(
                "list_pod_for_all_namespaces", field_selector=f"spec.nodeName={node}", limit=500, _continue=more
            )
            found += page["items"]
            more = (page.get("metadata") or {}).get("continue")
            if not more:
                return found

    def evict(self, namespace: str, name: str, uid: str) -> None:
        """See Api. The version is the one that the server offers: policy/v1 since 1.22, before that policy/v1beta1."""
        from kubernetes import client

        if not self._eviction:
            try:
                rows = self._ask("get_api_resources")["resources"]
            except ApiError as error:
                if error.status != 404:
                    raise
                rows = ()
            found = next((row for row in rows if row["name"] == "pods/eviction"), None)
            if found is None:
                raise FleetError(
                    "this Kubernetes has no eviction of pods", hint="kubectl api-resources", slug="kubernetes-failed"
                )
            self._eviction = f"{found.get('group') or 'policy'}/{found.get('version') or 'v1'}"
        body = client.V1Eviction(
            api_version=self._eviction,
            kind="Eviction",
            metadata=client.V1ObjectMeta(name=name, namespace=namespace),
            delete_options=client.V1DeleteOptions(preconditions=client.V1Preconditions(uid=uid)),
        )
        self._ask("create_namespaced_pod_eviction", name, namespace, body)

    def _connected(self) -> Any:
        if self._core is None:
            try:
                from kubernetes import client, config
            except ImportError as error:
                raise FleetError(
                    "the Kubernetes client is not installed", hint="pip install 'accelfleet[kubernetes]'",
                    slug="kubernetes-no-client",
                ) from error  # fmt: skip
            settings = client.Configuration()
            try:
                load: Any = config  # half of it has no types
                if self.kubeconfig or self.context:
                    load.load_kube_config(self.kubeconfig or None, self.context or None, settings, persist_config=False)
                else:
                    load.load_config(client_configuration=settings)
            except (config.ConfigException, OSError, TypeError) as error:
                raise FleetError(
                    "no usable kubeconfig", where=self.kubeconfig, cause=str(error)[:300],
                    hint="set kubeconfig and kube_context", slug="kubernetes-no-config",
                ) from error  # fmt: skip
            settings.retries = 0  # how often and when is decided above
            self._core = client.CoreV1Api(client.ApiClient(settings))
        return self._core

    def _ask(self, call: str, *words: Any, **more: Any) -> Object:
        """The JSON of an answer, as it came: other releases of Kubernetes have other fields."""
        core = self._connected()
        import urllib3.exceptions
        from kubernetes.client.exceptions import ApiException

        try:
            answer = getattr(core, call)(*words, **more, _preload_content=False, _request_timeout=self.timeout_s)
            status, headers, text = answer.status, answer.headers, answer.data
        except ApiException as error:
            status, headers, text = error.status or 0, error.headers or {}, (error.body or "")
            if not status:
                raise _unreachable(str(error.reason)) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _unreachable(str(error)) from error
        try:
            body = json.loads(text) if text else {}
        except ValueError:
            body = {"message": str(text[:200])}
        if not isinstance(body, dict):
            body = {"message": str(text[:200])}
        if not 200 <= status < 300:
            raise ApiError(status, body, _seconds(headers.get("Retry-After")))
        return body


def _unreachable(cause: str) -> FleetError:
    return FleetError(
        "the Kubernetes API server does not answer", cause=cause[:300], hint="kubectl get nodes",
        slug="kubernetes-unreachable",
    )  # fmt: skip


def _seconds(text: str | None) -> float:
    return float(text) if text and text.isdigit() else 0.0
