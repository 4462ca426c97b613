"""Drain by Kubernetes: cordon with our annotation, evict through the eviction API, never delete.

A node that is cordoned without our annotation belongs to somebody else. A disruption budget that forbids an eviction
is waited for as long as its answer says. Pods that eviction would lose for good (no controller, or data in an
emptyDir) need a setting, and pods that a selector names are let run to their end before any is evicted. An API server
that cannot be asked says nothing about any node.
https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from fleet.core.errors import FleetError
from fleet.core.model import Json, Node
from fleet.drain import Drained, marked, ours, outage, unreachable

LABEL = "kubernetes_node"  # the label of a node whose name in Kubernetes is not its name here
BY = "accelfleet/cordoned-by"  # annotation: our token
AT = "accelfleet/cordoned-at"  # annotation: seconds since the epoch
MIRROR = "kubernetes.io/config.mirror"
OF_THE_POD = ("being terminated", "admission webhook")  # refusals with 403 that are not about our account
TRIES = 5  # of a change that somebody else came before

Object = Mapping[str, Any]
RIGHTS = "give the controller's account nodes get/list/patch, pods list, pods/eviction create"


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

    def nodes(self) -> Sequence[Object]:
        """Every Node."""
        ...

    def patch_node(self, name: str, patch: Object) -> Object:
        """Merge a patch into a Node; 409 when its resourceVersion is not that of the patch."""
        ...

    def pods(self, node: str, selector: str = "") -> Sequence[Object]:
        """The pods bound to a node, of all namespaces; with a label selector those that it matches."""
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
    name = node["metadata"]["name"]
    return Drained("failed", _by(node), foreign=True, next_action=f"kubectl describe node {name}")


def _by(node: Object) -> str:
    return f"cordoned by {_annotations(node).get(BY) or 'somebody else'}"


def away(node: Object) -> str:
    """Why it serves nothing, "" when it does or when a rollout of fleet has it out."""
    if cordoned(node):
        return "" if marked(str(_annotations(node).get(BY, ""))) else _by(node)
    if ready(node):
        return ""
    conditions = (node.get("status") or {}).get("conditions") or []
    said: Object = next((c for c in conditions if c.get("type") == "Ready"), {})
    why = f", {said['reason']}" if said.get("reason") else ""
    return f"its Ready condition is {said.get('status') or 'missing'}{why}"


def cordoned_at(node: Object) -> float:
    """When we cordoned it, in epoch seconds; 0 = long ago, where the note is gone or was changed."""
    try:
        return float(_annotations(node).get(AT) or 0)
    except ValueError:
        return 0.0


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


def _full_name(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


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
    """A Drain and a Census. `clock`: epoch seconds. `wait_selector`: labels of pods that are let run to their end.

    `later` remembers by uid until when an eviction need not be asked again.
    """

    api: Api
    clock: Callable[[], float]
    consent: Consent = Consent()
    deadline_s: float = 3600.0
    wait_selector: str = ""
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

    def away(self, nodes: Sequence[Node]) -> dict[str, str]:
        """A Census: one list of all nodes, however many are asked for."""
        try:
            found = {node["metadata"]["name"]: away(node) for node in self.api.nodes()}
        except FleetError as error:
            raise unreachable("list of nodes", f"{error.what} ({error.cause})", error.hint) from error
        except ApiError as error:
            hint = RIGHTS if error.status in (401, 403) else "kubectl get nodes"
            raise unreachable("list of nodes", f"the API server says {error}", hint) from error
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            said = f"the answer is not understood: {type(error).__name__} {error}"
            raise unreachable("list of nodes", said, "kubectl get nodes -o json") from error
        said_of = {node.name: found.get(node.labels.get(LABEL, node.name), "") for node in nodes}
        return {name: reason for name, reason in said_of.items() if reason}

    def _told(self, node: Node, ask: Callable[[str], Drained]) -> Drained:
        """What becomes of refusals. Those of the server or of our account are an outage, not the node's failure."""
        name = node.labels.get(LABEL, node.name)
        try:
            return ask(name)
        except FleetError as error:
            said = f"{error.slug}: {error.what}" + (f" ({error.cause})" if error.cause else "")
            return outage(said, error.hint)
        except ApiError as error:
            if error.status in (401, 403):
                return outage(f"kubernetes-denied: {error}", RIGHTS)
            if error.status == 429 or error.status >= 500:
                return outage(f"kubernetes-busy: the API server says {error}", "kubectl get --raw /readyz?verbose")
            if error.status == 404:
                action = f"kubectl get node {name}; fleet node label {node.name} {LABEL}=NAME"
                said = f"kubernetes-unknown-node: Kubernetes has no node {name!r}"
                return Drained("failed", said, next_action=action)
            return Drained("failed", f"kubernetes-failed: {error}", next_action=f"kubectl describe node {name}")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            said = f"kubernetes-garbled: the answer is not understood: {type(error).__name__} {error}"
            return outage(said, f"kubectl get node {name} -o json")

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
        left = self._awaited(name)
        if left:  # as long as one of these runs nothing is evicted: a job may need its neighbours on the node
            return self._not_empty(node, f"{len(left)} pods are let run to their end", left)
        for pod in self.api.pods(name):
            if not stays(pod):
                left[_full_name(pod)] = self._evicted(pod)
        return self._not_empty(node, f"{len(left)} pods left", left) if left else Drained("done")

    def _awaited(self, name: str) -> dict[str, str]:
        """Pods of the selector that have not ended, and what they are at."""
        if not self.wait_selector:
            return {}
        try:
            found = self.api.pods(name, self.wait_selector)
        except ApiError as error:
            if error.status != 400:
                raise
            raise FleetError(
                "the API server does not understand drain_wait_selector", where=self.wait_selector,
                cause=str(error)[:300], hint=f"kubectl get pods -A -l '{self.wait_selector}'; mend drain_wait_selector",
                slug="kubernetes-bad-selector",
            ) from error  # fmt: skip
        return {
            _full_name(pod): str((pod.get("status") or {}).get("phase") or "Unknown") for pod in found if not stays(pod)
        }

    def _not_empty(self, node: Object, what: str, left: Mapping[str, str]) -> Drained:
        """Pods are there: ask again, or after the deadline another time."""
        name = node["metadata"]["name"]
        shown = [f"{pod}: {why}" for pod, why in list(left.items())[:5]]
        said = f"{what}: " + "; ".join(shown) + ("; …" if len(left) > 5 else "")
        waited = self.clock() - cordoned_at(node)
        if waited <= self.deadline_s:
            return Drained("waiting", said)
        return Drained(
            "failed", f"{said}; after {waited:.0f} s, the limit is {self.deadline_s:.0f} s", revisit=True,
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
            if error.status in (401, 403) and not any(mark in str(error) for mark in OF_THE_POD):
                raise
            said = budget_of(error) if error.status == 429 else str(error)
            self.later[about["uid"]] = (self.clock() + error.retry_after, said)
            return said
        self.later.pop(about["uid"], None)
        return "it is asked to end"
