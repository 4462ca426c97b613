"""The Kubernetes API by the official client: the only module that knows it, and imports it when it is used.

Answers are taken as JSON, not as the client's classes: other releases of Kubernetes have other fields.
https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fleet.core.errors import FleetError
from fleet.kubernetes import ApiError, Object

PAGE = 500  # as kubectl asks


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

    def nodes(self) -> Sequence[Object]:
        """See Api. Read in pages."""
        return self._listed("list_node")

    def pods(self, node: str, selector: str = "") -> Sequence[Object]:
        """See Api. Read in pages."""
        wanted = {"label_selector": selector} if selector else {}
        return self._listed("list_pod_for_all_namespaces", field_selector=f"spec.nodeName={node}", **wanted)

    def _listed(self, call: str, **wanted: str) -> Sequence[Object]:
        """All pages; from the start again when the server has forgotten where we were (410)."""
        for last in (False, True):
            found: list[Object] = []
            more = None
            try:
                while True:
                    page = self._ask(call, limit=PAGE, **({"_continue": more} if more else {}), **wanted)
                    found += page["items"]
                    more = (page.get("metadata") or {}).get("continue")
                    if not more:
                        return found
            except ApiError as error:
                if error.status != 410 or last:
                    raise
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
