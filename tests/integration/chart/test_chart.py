"""The chart, rendered by Helm's own engine: files of values, what is refused, and what it promises of every pod.

What a cluster does with it is not tried: there is none.
"""

import tomllib
from base64 import b64decode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml

from dyorc.settings.checking import problems_in
from dyorc.transport.cluster_network import read_keys
from tests.integration.chart import charts
from tests.integration.chart.charts import Answer, Document, ask, examples

pytestmark = [
    pytest.mark.real,
    pytest.mark.together,
    pytest.mark.skipif(not charts.is_there(), reason="Helm's engine is not installed: make .venv-helm/.made"),
]

_DEPLOY = charts.CHART.parents[1] / "deploy"


@pytest.fixture(scope="module")
def answers() -> dict[str, Answer]:
    """What the chart makes of the examples, checked for the newest Kubernetes that has all they use."""
    values = examples()
    return dict(zip(values, ask(values.values(), versions=[charts.NEW]), strict=True))


def test_examples_pass_lint_and_strict_schemas(answers: Mapping[str, Answer]) -> None:
    assert set(answers) == {"minimal", "production", "gpu", "external-redis", "everything-off", "cells"}
    for name, answer in answers.items():
        assert (answer.refused, answer.problems) == ("", []), name


def test_the_oldest_kubernetes_takes_them_too_but_for_volumes_of_images() -> None:
    values = examples()
    answers = dict(zip(values, ask(values.values(), versions=[charts.OLD]), strict=True))
    assert all("'image' was unexpected" in problem for problem in answers.pop("gpu").problems)
    assert [answer.problems for answer in answers.values()] == [[]] * 5


def test_schemas_find_what_is_wrong() -> None:
    values = examples()["gpu"]
    pod = {
        "gateway": {"extraContainers": [{"name": "x", "image": "x", "portz": 1}]},
        "orchestrator": {"tolerations": [{"kye": "x"}]},
    }
    ray = {"ray": values["ray"] | {"head": {"extraVolumes": [{"name": "x", "emptyDirectory": {}}]}}}
    (answer,) = ask([values | pod | ray], versions=[charts.NEW])
    assert [problem.partition(" ")[0] for problem in answer.problems] == ["Deployment", "Deployment", "RayCluster"]
    for name, problem in zip(("portz", "kye", "emptyDirectory"), answer.problems, strict=True):
        assert f"'{name}' was unexpected" in problem


@pytest.mark.parametrize("name", charts.VALUES)
def test_what_is_rendered_is_what_was_reviewed(answers: Mapping[str, Answer], name: str) -> None:
    expected = (charts.GOLDEN / f"{name}.yaml").read_text()
    assert charts.as_golden(answers[name]) == expected, f"{name} is rendered differently: see the change with `make chart-golden`"


_LABELS = (
    "commonLabels", "pods.podLabels", "pods.labels", "gateway.podLabels", "redis.podLabels", "ray.worker.podLabels",
    "services.labels", "gateway.service.labels", "gateway.ingress.labels",
    "gateway.routes.grpc.labels", "monitoring.podMonitor.labels",
    "monitoring.dashboards.labels", "serviceAccount.labels",
)  # fmt: skip


def _nested(path: str, value: Any) -> dict[str, Any]:
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


