"""No value of the chart is without effect: another one changes what is rendered, and the result is what Kubernetes takes."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from tests.integration.chart import charts
from tests.integration.chart.charts import Answer, ask

pytestmark = [
    pytest.mark.real,
    pytest.mark.together,
    pytest.mark.skipif(not charts.is_there(), reason="Helm's engine is not installed: make .venv-helm/.made"),
]

_TEXT = "sample"
_PEERS = [{"podSelector": {"matchLabels": {"a": "b"}}}]
_REPLACED = [{"targetLabel": "a", "replacement": "b"}]
_METRIC = {"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 5}}}
_HOSTS = [{"host": "other.example.com", "paths": [{"path": "/a", "pathType": "Exact"}, {"path": "/b"}]}]
_HEADER = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"remove": ["a"]}}

_GROUPS = {"one": {"workflows": ["app.py:classify"]}}
_SERVED: dict[str, Any] = {"groups": _GROUPS, "gateway": {"allowOpen": True}}
_ROUTES: dict[str, Any] = {"enabled": True, "parentRefs": [{"name": "public"}]}
_NETWORK: dict[str, Any] = {
    "allowOpen": True, "ingress": {"enabled": True, "grpc": {"enabled": True}}, "routes": _ROUTES,
    "tenants": {"keysFile": "[[tenant]]"}, "tls": {"certificate": "PEM", "key": "PEM", "clientRoots": True, "roots": "PEM"},
}  # fmt: skip
_MONITORS = {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}
_CHECKED_ELSEWHERE = ("pods", "workloads", "services", "gateway.allowOpen")
"""`test_options` looks at what all components have; `allowOpen` only allows what would be refused (`test_chart`)."""
_KEDA = {"enabled": True, "prometheus": {"serverAddress": "http://p"}, "queuedCalls": 9, "forecast": {"requestsPerSecond": 5}}
_RAY: dict[str, Any] = {
    "groups": _GROUPS, "ray": {"kind": "RayCluster", "faultTolerance": {"enabled": True}}, "monitoring": _MONITORS,
    "networkPolicy": {"egress": {"enabled": True}}, "otlp": {"headersSecret": "otel"}, "gateway": _NETWORK,
}  # fmt: skip
_HOST = {"host": "r", "existingPasswordSecret": "p", "tls": {"enabled": True, "caSecret": "c"}}
_ELSEWHERE = _RAY | {"redis": {"enabled": False, "external": _HOST}}
_BY_URL = {"groups": _GROUPS, "redis": {"enabled": False, "external": {"url": "redis://x"}}}
_BY_SECRET = {"groups": _GROUPS, "redis": {"enabled": False, "external": {"existingSecret": "s"}}}

# Values in which others have an effect, by the beginnings of their paths; the longest counts.
_BASES: dict[str, dict[str, Any]] = {
    "": _RAY,
    "mode": {},
    "groups": {},
    "workflows": {"groups": _GROUPS, "workflows": {"from": "persistentVolumeClaim", "persistentVolumeClaim": "c"}},
    "workflows.configMap": {"groups": _GROUPS, "workflows": {"from": "configMap", "configMap": {"files": {"app.py": "x"}}}},
    "workflows.volume": {"groups": _GROUPS, "workflows": {"from": "volume", "volume": {"emptyDir": {}}}},
    "gateway.replicas": {},
    "gateway.autoscaling": {"gateway": {"autoscaling": {"enabled": True}}},
    "gateway.autoscaling.enabled": {},
    "gateway.keda": {"gateway": {"keda": _KEDA}},
    "gateway.keda.enabled": {"gateway": {"keda": _KEDA | {"enabled": False}}},
    "redis.external": _ELSEWHERE,
    "redis.external.url": _BY_SECRET,
    "redis.external.key": _BY_SECRET,
    "redis.external.existingSecret": _BY_URL,
    "redis.enabled": _RAY | {"redis": {"enabled": False, "external": {"host": "x"}}},
    "redis.podDisruptionBudget": {},
    "ray.kind": {},
    "ray.address": {"ray": {"kind": "external", "address": "a:1"}, "networkPolicy": {"enabled": False}},
    "ray.worker": {"ray": {"kind": "RayCluster", "workerGroups": {"cpu": {}}}},
    "ray.serveConfigV2": {"ray": {"kind": "RayService", "serveConfigV2": "x: 1"}},
    "ray.faultTolerance": _ELSEWHERE,
    "ray.faultTolerance.enabled": {"ray": {"kind": "RayCluster"}},
    "serviceAccount.name": {},
    "monitoring.prometheusRule": {"monitoring": {"prometheusRule": {"enabled": True}}},
    "monitoring.dashboards": {"monitoring": {"dashboards": {"enabled": True}}},
}  # fmt: skip

# Values that are neither the default nor what `_another` makes of it.
_OTHERS: dict[str, Any] = {
    "mode": "cells",
    "groups": {"two": {"workflows": ["b.py:f"], "replicas": 5}},
    "settings.telemetry.logs.format": "console", "settings.telemetry.logs.level": "debug",
    "gateway.service.port": 80, "workflows.path": "/code", "workflows.from": "image", "workflows.configMap.files": {"b.py": "y"},
    "workflows.volume": {"nfs": {"server": "s", "path": "/"}},
    "global": {"imageRegistry": "r.example.com"},
    "image.digest": "sha256:" + "1" * 64, "image.pullPolicy": "Always", "image.pullSecrets": [{"name": "s"}],
    "redis.image.digest": "sha256:" + "1" * 64, "redis.image.pullPolicy": "Always", "redis.image.pullSecrets": [{"name": "s"}],
    "gateway.ingress.hosts": _HOSTS, "gateway.ingress.tls": [{"secretName": "s"}],
    "gateway.ingress.grpc.hosts": _HOSTS, "gateway.ingress.grpc.tls": [{"secretName": "s"}],
    "gateway.routes.parentRefs": [{"name": "other"}], "gateway.routes.hostnames": ["a.example.com"],
    "gateway.routes.matches": [{"path": {"type": "PathPrefix", "value": "/v2"}}], "gateway.routes.filters": [_HEADER],
    "gateway.routes.timeouts": {"request": "60s"},
    "gateway.routes.additionalRules": [{"backendRefs": [{"name": "x", "port": 1}]}],
    "gateway.routes.grpc.hostnames": ["b.example.com"], "gateway.routes.grpc.filters": [_HEADER],
    "gateway.routes.grpc.matches": [{"method": {"service": "inference.GRPCInferenceService"}}],
    "gateway.autoscaling.metrics": [_METRIC], "gateway.autoscaling.behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}},
    "gateway.keda.fallback": {"failureThreshold": 2, "replicas": 3},
    "gateway.keda.behavior": {"scaleUp": {"selectPolicy": "Max"}},
    "gateway.keda.prometheus.serverAddress": "https://q", "gateway.keda.prometheus.authenticationRef": {"name": "a"},
    "gateway.keda.forecast.window": "5m", "gateway.keda.triggers": [{"type": "cron", "metadata": {"timezone": "UTC"}}],
    "redis.sharedMemory.sizeLimit": "5Mi", "redis.persistence.size": "9Gi", "redis.persistence.accessModes": ["ReadWriteMany"],
    "redis.external.url": "redis://y", "ray.address": "b:2", "ray.version": "2.61.0", "ray.upgradeStrategy": "Recreate",
    "ray.kind": "RayCluster", "ray.serveConfigV2": "y: 2", "ray.autoscaler.upscalingMode": "Aggressive",
    "ray.faultTolerance.redisAddress": "r:2", "ray.faultTolerance.redisPassword": {"value": "x"},
    "ray.autoscaler.image": {"tag": "9"}, "ray.autoscaler.env": [{"name": "A", "value": "b"}],
    "ray.head.sharedMemory.sizeLimit": "5Mi", "ray.worker.sharedMemory.sizeLimit": "5Mi",
    "ray.workerGroups": {"big": {"gpus": 2, "maxReplicas": 9}},
    "networkPolicy.clients": _PEERS, "networkPolicy.monitoring": _PEERS, "networkPolicy.rayNodes": _PEERS,
    "networkPolicy.operator": _PEERS, "networkPolicy.egress.to": [{"to": _PEERS}],
    "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-x"}}],
} | {
    f"monitoring.{monitor}.{option}": value for monitor in ("serviceMonitor", "podMonitor") for option, value in {
        "interval": "30s", "scrapeTimeout": "5s", "relabelings": _REPLACED, "metricRelabelings": _REPLACED,
        "podTargetLabels": ["team"],
    }.items()
}  # fmt: skip


def _leaves(values: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _another(path: str, default: Any) -> Any:
    """Returns a value that is not the default."""
    if path in _OTHERS:
        return _OTHERS[path]
    if ".resources." in path:
        return "250m" if path.endswith("cpu") else "6Gi"
    match default:
        case bool():
            return not default
        case int():
            return default + 1
        case str():
            return _TEXT
        case {}:
            return {"a": "b"}
        case _:
            raise AssertionError(f"{path}: say what it may be instead of {default!r}")


def _base(path: str) -> dict[str, Any]:
    return _BASES[max((start for start in _BASES if not start or f"{path}.".startswith(f"{start}.")), key=len)]


def _changed(base: dict[str, Any], path: str, default: Any) -> dict[str, Any]:
    """Returns the values of a base, with another one; where the base has one that is not the default, this is taken away."""
    values = copy.deepcopy(base)
    *folders, last = path.split(".")
    holder = values
    for folder in folders:
        holder = holder.setdefault(folder, {})
    holder[last] = _another(path, default)
    if path == "redis.external.url":
        del holder["existingSecret"]
    elif path == "redis.external.existingSecret":
        del holder["url"]
    elif path == "redis.enabled":
        holder |= {"enabled": True, "external": {}}
    elif path == "gateway.keda.enabled" or (isinstance(holder[last], bool) and _has(base, path)):
        holder[last] = not _value(base, path)
    return values


def _value(values: Any, path: str) -> Any:
    for key in path.split("."):
        values = values.get(key, {})
    return values


def _has(values: Any, path: str) -> bool:
    return isinstance(_value(values, path), bool)


@pytest.mark.parametrize("part", ["gateway", "ray", "redis", "monitoring", ""])
def test_no_value_is_without_effect_and_what_is_rendered_stays_valid(part: str) -> None:
    defaults = yaml.safe_load((charts.CHART / "values.yaml").read_text())
    parts = ("gateway", "ray", "redis", "monitoring") if not part else ()
    leaves = [
        (path, default) for path, default in _leaves(defaults, "")
        if (path.startswith(f"{part}.") if part else not path.startswith(parts)) and not path.startswith(_CHECKED_ELSEWHERE)
    ]  # fmt: skip
    bases: list[dict[str, Any]] = []
    for path, _ in leaves:
        if _base(path) not in bases:
            bases.append(_base(path))
    changed = [_changed(_base(path), path, default) for path, default in leaves]
    answers = ask([*bases, *changed], versions=[charts.NEW], lint=False)
    before = answers[: len(bases)]
    assert [answer.refused for answer in before] == [""] * len(bases)
    problems = []
    for (path, _), answer in zip(leaves, answers[len(bases) :], strict=True):
        if answer.refused:
            problems.append(f"{path}: {answer.refused}")
        problems += [f"{path}: {problem}" for problem in answer.problems]
        if _effect(answer) == _effect(before[bases.index(_base(path))]):
            problems.append(f"{path} changes nothing")
    assert not problems, "\n".join(problems)


def _everywhere(values: Mapping[str, Any], path: str) -> Iterator[str]:
    for key, value in values.items():
        yield f"{path}{key}"
        if isinstance(value, dict):
            yield from _everywhere(value, f"{path}{key}.")


def test_a_default_that_is_taken_away_is_named_or_counts_as_not_set() -> None:
    defaults = yaml.safe_load((charts.CHART / "values.yaml").read_text())
    paths = [path for path in _everywhere(defaults, "") if not path.startswith("pods.podSecurityContext.")]  # Kubernetes' own
    values = []
    for path in paths:
        *folders, last = path.split(".")
        holder = changed = copy.deepcopy(_base(path))
        for folder in folders:
            holder = holder.setdefault(folder, {})
        holder[last] = None
        values.append(changed)
    problems = []
    named = 0
    for path, answer in zip(paths, ask(values, versions=[charts.NEW], lint=False), strict=True):
        folder, _, last = path.rpartition(".")
        if f"at '{'/' if folder else ''}{folder.replace('.', '/')}': missing property '{last}'" in answer.refused:
            named += 1
        elif answer.refused and "execution error at" not in answer.refused:  # that is `fail`, which says what to set
            problems.append(f"{path}: {answer.refused[-300:]}")
        problems += [f"{path}: {problem}" for problem in answer.problems]
    assert not problems, "\n".join(problems)
    assert named < len(paths) / 2


def _effect(answer: Answer) -> list[Any]:
    """Returns what was rendered, but for secrets that are made at random: of these, their names and keys."""
    return [
        document | {"data": sorted(document["data"])} if document["kind"] == "Secret" and "data" in document else document
        for document in answer.documents
    ]
