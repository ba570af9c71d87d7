"""What values may say of every pod, workload and service is there for every component; old names still work."""

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from helm.values_schema import chart_schema
from tests.integration.chart import charts
from tests.integration.chart.charts import Answer, Document, as_golden, ask

pytestmark = [
    pytest.mark.real,
    pytest.mark.together,
    pytest.mark.skipif(not charts.is_there(), reason="Helm's engine is not installed: make .venv-helm/.made"),
]

_DEFINITIONS = chart_schema()["$defs"]
_GROUPS = {"default": {"workflows": ["app.py:classify"]}}
_CLUSTER = {"groups": _GROUPS, "ray": {"kind": "RayCluster", "workerGroups": {"cpu": {}}}}
_HTTP = {"path": "/healthy", "port": 1234}
_TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
_NEAR = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_TERM]}}
_SPREAD = {
    "maxSkew": 2,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"a": "b"}},
}

# Options with a value each, and where a pod has it; a number in a path counts the entries of a list.
_CONTAINER = ("spec", "containers", 0)
_PODS: dict[str, tuple[Any, tuple[str | int, ...]]] = {
    "podLabels": ({"team": "vision"}, ("metadata", "labels")),
    "podAnnotations": ({"example.com/team": "vision"}, ("metadata", "annotations")),
    "podSecurityContext": ({"runAsUser": 1000680000, "runAsNonRoot": False}, ("spec", "securityContext")),
    "containerSecurityContext": ({"readOnlyRootFilesystem": False, "runAsGroup": 7}, (*_CONTAINER, "securityContext")),
    "serviceAccountName": ("mine", ("spec", "serviceAccountName")),
    "automountServiceAccountToken": (True, ("spec", "automountServiceAccountToken")),
    "terminationGracePeriodSeconds": (321, ("spec", "terminationGracePeriodSeconds")),
    "startupProbe": ({"httpGet": _HTTP, "failureThreshold": 77}, (*_CONTAINER, "startupProbe")),
    "livenessProbe": ({"exec": {"command": ["true"]}, "timeoutSeconds": 8}, (*_CONTAINER, "livenessProbe")),
    "readinessProbe": ({"successThreshold": 1, "periodSeconds": 9}, (*_CONTAINER, "readinessProbe")),
    "lifecycle": ({"preStop": {"exec": {"command": ["sleep", "1"]}}}, (*_CONTAINER, "lifecycle")),
    "extraEnv": ([{"name": "A", "value": "1"}], (*_CONTAINER, "env")),
    "extraEnvFrom": ([{"secretRef": {"name": "s"}}], (*_CONTAINER, "envFrom")),
    "extraVolumes": ([{"name": "v", "emptyDir": {}}], ("spec", "volumes")),
    "extraVolumeMounts": ([{"name": "v", "mountPath": "/v"}], (*_CONTAINER, "volumeMounts")),
    "initContainers": ([{"name": "first", "image": "busybox"}], ("spec", "initContainers")),
    "sidecars": ([{"name": "beside", "image": "busybox"}], ("spec", "containers")),
    "tmp": ({"sizeLimit": "3Gi", "medium": "Memory"}, ("spec", "volumes", 0, "emptyDir")),
    "sharedMemory": ({"sizeLimit": "8Mi", "medium": "HugePages"}, ("spec", "volumes", 1, "emptyDir")),
    "nodeSelector": ({"disk": "ssd"}, ("spec", "nodeSelector")),
    "tolerations": ([{"key": "gpu", "operator": "Exists"}], ("spec", "tolerations")),
    "affinity": ({"nodeAffinity": _NEAR}, ("spec", "affinity")),
    "topologySpreadConstraints": ([_SPREAD], ("spec", "topologySpreadConstraints")),
    "priorityClassName": ("high", ("spec", "priorityClassName")),
    "runtimeClassName": ("nvidia", ("spec", "runtimeClassName")),
    "schedulerName": ("volcano", ("spec", "schedulerName")),
    "hostNetwork": (True, ("spec", "hostNetwork")),
    "dnsPolicy": ("Default", ("spec", "dnsPolicy")),
    "dnsConfig": ({"nameservers": ["10.0.0.1"], "searches": ["example.com"]}, ("spec", "dnsConfig")),
    "hostAliases": ([{"ip": "10.0.0.2", "hostnames": ["a"]}], ("spec", "hostAliases")),
}  # fmt: skip
_WORKLOADS: dict[str, tuple[Any, tuple[str | int, ...]]] = {
    "strategy": ({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}, ("strategy",)),
    "revisionHistoryLimit": (0, ("revisionHistoryLimit",)),
    "minReadySeconds": (17, ("minReadySeconds",)),
    "extraArgs": (["--verbose"], ("template", *_CONTAINER, "args")),
    "podDisruptionBudget": ({"enabled": True, "minAvailable": "51%", "unhealthyPodEvictionPolicy": "AlwaysAllow"}, ()),
}  # fmt: skip
_SERVICES: dict[str, Any] = {
    "type": "LoadBalancer", "clusterIP": "10.1.2.3", "labels": {"a": "b"}, "annotations": {"c": "d"},
    "nodePorts": {}, "extraPorts": [{"name": "more", "port": 1, "targetPort": 2}],
    "externalTrafficPolicy": "Local", "internalTrafficPolicy": "Local", "trafficDistribution": "PreferClose",
    "externalIPs": ["10.9.9.9"], "loadBalancerClass": "example.com/lb", "loadBalancerIP": "10.8.8.8",
    "loadBalancerSourceRanges": ["10.0.0.0/8"], "allocateLoadBalancerNodePorts": False, "healthCheckNodePort": 31234,
    "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
    "ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"], "publishNotReadyAddresses": True,
}  # fmt: skip

