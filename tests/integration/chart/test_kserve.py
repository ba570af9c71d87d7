"""The manifests for KServe: they are what Kubernetes and KServe take, and their command serves what their models hold."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dyorc.settings.checking import problems_in
from tests.integration.chart import charts
from tests.integration.chart.charts import Document, check

pytestmark = [
    pytest.mark.real,
    pytest.mark.together,
    pytest.mark.skipif(not charts.is_there(), reason="Helm's engine is not installed: make .venv-helm/.made"),
]

_FOLDER = charts.CHART.parents[1] / "deploy" / "kserve"


@pytest.fixture(scope="module")
def documents() -> dict[tuple[str, str], Document]:
    """All objects by kind and name, checked."""
    answer = check("\n---\n".join(file.read_text() for file in sorted(_FOLDER.glob("*.yaml"))), charts.NEW)
    assert answer.problems == []
    return {(document["kind"], document["metadata"]["name"]): document for document in answer.documents}


def test_a_field_that_does_not_exist_is_found() -> None:
    text = (_FOLDER / "cluster-serving-runtime.yaml").read_text()
    assert (
        "'protocolVersion' was unexpected" in check(text.replace("protocolVersions", "protocolVersion"), charts.NEW).problems[0]
    )


def test_the_services_ask_for_what_the_runtime_offers(documents: dict[tuple[str, str], Document]) -> None:
    runtime = documents["ClusterServingRuntime", "dyorc"]["spec"]
    assert [container["name"] for container in runtime["containers"]] == ["kserve-container"]
    formats = {offered["name"] for offered in runtime["supportedModelFormats"] if offered["autoSelect"]}
    for (kind, _), document in documents.items():
        if kind == "InferenceService":
            model = document["spec"]["predictor"]["model"]
            assert model["modelFormat"]["name"] in formats
            assert model["protocolVersion"] in runtime["protocolVersions"]


def test_the_ports_are_those_of_the_command(documents: dict[tuple[str, str], Document]) -> None:
    container = documents["ClusterServingRuntime", "dyorc"]["spec"]["containers"][0]
    args = container["args"]
    http, grpc = (int(args[args.index(option) + 1]) for option in ("--port", "--grpc-port"))
    assert http == 8080  # where KServe leads to, unless a service names another port
    assert {container[f"{kind}Probe"]["httpGet"]["port"] for kind in ("startup", "liveness", "readiness")} == {http}
    (port,) = documents["InferenceService", "classify"]["spec"]["predictor"]["model"]["ports"]
    assert (port["name"], port["containerPort"]) == ("h2c", grpc)
    metrics = documents["ClusterServingRuntime", "dyorc"]["spec"]["annotations"]["prometheus.kserve.io/port"]
    assert {"name": "DYORC_TELEMETRY__METRICS_PORT", "value": metrics} in container["env"]


def test_the_command_reads_the_model_of_the_config_map(documents: dict[tuple[str, str], Document], tmp_path: Path) -> None:
    for name, text in documents["ConfigMap", "classify"]["data"].items():
        (tmp_path / name).write_text(text)
    assert problems_in(tmp_path / "dyorc.toml") == []
    container: dict[str, Any] = documents["ClusterServingRuntime", "dyorc"]["spec"]["containers"][0]
    command = [arg.replace(container["workingDir"], str(tmp_path)) for arg in container["args"]]
    assert command.pop(0) == "dyorc"
    shown = subprocess.run(
        [sys.executable, "-m", "dyorc.cli.main", *command, "--print-settings"],
        capture_output=True, text=True, timeout=60, check=False, cwd=charts.CHART.parents[1],
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    for line in (f'"{tmp_path}/app.py:classify"', "in_process = true", "port = 8080", "grpc_port = 8081"):
        assert line in shown.stdout, shown.stdout