_TYPOS: list[tuple[dict[str, Any], str]] = [
    ({"gatway": {}}, "at '': additional properties 'gatway' not allowed"),
    ({"gateway": {"replcas": 3}}, "at '/gateway': additional properties 'replcas' not allowed"),
    ({"settings": {"gateway": {"max_request": 1}}}, "at '/settings/gateway': additional properties 'max_request' not allowed"),
    ({"settings": {"telemetry": {"logs": {"fromat": "json"}}}}, "at '/settings/telemetry/logs': additional properties 'fromat'"),
    (
        {"settings": {"programs": {"large": {"max_batchsize": 1}}}},
        "at '/settings/programs/large': additional properties 'max_batchsize'",
    ),
    ({"settings": {"engine": {"max_requests": 0}}}, "at '/settings/engine/max_requests': minimum: got 0, want 1"),
    ({"ray": {"workerGroups": {"gpu": {"gpu": 1}}}}, "at '/ray/workerGroups/gpu': additional properties 'gpu' not allowed"),
    ({"ray": {"kind": "raycluster"}}, "at '/ray/kind': value must be one of 'none', 'RayCluster', 'RayService', 'external'"),
    ({"pods": {"tolerations": {}}}, "at '/pods/tolerations': got object, want array"),
    ({"groups": {"A_b": {"workflows": ["a:b"]}}}, "invalid propertyName 'A_b'"),
    ({"ray": {"head": {"service": {"nodePorts": {"x": 30000}}}}}, "at '/ray/head/service/nodePorts': additional properties 'x'"),
    ({"gateway": {"service": {"nodePorts": {"htpp": 30000}}}}, "at '/gateway/service/nodePorts': additional properties 'htpp'"),
    ({"services": {"nodePorts": {"htpp": 30000}}}, "at '/services/nodePorts': additional properties 'htpp'"),
    ({"fullnameOverride": "A_b"}, "at '/fullnameOverride': 'A_b' does not match pattern"),
    ({"nameOverride": "1a"}, "at '/nameOverride': '1a' does not match pattern"),
    ({"image": {"repository": ""}}, "at '/image/repository': minLength: got 0, want 1"),
    ({"redis": {"image": {"repository": ""}}}, "at '/redis/image/repository': minLength: got 0, want 1"),
    ({"gateway": {"preStopSeconds": None}}, "at '/gateway': missing property 'preStopSeconds'"),
    ({"workflows": None}, "at '': missing property 'workflows'"),
    *(
        (_nested(path, {label: "x"}), f"at '/{path.replace('.', '/')}/{label.replace('/', '~1')}': false schema")
        for path in _LABELS
        for label in ("app.kubernetes.io/name", "app.kubernetes.io/component", "dyorc/group", "helm.sh/chart")
    ),
]

_WORKERS = {"kind": "RayCluster", "workerGroups": {"cpu": {"sharedMemory": "16Gi"}}}
_FILES = {
    "groups": {"a": {"workflows": ["pkg/app.py:f"]}},
    "workflows": {"from": "configMap", "configMap": {"files": {"pkg/app.py": "x"}}},
}
_KEDA = {"enabled": True, "prometheus": {"serverAddress": "http://p"}}


def _group(**values: int) -> dict[str, Any]:
    return {"kind": "RayCluster", "workerGroups": {"cpu": values}}


_IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"settings": {"gateway": {"port": 1}}}, "settings.gateway.port is the chart's: set gateway.service.port"),
    ({"settings": {"store": "redis://x"}}, "settings.store is the chart's: set redis"),
    ({"settings": {"cluster": {"host": "x"}}}, "settings.cluster.host is the chart's"),
    ({"groups": {"a": {"workflows": []}}}, "groups.a.workflows is empty: name what to serve"),
    ({"workflows": {"from": "persistentVolumeClaim", "persistentVolumeClaim": "x"}}, "groups is empty: name what to serve"),
    ({"redis": {"enabled": False}}, "there is no Redis: set redis.enabled"),
    ({"gateway": {"service": {"type": "LoadBalancer"}}}, "open to everybody outside of the cluster: set gateway.tenants"),
    ({"gateway": {"ingress": {"enabled": True}}}, "open to everybody outside of the cluster: set gateway.tenants"),
    ({"gateway": {"tls": {"clientRoots": True}}}, "gateway.tls.clientRoots needs gateway.tls.existingSecret"),
    ({"ray": {"kind": "external"}}, "ray.kind=external needs ray.address"),
    ({"ray": {"kind": "external", "address": "a:1"}}, "networkPolicy.rayNodes is empty"),
    ({"ray": {"kind": "RayService"}}, "ray.kind=RayService needs ray.serveConfigV2"),
    ({"mode": "cells", "ray": {"kind": "RayCluster"}}, "mode=cells runs without Ray, and ray.kind is RayCluster"),
    ({"mode": "cells", "groups": {"a": {"workflows": ["a:b"]}, "b": {"workflows": ["a:c"]}}}, "mode=cells has one group"),
    (
        {"mode": "cells", "settings": {"cells": {"num_cells": 2}}},
        "settings.cells.num_cells is the chart's: set gateway.processes",
    ),
    ({"gateway": {"keda": {"enabled": True}}}, "gateway.keda needs gateway.keda.prometheus.serverAddress"),
    ({"gateway": {"keda": {"enabled": True, "requestsInFlight": 0}}}, "gateway.keda has nothing to scale by"),
    ({"gateway": {"keda": {"enabled": True}, "autoscaling": {"enabled": True}}}, "would both set the number of gateways"),
    (
        {"redis": {"enabled": False, "external": {"host": "a", "url": "redis://x"}}},
        "redis.external has host and url: set only one",
    ),
    ({"services": {"type": "NodePort"}}, "open to everybody outside of the cluster: set gateway.tenants"),
    ({"groups": {"a": {"workflows": ["a:b"], "sharedMemory": {"sizeLimit": "9Gi"}}}}, "groups.a.sharedMemory.sizeLimit is 9Gi"),
    ({"redis": {"external": {"url": "redis://x"}}}, "redis.external names a Redis, and redis.enabled=true runs one here"),
    ({"redis": {"external": {"existingSecret": "x"}}}, "set redis.enabled=false, or leave redis.external out"),
    (
        {"gateway": {"sharedMemory": "2049Mi"}},
        "gateway.sharedMemory.sizeLimit is 2049Mi, more than gateway.resources.limits.memory, 2Gi",
    ),
    (
        {"orchestrator": {"sharedMemory": "4e9"}},
        "orchestrator.sharedMemory.sizeLimit is 4e9, more than orchestrator.resources.limits",
    ),
    ({"ray": _WORKERS | {"head": {"sharedMemory": "5Gi"}}}, "ray.head.sharedMemory.sizeLimit is 5Gi, more than"),
    ({"ray": _WORKERS}, "cpu.sharedMemory.sizeLimit is 16Gi, more than ray.workerGroups.cpu.resources.limits.memory, 12Gi"),
    ({"gateway": {"autoscaling": {"enabled": True, "targetCPU": 0}}}, "gateway.autoscaling has nothing to scale by"),
    (
        {"gateway": {"autoscaling": {"enabled": True}, "resources": {"requests": {"cpu": None}}}},
        "set gateway.resources.requests.cpu, or targetCPU=0",
    ),
    (
        {
            "gateway": {
                "autoscaling": {"enabled": True, "targetMemory": 50},
                "resources": {"requests": {"memory": None}, "limits": None},
            }
        },
        "set gateway.resources.requests.memory, or targetMemory=0",
    ),
    (
        {"gateway": {"autoscaling": {"enabled": True, "minReplicas": 11}}},
        "gateway.autoscaling.minReplicas is 11, more than gateway.autoscaling.maxReplicas, 10",
    ),
    ({"gateway": {"keda": _KEDA | {"maxReplicas": 1}}}, "gateway.keda.minReplicas is 2, more than gateway.keda.maxReplicas, 1"),
    ({"ray": _group(minReplicas=5)}, "ray.workerGroups.cpu.minReplicas is 5, more than maxReplicas, 4"),
    ({"ray": _group(replicas=5)}, "ray.workerGroups.cpu.replicas is 5, and not between minReplicas, 0, and maxReplicas, 4"),
    ({"ray": _group(replicas=0, minReplicas=1)}, "ray.workerGroups.cpu.replicas is 0, and not between minReplicas, 1"),
    ({"gateway": {"service": {"grpcPort": 8000}}}, "gateway.service has port 8000/TCP twice"),
    ({"gateway": {"service": {"port": 9464}}}, "gateway.service has port 9464/TCP twice"),
    ({"redis": {"service": {"extraPorts": [{"name": "redis", "port": 1}]}}}, "redis.service has name redis twice"),
    (
        {"gateway": {"allowOpen": True, "service": {"type": "NodePort", "nodePorts": {"http": 30000, "grpc": 30000}}}},
        "gateway.service has node port 30000/TCP twice",
    ),
    (
        {"gateway": {"service": {"nodePorts": {"http": 30000}}}},
        "gateway.service.nodePorts.http needs gateway.service.type NodePort",
    ),
    (
        {"ray": _group() | {"head": {"service": {"nodePorts": {"client": 30000}}}}},
        "ray.head.service.nodePorts.client needs ray.head.service.type NodePort",
    ),
    ({"gateway": {"allowOpen": True, "routes": {"enabled": True}}}, "gateway.routes needs gateway.routes.parentRefs"),
    ({"workloads": {"podDisruptionBudget": {"maxUnavailable": ""}}}, "podDisruptionBudget is enabled, and says no number"),
    ({"redis": {"image": {"tag": ""}}}, "redis.image.tag is empty"),
    (_FILES, 'workflows.configMap.files has "pkg/app.py": a ConfigMap has no folders'),
]


