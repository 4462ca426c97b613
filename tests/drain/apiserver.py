"""A small Kubernetes API server for tests: nodes, pods, evictions under disruption budgets, and discovery.

What it must answer is held against real kubectl binaries in test_kubernetes.py. Pods end when they are told to and
their controller makes them again elsewhere.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
NAMED = r"[a-z0-9.-]+"


@dataclass
class Budget:
    """How many of the pods with that label `app` may be missing now. `settling` = not yet counted by its controller."""

    name: str
    app: str
    allowed: int
    settling: bool = False


@dataclass
class State:
    """Everything the server knows, under one lock. `requests` is what it was asked; `conflicts` = 409s to come."""

    nodes: dict[str, Object] = field(default_factory=dict)
    pods: dict[tuple[str, str], Object] = field(default_factory=dict)
    budgets: list[Budget] = field(default_factory=list)
    requests: list[tuple[str, str, Object]] = field(default_factory=list)
    conflicts: list[Object] = field(default_factory=list)
    refusals: dict[str, int] = field(default_factory=dict)  # method + path -> status, once
    refusal: str = "as the test wishes"
    version: int = 100
    forgets: int = 0  # so many times the next page is too late
    down: int = 0  # the status of every answer
    linger: bool = False  # pods stay in deletion until `finish`


class ApiServer:
    """Started on construction on a free port of loopback. `policy`: the versions of the eviction API it offers."""

    def __init__(self, policy: tuple[str, ...] = ("v1", "v1beta1")) -> None:
        self.policy = policy
        self.state = State()
        self.lock = threading.RLock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing on stderr."""

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                raw = self.rfile.read(length) if length else b""
                body = json.loads(raw) if raw else {}
                status, answer, extra = outer.answer(self.command, self.path, body)
                text = json.dumps(answer).encode()
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **extra}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = _serve

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def stop(self) -> None:
        """No more answers."""
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)

    def kubeconfig(self, path: Path) -> Path:
        """A kubeconfig that names this server."""
        cluster = {"name": "test", "cluster": {"server": self.url}}
        context = {"name": "test", "context": {"cluster": "test", "user": "test"}}
        user = {"name": "test", "user": {}}
        path.write_text(
            json.dumps({
                "apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [context], "users": [user],
                "current-context": "test",
            })
        )  # fmt: skip
        return path

    # --- what tests set up ---

    def add_node(self, name: str, *, unschedulable: bool = False, ready: bool = True) -> None:
        """A node."""
        spec = {"unschedulable": True} if unschedulable else {}
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec}
        self.state.nodes[name] = self._stamped({**node, "status": {"conditions": conditions}})

    def add_pod(
        self, name: str, node: str = "n1", *, owner: str = "ReplicaSet", app: str = "", phase: str = "Running",
        mirror: bool = False, emptydir: bool = False, namespace: str = "work", job: str = "",
    ) -> str:  # fmt: skip
        """A pod; its uid. `owner` "" = it has no controller; `app` and `job` are labels."""
        labels = {"app": app, **({"job": job} if job else {})}
        metadata: Object = {"name": name, "namespace": namespace, "labels": labels}
        if owner:
            metadata["ownerReferences"] = [
                {"apiVersion": "apps/v1", "kind": owner, "name": f"{name}-owner", "uid": "0", "controller": True}
            ]
        if mirror:
            metadata["annotations"] = {"kubernetes.io/config.mirror": "x"}
        spec = {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}
        if emptydir:
            spec["volumes"] = [{"name": "scratch", "emptyDir": {}}]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase}}
        stamped = self._stamped(pod)
        self.state.pods[namespace, name] = stamped
        return str(stamped["metadata"]["uid"])

    def finish(self, name: str, namespace: str = "work") -> None:
        """The pod has ended."""
        with self.lock:
            self.state.pods.pop((namespace, name), None)

    def ended(self, name: str, phase: str = "Succeeded", namespace: str = "work") -> None:
        """The pod has run to its end and is still listed."""
        with self.lock:
            self.state.pods[namespace, name]["status"]["phase"] = phase

    def on(self, node: str) -> set[str]:
        """Names of the pods on a node."""
        with self.lock:
            return {name for (_, name), pod in self.state.pods.items() if pod["spec"].get("nodeName") == node}

    def asked(self, method: str, ending: str = "") -> list[tuple[str, str, Object]]:
        """The requests of a kind."""
        with self.lock:
            return [r for r in self.state.requests if r[0] == method and urlsplit(r[1]).path.endswith(ending)]

    def change(self, node: str, patch: Object) -> None:
        """What somebody else does to a node."""
        with self.lock:
            self._merged(self.state.nodes[node], patch)

    # --- answering ---

    def answer(self, method: str, target: str, body: Object) -> tuple[int, Any, dict[str, str]]:
        """(status, document, headers) of a request."""
        url = urlsplit(target)
        with self.lock:
            self.state.requests.append((method, target, body))
            if self.state.down:
                return status(self.state.down, "as the test wishes")
            refused = self.state.refusals.pop(f"{method} {url.path}", None)
            if refused:
                return status(refused, self.state.refusal)
            if method == "GET" and (found := self._discovery(url.path.rstrip("/"))) is not None:
                return 200, found, {}
            if match := re.fullmatch(rf"/api/v1/nodes/({NAMED})", url.path):
                return self._node(method, match[1], body)
            if url.path == "/api/v1/nodes" and method == "GET":
                return self._page("NodeList", list(self.state.nodes.values()), parse_qs(url.query))
            if url.path == "/api/v1/pods" and method == "GET":
                return self._pods(parse_qs(url.query))
            if match := re.fullmatch(rf"/apis/apps/v1/namespaces/({NAMED})/daemonsets/({NAMED})", url.path):
                about = {"name": match[2], "namespace": match[1]}
                return 200, {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": about, "spec": {}}, {}
            if match := re.fullmatch(rf"/api/v1/namespaces/({NAMED})/pods/({NAMED})(/eviction)?", url.path):
                return self._pod(method, match[1], match[2], bool(match[3]), body)
        return status(404, f"no {url.path}", "NotFound")

    def _discovery(self, path: str) -> Object | None:
        groups = [group("apps", ("v1",)), group("policy", self.policy)]
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        if path == "/version":
            minor = "32" if "v1" in self.policy else "20"
            return {"major": "1", "minor": minor, "gitVersion": f"v1.{minor}.0"}
        for one in groups:
            if path == f"/apis/{one['name']}":
                return one
        if path == "/api/v1":
            eviction = resource("pods/eviction", "Eviction", True, ["create"])
            return resources("v1", [
                resource("nodes", "Node", False, ["get", "list", "patch"]),
                resource("pods", "Pod", True, ["get", "list", "delete"]),
                {**eviction, "group": "policy", "version": self.policy[0]},
            ])  # fmt: skip
        if path == "/apis/apps/v1":
            return resources("apps/v1", [resource("daemonsets", "DaemonSet", True, ["get"])])
        if path in {f"/apis/policy/{version}" for version in self.policy}:
            rows = [resource("poddisruptionbudgets", "PodDisruptionBudget", True, ["get", "list"])]
            return resources(path.removeprefix("/apis/"), rows)
        return None

    def _node(self, method: str, name: str, body: Object) -> tuple[int, Any, dict[str, str]]:
        node = self.state.nodes.get(name)
        if node is None:
            return status(404, f'nodes "{name}" not found', "NotFound")
        if method == "GET":
            return 200, node, {}
        if method != "PATCH":
            return status(405, f"no {method} of a node")
        if self.state.conflicts:
            self._merged(node, self.state.conflicts.pop(0))
        wanted = (body.get("metadata") or {}).get("resourceVersion")
        if wanted is not None and wanted != node["metadata"]["resourceVersion"]:
            return status(409, f'the node "{name}" has been modified', "Conflict")
        self._merged(node, body)
        return 200, node, {}

    def _pods(self, query: dict[str, list[str]]) -> tuple[int, Any, dict[str, str]]:
        field_, _, wanted = query.get("fieldSelector", [""])[0].partition("=")
        if field_ not in ("", "spec.nodeName"):
            return status(400, f"field selector {field_} is not known here", "BadRequest")
        try:
            chosen = selector(query.get("labelSelector", [""])[0])
        except ValueError as error:
            return status(400, f"unable to parse requirement: {error}", "BadRequest")
        found = [pod for pod in self.state.pods.values() if not field_ or pod["spec"].get("nodeName") == wanted]
        return self._page("PodList", [pod for pod in found if chosen(pod["metadata"].get("labels") or {})], query)

    def _page(self, kind: str, found: list[Object], query: dict[str, list[str]]) -> tuple[int, Any, dict[str, str]]:
        if "continue" in query and self.state.forgets:
            self.state.forgets -= 1
            return status(410, "The provided continue parameter is too old", "Expired")
        first, size = int(query.get("continue", ["0"])[0]), int(query.get("limit", ["0"])[0])
        page = found[first : first + size] if size else found[first:]
        about: Object = {"resourceVersion": str(self.state.version)}
        if size and first + size < len(found):
            about["continue"] = str(first + size)
        return 200, {"apiVersion": "v1", "kind": kind, "metadata": about, "items": page}, {}

    def _pod(
        self, method: str, namespace: str, name: str, eviction: bool, body: Object
    ) -> tuple[int, Any, dict[str, str]]:
        pod = self.state.pods.get((namespace, name))
        if pod is None:
            return status(404, f'pods "{name}" not found', "NotFound")
        if method == "GET" and not eviction:
            return 200, pod, {}
        if method == "POST" and eviction:
            return self._evict(namespace, name, pod, body)
        if method == "DELETE":
            self._end(namespace, name, pod)
            return 200, pod, {}
        return status(405, f"no {method} here")

    def _evict(self, namespace: str, name: str, pod: Object, body: Object) -> tuple[int, Any, dict[str, str]]:
        if body.get("kind") != "Eviction" or body.get("apiVersion") not in {f"policy/{v}" for v in self.policy}:
            return status(400, f"no kind {body.get('kind')} of {body.get('apiVersion')} is registered", "BadRequest")
        wanted = ((body.get("deleteOptions") or {}).get("preconditions") or {}).get("uid")
        if wanted is not None and wanted != pod["metadata"]["uid"]:
            return status(409, f"the uid in the precondition is {wanted}, the pod's is another", "Conflict")
        held = [b for b in self.state.budgets if b.app and b.app == pod["metadata"]["labels"].get("app")]
        if len(held) > 1:
            return status(500, "this pod has more than one disruption budget, which eviction cannot do")
        for budget in held:
            if budget.settling or budget.allowed < 1:
                why = "is still being counted" if budget.settling else "needs more healthy pods than there are"
                cause = {"reason": "DisruptionBudget", "message": f"The disruption budget {budget.name} {why}"}
                code, answer, _ = status(429, "the eviction would break a disruption budget", "TooManyRequests")
                answer["details"] = {"causes": [cause], **({"retryAfterSeconds": 10} if budget.settling else {})}
                return code, answer, {"Retry-After": "10"} if budget.settling else {}
            budget.allowed -= 1
        self._end(namespace, name, pod)
        return 201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, {}

    def _end(self, namespace: str, name: str, pod: Object) -> None:
        """The kubelet ends the pod; a StatefulSet makes one of the same name elsewhere, with another uid."""
        if self.state.linger:
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            return
        del self.state.pods[namespace, name]
        owners = pod["metadata"].get("ownerReferences") or [{}]
        if owners[0].get("kind") == "StatefulSet":
            self.add_pod(name, "elsewhere", owner="StatefulSet", namespace=namespace)

    def _stamped(self, thing: Object) -> Object:
        self.state.version += 1
        about = {"uid": str(uuid.uuid4()), **thing["metadata"], "resourceVersion": str(self.state.version)}
        return {**thing, "metadata": {**about, "creationTimestamp": "2026-01-01T00:00:00Z"}}

    def _merged(self, thing: Object, patch: Object) -> None:
        merge(thing, patch)
        self.state.version += 1
        thing["metadata"]["resourceVersion"] = str(self.state.version)


def selector(text: str) -> Callable[[Object], bool]:
    """What a label selector matches. ValueError where it is none.

    https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
    """
    parts = [part.strip() for part in re.split(r",(?![^(]*\))", text)] if text.strip() else []
    tests = [_requirement(part) for part in parts]
    return lambda labels: all(test(labels) for test in tests)


def _requirement(part: str) -> Callable[[Object], bool]:
    key = r"[A-Za-z0-9]([A-Za-z0-9_.-]*/)?[A-Za-z0-9_.-]*"
    if match := re.fullmatch(rf"(?P<key>{key})\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)", part):
        name, values = match["key"], {value.strip() for value in match["values"].split(",")}
        wanted = match["op"] == "in"
        return lambda labels: (labels.get(name) in values) is wanted
    if match := re.fullmatch(rf"(?P<key>{key})\s*(?P<op>==|=|!=)\s*(?P<value>[A-Za-z0-9_.-]*)", part):
        name, value, equal = match["key"], match["value"], match["op"] != "!="
        return lambda labels: (labels.get(name) == value) is equal
    if match := re.fullmatch(rf"(?P<no>!?)(?P<key>{key})", part):
        name, there = match["key"], not match["no"]
        return lambda labels: (name in labels) is there
    raise ValueError(f"{part!r}")


def merge(into: Object, patch: Object) -> None:
    """RFC 7386, which a strategic merge patch of what is patched here also is."""
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict):
            if not isinstance(into.get(key), dict):
                into[key] = {}
            merge(into[key], value)
        else:
            into[key] = value


def status(code: int, message: str, reason: str = "") -> tuple[int, Object, dict[str, str]]:
    """A Status document of a refusal."""
    about = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return code, {**about, "message": message, "reason": reason, "code": code}, {}


def group(name: str, versions: tuple[str, ...]) -> Object:
    """An APIGroup."""
    rows = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": rows, "preferredVersion": rows[0]}


def resource(name: str, kind: str, namespaced: bool, verbs: list[str]) -> Object:
    """A row of an APIResourceList."""
    return {"name": name, "singularName": "", "namespaced": namespaced, "kind": kind, "verbs": verbs}


def resources(version: str, rows: list[Object]) -> Object:
    """An APIResourceList."""
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": rows}
