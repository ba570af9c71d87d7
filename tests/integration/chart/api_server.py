"""As much of a Kubernetes API as Helm asks before it installs something: which kinds there are, and the secrets that exist.

Nothing is ever created; an installation is a dry run.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.threaded_server import answering

_OWNED = {
    "labels": {"app.kubernetes.io/managed-by": "Helm"},
    "annotations": {"meta.helm.sh/release-name": "demo", "meta.helm.sh/release-namespace": "prod"},
}
_MISSING = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
_NO_SCHEMAS = "/openapi/v2"
"""An empty message, for lack of schemas: other tests check these."""
_GROUPS = {
    "v1": {
        "ConfigMap": "configmaps",
        "Secret": "secrets",
        "Service": "services",
        "ServiceAccount": "serviceaccounts",
        "Pod": "pods",
    },
    "apps/v1": {"Deployment": "deployments", "StatefulSet": "statefulsets"},
    "policy/v1": {"PodDisruptionBudget": "poddisruptionbudgets"},
    "networking.k8s.io/v1": {"NetworkPolicy": "networkpolicies"},
}


@contextmanager
def api_server(secrets: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Serves secrets, by name, with their data in Base64; yields the address."""
    answers = _discovery() | {
        f"/api/v1/namespaces/prod/secrets/{name}": {
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "prod"} | _OWNED, "data": data,
        } for name, data in secrets.items()
    }  # fmt: skip

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            body = b"" if path == _NO_SCHEMAS else json.dumps(answers.get(path, _MISSING)).encode()
            self.send_response(200 if path in answers or path == _NO_SCHEMAS else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with answering(Handler) as address:
        yield address


def _discovery() -> dict[str, Any]:
    found: dict[str, Any] = {
        "/version": {"major": "1", "minor": "33", "gitVersion": "v1.33.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    }
    for version, kinds in _GROUPS.items():
        resources = [
            {"name": name, "singularName": "", "namespaced": True, "kind": kind, "verbs": ["get", "list", "create", "patch"]}
            for kind, name in kinds.items()
        ]
        path = "/api/v1" if version == "v1" else f"/apis/{version}"
        found[path] = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}
        if version != "v1":
            one = {"groupVersion": version, "version": version.rpartition("/")[2]}
            group = {"name": version.partition("/")[0], "versions": [one], "preferredVersion": one}
            found["/apis"]["groups"].append(group)
    return found