# Where values say something of pods, and what the labels of these say.
_COMPONENTS: dict[str, dict[str, str]] = {
    "gateway": {"app.kubernetes.io/component": "gateway"},
    "orchestrator": {"app.kubernetes.io/component": "orchestrator"},
    "groups.default": {"app.kubernetes.io/component": "orchestrator"},
    "redis": {"app.kubernetes.io/component": "redis"},
    "ray.head": {"app.kubernetes.io/component": "ray-head"},
    "ray.worker": {"app.kubernetes.io/component": "ray-worker"},
    "ray.workerGroups.cpu": {"app.kubernetes.io/component": "ray-worker"},
    "pods": {"app.kubernetes.io/name": "dyorc"},
}


def _with(base: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Returns values with one more; where both are maps, joined."""
    values = copy.deepcopy(dict(base))
    *folders, last = path.split(".")
    holder = values
    for folder in folders:
        holder = holder.setdefault(folder, {})
    held = holder.get(last)
    holder[last] = held | value if isinstance(held, dict) and isinstance(value, dict) else value
    return values


def _at(document: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        document = document[key] if isinstance(key, int) else document.get(key, {})
    return document


def _has(actual: Any, expected: Any) -> bool:
    """Whether it is the same, or a map or list with at least the same."""
    if isinstance(expected, dict):
        return isinstance(actual, dict) and all(_has(actual.get(key), value) for key, value in expected.items())
    if isinstance(expected, list):
        return isinstance(actual, list) and all(item in actual for item in expected)
    return actual == expected


def _pods(answer: Answer) -> dict[str, Document]:
    """Returns the templates of all pods by their component."""
    pods = {}
    for document in answer.documents:
        match document["kind"]:
            case "Deployment" | "StatefulSet":
                templates = [document["spec"]["template"]]
            case "RayCluster":
                spec = document["spec"]
                templates = [group["template"] for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"])]
            case "Pod":
                templates = [{"metadata": document["metadata"], "spec": document["spec"]}]
            case _:
                templates = []
        pods |= {template["metadata"]["labels"]["app.kubernetes.io/component"]: template for template in templates}
    return pods


def test_every_component_takes_every_option_of_pods() -> None:
    known = {*_DEFINITIONS["pods"]["properties"], *_DEFINITIONS["containers"]["properties"]}
    assert {name for name in known if not _DEFINITIONS["pods"]["properties"].get(name, {}).get("deprecated")} == _PODS.keys()
    said = {option: value for option, (value, _) in _PODS.items()}
    before, *answers = ask([_CLUSTER, *(_with(_CLUSTER, path, said) for path in _COMPONENTS)], versions=[charts.NEW])
    for (path, labels), answer in zip(_COMPONENTS.items(), answers, strict=True):
        assert (answer.refused, answer.problems) == ("", []), path
        for component, pod in _pods(answer).items():
            if not labels.items() <= pod["metadata"]["labels"].items():
                assert pod == _pods(before)[component], f"{path} changes {component}"
                continue
            for option, (value, place) in _PODS.items():
                is_probe_of_a_test = component == "test" and option.endswith("Probe")
                is_own = path == "pods" and option == "sharedMemory"  # components have sizes of their own
                expected = {"medium": "HugePages"} if is_own else value
                assert _has(_at(pod, place), expected) or is_probe_of_a_test, f"{path}.{option} is missing in {component}"
            assert "httpGet" not in _at(pod, (*_CONTAINER, "livenessProbe")), "another handler replaces the chart's"


def test_what_a_component_says_wins_over_what_is_said_for_all() -> None:
    probe = {"enabled": False}
    values = _CLUSTER | {
        "pods": {
            "hostNetwork": True, "tolerations": [{"key": "a", "operator": "Exists"}], "podLabels": {"team": "all", "x": "y"},
            "podSecurityContext": {"runAsNonRoot": True}, "livenessProbe": probe,
        },
        "gateway": {
            "hostNetwork": False, "tolerations": [{"key": "b", "operator": "Exists"}], "podLabels": {"team": "own"},
            "podSecurityContext": {"runAsNonRoot": False}, "livenessProbe": {"enabled": True},
        },
    }  # fmt: skip
    (answer,) = ask([values], versions=[charts.NEW])
    assert (answer.refused, answer.problems) == ("", [])
    gateway, redis = _pods(answer)["gateway"], _pods(answer)["redis"]
    assert "hostNetwork" not in gateway["spec"]
    assert redis["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert [item["key"] for item in gateway["spec"]["tolerations"]] == ["a", "b"]
    assert gateway["metadata"]["labels"].items() >= {"team": "own", "x": "y"}.items()
    assert gateway["spec"]["securityContext"]["runAsNonRoot"] is False
    assert gateway["spec"]["securityContext"]["runAsUser"] == 10001
    assert "httpGet" in gateway["spec"]["containers"][0]["livenessProbe"]
    assert all("livenessProbe" not in _pods(answer)[name]["spec"]["containers"][0] for name in ("orchestrator", "ray-head"))


def test_every_workload_takes_every_option_of_workloads() -> None:
    assert _WORKLOADS.keys() == _DEFINITIONS["workloads"]["properties"].keys()
    said = {option: value for option, (value, _) in _WORKLOADS.items()}
    paths = {
        "gateway": ["gateway"], "orchestrator": ["orchestrator"], "groups.default": ["orchestrator"], "redis": ["redis"],
        "workloads": ["gateway", "orchestrator"],  # Redis says itself that it has no budget
    }  # fmt: skip
    answers = ask((_with(_CLUSTER, path, said) for path in paths), versions=[charts.NEW])
    for (path, components), answer in zip(paths.items(), answers, strict=True):
        assert (answer.refused, answer.problems) == ("", []), path
        for component in components:
            (spec,) = (
                document["spec"] for document in answer.documents
                if document["kind"] in ("Deployment", "StatefulSet")
                and document["metadata"]["labels"]["app.kubernetes.io/component"] == component
            )  # fmt: skip
            spec["strategy"] = spec.get("strategy", spec.get("updateStrategy"))
            for option, (value, place) in _WORKLOADS.items():
                assert not place or _has(_at(spec, place), value), f"{path}.{option}"
            name = spec["template"]["metadata"]["labels"].get("dyorc/group")
            budget = answer.one("PodDisruptionBudget", f"-{component}{f'-{name}' if name else ''}")["spec"]
            assert {key: budget[key] for key in budget if key != "selector"} == {
                "minAvailable": "51%", "unhealthyPodEvictionPolicy": "AlwaysAllow",
            }, path  # fmt: skip


def test_a_workload_that_is_recreated_has_no_numbers_of_a_rolling_update() -> None:
    (answer,) = ask([_CLUSTER | {"gateway": {"strategy": {"type": "Recreate"}}}], versions=[charts.NEW])
    assert answer.one("Deployment", "-gateway")["spec"]["strategy"] == {"type": "Recreate"}


def test_every_service_takes_every_option_of_services() -> None:
    assert _SERVICES.keys() == _DEFINITIONS["services"]["properties"].keys()
    node_ports = {"gateway": "grpc", "orchestrator": "operations", "redis": "redis", "ray.head": "dashboard"}
    base = _with(_CLUSTER, "gateway.allowOpen", True)
    values = [_with(base, f"{path}.service", _SERVICES | {"nodePorts": {port: 30123}}) for path, port in node_ports.items()]
    *answers, everywhere = ask([*values, _with(base, "services", _SERVICES)], versions=[charts.NEW])
    for (path, port), answer in zip(node_ports.items(), answers, strict=True):
        assert (answer.refused, answer.problems) == ("", []), path
        _check_service(_service(answer, path), path)
        assert 30123 in (item.get("nodePort") for item in _service(answer, path)["spec"]["ports"] if item["name"] == port), path
    for path in node_ports:
        _check_service(_service(everywhere, path), "services")


def _service(answer: Answer, path: str) -> Document:
    if path == "ray.head":
        return answer.one("RayCluster", "-ray")["spec"]["headGroupSpec"]["headService"]
    return answer.one("Service", f"-{path}")


def _check_service(service: Document, path: str) -> None:
    for option, value in _SERVICES.items():
        if option in ("labels", "annotations"):
            assert _has(service["metadata"][option], value), f"{path}.{option}"
        elif option == "extraPorts":
            assert _has(service["spec"]["ports"], value), f"{path}.{option}"
        elif option != "nodePorts":
            assert service["spec"][option] == value, f"{path}.{option}"


def test_names_that_values_had_before_still_work_and_the_notes_say_the_new_ones() -> None:
    container, selector = {"name": "beside", "image": "busybox"}, {"runAsUser": 5}
    old = {
        "gateway": {
            "labels": {"a": "b"}, "annotations": {"c": "d"}, "extraContainers": [container], "sharedMemory": "128Mi",
            "allowOpen": True,
            "ingress": {
                "enabled": True, "host": "a.example.com", "path": "/x", "tlsSecret": "s",
                "grpc": {"enabled": True, "host": "g.example.com", "tlsSecret": "t"},
            },
        },
        "pods": {"labels": {"e": "f"}},
        "podSecurityContext": selector, "containerSecurityContext": selector, "redis": {"image": "mirror.example.com/redis:7"},
    }  # fmt: skip
    new = {
        "gateway": {
            "podLabels": {"a": "b"}, "podAnnotations": {"c": "d"}, "sidecars": [container],
            "sharedMemory": {"sizeLimit": "128Mi"}, "allowOpen": True,
            "ingress": {
                "enabled": True, "hosts": [{"host": "a.example.com", "paths": [{"path": "/x"}]}],
                "tls": [{"secretName": "s", "hosts": ["a.example.com"]}],
                "grpc": {
                    "enabled": True, "hosts": [{"host": "g.example.com", "paths": [{"path": "/"}]}],
                    "tls": [{"secretName": "t", "hosts": ["g.example.com"]}],
                },
            },
        },
        "pods": {"podLabels": {"e": "f"}, "podSecurityContext": selector, "containerSecurityContext": selector},
        "redis": {"image": {"registry": "mirror.example.com", "tag": "7"}},
    }  # fmt: skip
    before, after = ask([old, new], versions=[charts.NEW])
    assert (before.refused, before.problems, after.refused) == ("", [], "")
    assert as_golden(before) == as_golden(after)
    assert "old ones go" not in after.notes
    for line in (
        "gateway.labels: gateway.podLabels", "gateway.extraContainers: gateway.sidecars", "pods.labels: pods.podLabels",
        "gateway.sharedMemory as a text: gateway.sharedMemory.sizeLimit", "podSecurityContext: pods.podSecurityContext",
        "redis.image as a text", "gateway.ingress.host: gateway.ingress.hosts",
        "gateway.ingress.grpc.tlsSecret: gateway.ingress.grpc.tls",
    ):  # fmt: skip
        assert line in before.notes


_DIGEST = "sha256:" + "0" * 64


_IMAGES: list[tuple[dict[str, Any], str]] = [
    ({"image": {"registry": "r.example.com", "tag": "3"}}, "r.example.com/dyorc:3"),
    ({"image": {"registry": "r.example:5000"}, "global": {"imageRegistry": "other.example.com"}}, "r.example:5000/dyorc:0.1.0"),
    ({"image": {"digest": _DIGEST}}, f"dyorc@{_DIGEST}"),
    ({"image": {"digest": _DIGEST}, "gateway": {"image": {"tag": "4"}}}, "dyorc:4"),
    ({"image": {"tag": "3"}, "gateway": {"image": {"digest": _DIGEST}}}, f"dyorc@{_DIGEST}"),
    ({"gateway": {"image": {"repository": "a/b", "pullSecrets": [{"name": "s"}]}}}, "a/b:0.1.0"),
]  # fmt: skip


def test_an_image_is_a_map_of_which_components_replace_fields() -> None:
    for (values, expected), answer in zip(_IMAGES, ask((values for values, _ in _IMAGES), lint=False), strict=True):
        pod = _pods(answer)["gateway"]["spec"]
        assert pod["containers"][0]["image"] == expected, values
        assert pod.get("imagePullSecrets", []) == values.get("gateway", {}).get("image", {}).get("pullSecrets", []), values