def test_a_typo_is_refused_by_name() -> None:
    answers = ask(values for values, _ in _TYPOS)
    for (values, expected), answer in zip(_TYPOS, answers, strict=True):
        assert expected in answer.refused, values


def test_what_cannot_work_is_refused_and_the_text_says_what_to_set() -> None:
    answers = ask(values for values, _ in _IMPOSSIBLE)
    for (values, expected), answer in zip(_IMPOSSIBLE, answers, strict=True):
        assert expected in answer.refused, values


def test_zero_is_a_number() -> None:
    gateway = {"minReadySeconds": 0, "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}
    probe = {"readinessProbe": {"initialDelaySeconds": 0}, "terminationGracePeriodSeconds": 0}
    (answer,) = ask([{"gateway": gateway, "orchestrator": {"minReadySeconds": 0} | probe}], versions=[charts.NEW])
    assert (answer.refused, answer.problems) == ("", [])
    spec = answer.one("Deployment", "-gateway")["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert spec["minReadySeconds"] == 0
    spec = answer.one("Deployment", "-orchestrator-default")["spec"]
    assert spec["minReadySeconds"] == spec["template"]["spec"]["terminationGracePeriodSeconds"] == 0
    assert spec["template"]["spec"]["containers"][0]["readinessProbe"]["initialDelaySeconds"] == 0


def test_a_hook_replaces_the_own_one_and_labels_of_all_objects_give_way() -> None:
    hook = {"exec": {"command": ["true"]}}
    values = {
        "commonLabels": {"team": "a", "x": "y"}, "services": {"labels": {"team": "b"}},
        "serviceAccount": {"labels": {"team": "c"}},
        "gateway": {"lifecycle": {"preStop": hook}},
    }  # fmt: skip
    (answer,) = ask([values], versions=[charts.NEW])
    assert (answer.refused, answer.problems) == ("", [])
    assert answer.one("Deployment", "-gateway")["spec"]["template"]["spec"]["containers"][0]["lifecycle"] == {"preStop": hook}
    for kind, name, team in (("Service", "-gateway", "b"), ("ServiceAccount", "", "c"), ("Deployment", "-gateway", "a")):
        labels = answer.one(kind, name)["metadata"]["labels"]
        assert (labels["team"], labels["x"], labels["app.kubernetes.io/name"]) == (team, "y", "dyorc")


def test_hosts_and_users_of_an_external_redis_stand_in_the_url_as_it_wants_them() -> None:
    hosts = {"fd00::1": "[fd00::1]", "[fd00::1]": "[fd00::1]", "r.example.com": "r.example.com"}
    values = [
        {"redis": {"enabled": False, "external": {"host": host, "username": "a b@c/d:e+f", "existingPasswordSecret": "s"}}}
        for host in hosts
    ]
    for host, answer in zip(hosts.values(), ask(values, versions=[charts.NEW]), strict=True):
        assert (answer.refused, answer.problems) == ("", [])
        variables = answer.one("Deployment", "-gateway")["spec"]["template"]["spec"]["containers"][0]["env"]
        url = next(variable["value"] for variable in variables if variable["name"] == "DYORC_STORE")
        assert url == f"redis://a%20b%40c%2Fd%3Ae%2Bf:$(REDIS_PASSWORD)@{host}:6379/0"
        parts = urlsplit(url)
        assert (unquote(parts.username or ""), parts.hostname, parts.port) == ("a b@c/d:e+f", host.strip("[]"), 6379)


def test_shared_memory_as_large_as_the_limit_of_memory_is_taken() -> None:
    same = {"gateway": {"sharedMemory": "2Gi"}, "orchestrator": {"sharedMemory": "1.5e9"}}
    unlimited = {"gateway": {"sharedMemory": "64Gi", "resources": {"limits": {"memory": None}}}}
    assert [answer.refused for answer in ask([same, unlimited])] == ["", ""]


def _images(answer: Answer) -> set[str]:
    return {
        container["image"]
        for pod in _pods(answer)
        for container in [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]
    }


def test_images_come_from_the_registry_and_with_the_secrets_of_all_charts() -> None:
    shared = {"imageRegistry": "registry.example/mirror/", "imagePullSecrets": ["mine", {"name": "other"}]}
    ours, own = ask([{"global": shared}, {"global": shared, "image": {"repository": "host:5000/dyorc"}}])
    assert all(image.startswith("registry.example/mirror/") for image in _images(ours)), _images(ours)
    names = {image.removeprefix("registry.example/mirror/").partition(":")[0] for image in _images(ours)}
    assert names == {"dyorc", "redis"}
    assert any(image.startswith("host:5000/dyorc:") for image in _images(own))
    for pod in _pods(ours):
        assert pod["spec"]["imagePullSecrets"] == [{"name": "mine"}, {"name": "other"}]


def test_a_new_version_of_the_chart_alone_starts_no_pod_again() -> None:
    for answer in ask(examples().values(), versions=[charts.NEW]):
        for pod in filter(lambda pod: "name" not in pod["metadata"], _pods(answer)):  # a test's pod is made anew each time
            assert not {"helm.sh/chart", "app.kubernetes.io/version"} & set(pod["metadata"]["labels"])


def _configuration(answer: Answer) -> str:
    return answer.one("ConfigMap", "-config")["data"]["dyorc.toml"]


def test_dyorc_finds_nothing_wrong_with_the_configuration(answers: Mapping[str, Answer], tmp_path: Path) -> None:
    for name, answer in answers.items():
        folder = tmp_path / name
        for secret in ("cluster/cluster.keys", "tenants/keys.toml", "tls/tls.crt", "tls/tls.key"):
            (folder / secret).parent.mkdir(parents=True, exist_ok=True)
            (folder / secret).touch()
        file = folder / "dyorc.toml"
        file.write_text(_configuration(answer).replace("/etc/dyorc", str(folder)))
        assert problems_in(file) == [], name


def test_settings_arrive_as_they_were_written() -> None:
    settings = {
        "telemetry": {"traces": {"endpoint": 'http://x:1/?a=<b>&c="d"\\é'}, "records": {"ratio": 0.25, "max_bytes": 2**40}},
        "jobs": {"webhook_hosts": ["a.example", "b.example:80"], "ttl_s": 1e-7},
        "scaling": {"budget": {"max_cpus": 12.5}},
        "programs": {"odd name.x": {"ray_actor_options": {"resources": {"disk": 1}, "list": [1, [True], {"a": "b"}]}}},
    }
    (answer,) = ask([{"settings": settings}])
    found = tomllib.loads(_configuration(answer))
    assert found["programs"] == settings["programs"]
    assert found["jobs"] == settings["jobs"]
    assert found["scaling"] == settings["scaling"]
    assert found["telemetry"]["traces"] == settings["telemetry"]["traces"]
    assert found["telemetry"]["records"] == settings["telemetry"]["records"]
    assert isinstance(found["telemetry"]["records"]["max_bytes"], int)


def test_keys_that_were_made_once_stay() -> None:
    kept = {
        "demo-dyorc-cluster": {"cluster.keys": "b2xk"},
        "demo-dyorc-redis": {"password": "b2xk"},
        "demo-dyorc-ray": {"token": "b2xk"},
    }
    values = {"ray": {"kind": "external", "address": "a:1"}, "networkPolicy": {"enabled": False}}
    (upgraded,) = ask([values], secrets=kept)
    (fresh,) = ask([values], secrets={})
    assert upgraded.refused == fresh.refused == ""
    for name, data in kept.items():
        assert upgraded.one("Secret", name.removeprefix("demo-dyorc"))["data"] == data
        assert fresh.one("Secret", name.removeprefix("demo-dyorc"))["data"] != data


def test_dyorc_reads_the_keys_that_the_chart_makes(tmp_path: Path) -> None:
    file = tmp_path / "cluster.keys"
    found = []
    for answer in ask([{}, {}]):
        file.write_bytes(b64decode(answer.one("Secret", "-cluster")["data"]["cluster.keys"]))
        found.append(read_keys(str(file)))
    assert found[0] != found[1]


def test_alerts_and_boards_are_those_of_the_repository(answers: Mapping[str, Answer]) -> None:
    rules = answers["production"].one("PrometheusRule", "")["spec"]
    assert rules == yaml.safe_load((_DEPLOY / "prometheus" / "dyorc.rules.yml").read_text())
    boards = answers["production"].one("ConfigMap", "-dashboards")["data"]
    assert boards == {f"dyorc-{file.name}": file.read_text() for file in (_DEPLOY / "grafana").glob("*.json")}


def test_the_notes_have_a_client_line(answers: Mapping[str, Answer]) -> None:
    assert 'dyorc.Client("http://127.0.0.1:8000")' in answers["minimal"].notes
    assert "No key is needed" in answers["minimal"].notes
    assert 'dyorc.Client("https://127.0.0.1:8000", key=' in answers["production"].notes
    assert "From outside: https://flows.example.com/" in answers["external-redis"].notes


def test_without_values_an_example_is_served() -> None:
    (answer,) = ask([{}], versions=[charts.OLD])
    assert (answer.refused, answer.problems) == ("", [])
    assert "@dyorc.workflow" in answer.one("ConfigMap", "-workflows")["data"]["example.py"]
    orchestrator = answer.one("Deployment", "-orchestrator-default")["spec"]["template"]["spec"]["containers"][0]
    assert orchestrator["args"][:3] == ["dyorc", "orchestrator", "example.py:classify"]
    assert "an example, whose weights are random" in answer.notes


def test_each_group_has_orchestrators_of_its_own_and_gateways_know_all(answers: Mapping[str, Answer]) -> None:
    answer = answers["production"]
    text = answer.one("Deployment", "-orchestrator-text")["spec"]
    vision = answer.one("Deployment", "-orchestrator-vision")["spec"]
    assert (text["replicas"], vision["replicas"]) == (3, 2)
    assert vision["template"]["spec"]["containers"][0]["args"][2:4] == ["vision/ocr.py:read", "vision/digits.py:classify"]
    assert vision["selector"] != text["selector"]
    assert tomllib.loads(_configuration(answer))["cluster"]["groups"] == ["text", "vision"]


def test_pods_have_time_to_end(answers: Mapping[str, Answer]) -> None:
    for name, drain_s in (("minimal", 10), ("production", 30)):
        pod = answers[name].one("Deployment", "-gateway")["spec"]["template"]["spec"]
        sleep_s = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
        assert pod["terminationGracePeriodSeconds"] >= drain_s + sleep_s + 10


def _pods(answer: Answer) -> Iterator[Document]:
    """Yields the templates of all pods."""
    for one in answer.documents:
        match one["kind"]:
            case "Deployment" | "StatefulSet":
                yield one["spec"]["template"]
            case "RayCluster":
                yield one["spec"]["headGroupSpec"]["template"]
                yield from (group["template"] for group in one["spec"]["workerGroupSpecs"])
            case "Pod":
                yield {"metadata": one["metadata"], "spec": one["spec"]}


def test_no_pod_may_more_than_it_needs(answers: Mapping[str, Answer]) -> None:
    for answer in answers.values():
        for pod in _pods(answer):
            spec = pod["spec"]
            assert spec["securityContext"]["runAsNonRoot"]
            assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert not spec["enableServiceLinks"]  # DYORC_... variables that no setting knows would stop the server
            is_autoscaling = pod["metadata"]["labels"]["app.kubernetes.io/component"] == "ray-head"
            assert is_autoscaling or not spec["automountServiceAccountToken"]
            for container in [*spec["containers"], *spec.get("initContainers", ())]:
                assert container["securityContext"] == {
                    "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
                }  # fmt: skip


def test_an_orchestrator_shares_with_its_ray_node_all_by_which_ray_finds_it(answers: Mapping[str, Answer]) -> None:
    pod = answers["gpu"].one("Deployment", "-orchestrator-default")["spec"]["template"]["spec"]
    (node,) = pod["initContainers"]
    assert node["restartPolicy"] == "Always"
    assert "startupProbe" in node  # the orchestrator starts after it
    assert pod["shareProcessNamespace"]
    mounts = {one["mountPath"] for one in pod["containers"][0]["volumeMounts"]}
    assert {"/tmp", "/dev/shm"} <= mounts & {one["mountPath"] for one in node["volumeMounts"]}
    assert (
        "shareProcessNamespace" not in answers["minimal"].one("Deployment", "-orchestrator-default")["spec"]["template"]["spec"]
    )


def test_what_pods_refer_to_is_there(answers: Mapping[str, Answer]) -> None:
    secrets = {"dyorc-tenants", "dyorc-tls", "otel-headers", "managed-redis", "redis-roots", "ray-token", "dyorc-cluster"}
    for name, answer in answers.items():
        made = {one["metadata"]["name"] for one in answer.documents}
        for pod in _pods(answer):
            assert set(_references(pod)) <= made | secrets | {"flows", "default"}, name


def _references(found: Any) -> Iterator[str]:
    """Yields the names of secrets, ConfigMaps, claims and accounts."""
    if isinstance(found, list):
        for one in found:
            yield from _references(one)
    if isinstance(found, dict):
        for key, one in found.items():
            match key:
                case "secretKeyRef" | "configMap" | "configMapKeyRef":
                    yield one["name"]
                case "secretName" | "claimName" | "serviceAccountName":
                    yield one
                case _:
                    yield from _references(one)


def test_services_and_probes_lead_to_ports_that_are_open(answers: Mapping[str, Answer]) -> None:
    for answer in answers.values():
        pods = [(pod["metadata"]["labels"], pod["spec"]["containers"][0]) for pod in _pods(answer)]
        for service in (one["spec"] for one in answer.documents if one["kind"] == "Service"):
            chosen = [container for labels, container in pods if service["selector"].items() <= labels.items()]
            assert chosen
            for container in chosen:
                open_ports = {port["name"] for port in container["ports"]}
                assert {port["targetPort"] for port in service["ports"]} <= open_ports
                probes = [container[f"{kind}Probe"] for kind in ("startup", "liveness", "readiness")]
                assert {probe["httpGet"]["port"] for probe in probes if "httpGet" in probe} <= open_ports


def test_gateways_stay_in_their_service_while_a_leader_takes_over() -> None:
    values = [examples()["minimal"], examples()["minimal"] | {"settings": {"cluster": {"lease_s": 7.5}}}]
    for lease_s, answer in zip((3.0, 7.5), ask(values), strict=True):
        (container,) = answer.one("Deployment", "-gateway")["spec"]["template"]["spec"]["containers"]
        probe = container["readinessProbe"]
        assert probe["periodSeconds"] * probe["failureThreshold"] >= 2 * lease_s + 6


def test_each_pod_has_one_network_policy_which_lets_metrics_and_clients_in(answers: Mapping[str, Answer]) -> None:
    answer = answers["production"]
    policies = [one["spec"] for one in answer.documents if one["kind"] == "NetworkPolicy"]
    for pod in _pods(answer):
        labels = pod["metadata"]["labels"]
        matching = [one for one in policies if one["podSelector"]["matchLabels"].items() <= labels.items()]
        assert len(matching) == (labels["app.kubernetes.io/component"] != "test"), labels
    ports = [
        {port["port"] for port in rule.get("ports", ())} for rule in answer.one("NetworkPolicy", "-gateway")["spec"]["ingress"]
    ]
    assert ports == [{8000, 8001}, {9464, 9100}, set()]


def test_rays_own_autoscaler_understands_the_cluster(answers: Mapping[str, Answer]) -> None:
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

    found = _derive_autoscaling_config_from_ray_cr(answers["gpu"].one("RayCluster", "-ray"))["available_node_types"]
    assert found["headgroup"]["resources"]["CPU"] == 0  # no replica runs there
    assert {"CPU": 8, "GPU": 1}.items() <= found["gpu"]["resources"].items()
    assert (found["gpu"]["min_workers"], found["gpu"]["max_workers"]) == (0, 8)
    assert (found["cpu"]["min_workers"], found["cpu"]["resources"]["CPU"]) == (1, 4)
