"""docker-compose.yml: what it names exists, what it promises holds for every service, and the tools understand it."""

import ast
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dyorc.settings.settings_reader import read
from tests.markdown import python_examples
from tests.unit.deploy.composed import CORE_FILE, FILE, GPU_FILE, ROOT, composed, mounts, services

_SERVICES = composed()["services"]
_CONFIGURATIONS = [
    ROOT / "services/dyorc.toml",
    *sorted((ROOT / "examples").glob("*/compose.toml")),
]
_CELLS = composed(CORE_FILE)["services"]
_ALL = _SERVICES | _CELLS
_LASTING = {name: service for name, service in _ALL.items() if name != "keys"}


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("DYORC_"):
            monkeypatch.delenv(name)


def test_gateways_and_orchestrators_are_there_twice() -> None:
    default = {name for name, service in _SERVICES.items() if "profiles" not in service}
    assert default == {"keys", "redis", "ray-head", "ray-worker", "orchestrator", "standby", "gateway", "gateway-2"}
    assert {profile for service in _SERVICES.values() for profile in service.get("profiles", ())} == {"observability"}
    for pair in (("orchestrator", "standby"), ("gateway", "gateway-2")):
        first, second = ({**_SERVICES[name], "ports": None, "depends_on": None} for name in pair)
        assert first == second
    ports = [port for name in ("gateway", "gateway-2") for port in _SERVICES[name]["ports"]]
    assert ports == ["127.0.0.1:8000:8000", "127.0.0.1:8001:8001", "127.0.0.1:8010:8000", "127.0.0.1:8011:8001"]


@pytest.mark.parametrize("name", _ALL)
def test_every_container_has_no_more_rights_than_it_needs(name: str) -> None:
    service = _ALL[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert "privileged" not in service
    assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", ()))


@pytest.mark.parametrize("name", _LASTING)
def test_every_container_is_limited_and_started_again(name: str) -> None:
    service = _LASTING[name]
    assert service["restart"] == "unless-stopped"
    assert service["mem_limit"]
    assert service["pids_limit"] > 0
    assert service["logging"]["options"]["max-size"]


@pytest.mark.parametrize("name", [*services(ours=True), "redis", "cells"])
def test_health_is_checked_and_waited_for(name: str) -> None:
    service = _ALL[name]
    assert service["healthcheck"] == {"disable": True} if name == "keys" else service["healthcheck"]["test"][0] == "CMD"
    for needed, how in service.get("depends_on", {}).items():
        assert how["condition"] == ("service_completed_successfully" if needed == "keys" else "service_healthy")


@pytest.mark.parametrize("name", services(ours=False))
def test_images_of_others_are_pinned(name: str) -> None:
    repository, _, tag = _SERVICES[name]["image"].partition(":")
    assert repository
    assert tag.count(".") == 2, "a whole version"


def test_all_that_is_mounted_is_in_the_repository() -> None:
    found = [path for service in _ALL.values() for path in mounts(service).values()]
    assert len(found) > 5
    assert all(path.exists() for path in found)


@pytest.mark.usefixtures("clean_environment")
@pytest.mark.parametrize("name", [*services(ours=True), "cells"])
def test_settings_of_the_environment_exist(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for variable, value in _ALL[name].get("environment", {}).items():
        if variable.startswith("DYORC_") and variable != "DYORC_CONFIG":
            monkeypatch.setenv(variable, value)
    read()


@pytest.mark.usefixtures("clean_environment")
@pytest.mark.parametrize("path", _CONFIGURATIONS, ids=lambda path: path.parent.name)
def test_configuration_files_name_workflows_that_are_mounted(path: Path) -> None:
    for target in read(path).settings.workflows:
        file = target.partition(":")[0]
        assert file.startswith("/workflows/")
        assert (ROOT / "examples" / file.removeprefix("/workflows/")).exists()


def test_what_is_served_by_default_is_the_code_in_the_readme() -> None:
    served = ast.parse((ROOT / "examples" / "first" / "app.py").read_text()).body[1:]  # without its docstring
    written = ast.parse(python_examples(ROOT / "README.md")[0]).body
    assert sorted(map(ast.dump, served)) == sorted(map(ast.dump, written))


def test_containers_that_share_tensors_share_one_folder_of_memory() -> None:
    sharing = {name for name, one in _SERVICES.items() if "tensors:/run/dyorc/tensors" in one.get("volumes", ())}
    assert sharing == {"ray-worker", "orchestrator", "standby", "gateway", "gateway-2"}
    assert composed()["volumes"]["tensors"]["driver_opts"]["type"] == "tmpfs"


def test_gpus_are_only_asked_for_in_the_file_for_gpus() -> None:
    worker = composed(GPU_FILE)["services"]["ray-worker"]
    (device,) = worker["deploy"]["resources"]["reservations"]["devices"]
    assert device["capabilities"] == ["gpu"]
    assert worker["build"] == {"target": "cuda"}
    assert {service["build"]["target"] for service in services(ours=True).values()} == {"cpu"}
    plain, with_gpus = _SERVICES["ray-worker"]["command"].split(), worker["command"].split()
    assert set(with_gpus) - set(plain) == {"--num-gpus=1"}
    assert set(plain) <= set(with_gpus)
    assert "nvidia" not in FILE.read_text()


@pytest.fixture(scope="module")
def compose() -> list[str]:
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and subprocess.run([*command, "version"], capture_output=True, check=False).returncode == 0:
            return command
    pytest.skip("neither `docker compose` nor docker-compose is installed (Debian: apt install docker-compose)")


@pytest.mark.parametrize("files", [[FILE], [FILE, GPU_FILE], [CORE_FILE]], ids=["cpu", "gpu", "core"])
def test_compose_understands_the_files(files: list[Path], compose: list[str]) -> None:
    expected = composed(files[0])["services"]
    named = [part for file in files for part in ("-f", str(file))]
    command = [*compose, *named, "--profile", "observability", "config"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    resolved = yaml.safe_load(done.stdout)["services"]
    assert resolved.keys() == expected.keys()
    for name, service in resolved.items():
        assert service.get("environment", {}) == expected[name]["environment"]
        assert {str(volume) for volume in service["volumes"]} >= {
            f"{path}:{inside}:ro" for inside, path in mounts(expected[name]).items()
        }


def test_every_service_has_a_folder_that_says_what_it_is() -> None:
    files = [yaml.safe_load(file.read_text()) for file in (FILE, CORE_FILE)]
    used = {service["extends"]["file"] for file in files for service in file["services"].values()}
    folders = {path for path in (ROOT / "services").iterdir() if path.is_dir()}
    assert used == {f"services/{folder.name}/compose.yml" for folder in folders}
    for folder in folders:
        assert len((folder / "README.md").read_text().splitlines()) <= 12
        assert not list(folder.rglob("*.py")), "a user's own package may be called services"


def test_fragments_leave_to_the_main_file_what_only_that_can_say() -> None:
    for path in (ROOT / "services").glob("*/compose.yml"):
        for service in yaml.safe_load(path.read_text())["services"].values():
            assert not {"depends_on", "ports"} & service.keys()
        assert "DYORC_TOML" not in path.read_text(), "a relative path would start from the fragment's folder"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: apt install prometheus)")
def test_prometheus_finds_its_rules_where_they_are_mounted(tmp_path: Path) -> None:
    for inside, path in mounts(_SERVICES["prometheus"]).items():
        there = tmp_path / inside.lstrip("/")
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, there)
    command = ["promtool", "check", "config", str(tmp_path / "etc/prometheus/prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 rule files found" in done.stdout, done.stdout


def test_prometheus_scrapes_the_ports_at_which_services_show_their_metrics() -> None:
    (job,) = yaml.safe_load((ROOT / "services/prometheus/prometheus.yml").read_text())["scrape_configs"]
    scraped = {name: str(found["port"]) for found in job["dns_sd_configs"] for name in found["names"]}
    shown = {
        name: port
        for name, one in services(ours=True).items()
        for setting in ("DYORC_TELEMETRY__METRICS_PORT", "DYORC_CLUSTER__OPERATIONS_PORT")
        if (port := one.get("environment", {}).get(setting))
    }
    assert scraped == shown


def test_grafana_finds_prometheus_and_the_boards() -> None:
    folder = ROOT / "services" / "grafana"
    (source,) = yaml.safe_load((folder / "datasources.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((folder / "boards.yml").read_text())["providers"]
    grafana = _SERVICES["grafana"]
    boards = mounts(grafana)[provider["options"]["path"]]
    home = Path(grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert str(home.parent) == provider["options"]["path"]
    assert (boards / home.name).is_file()


def test_the_collectors_pipelines_name_what_it_has() -> None:
    config: dict[str, Any] = yaml.safe_load((ROOT / "services/otel-collector/collector.yml").read_text())
    for pipeline in config["service"]["pipelines"].values():
        for kind, names in pipeline.items():
            assert set(names) <= set(config[kind])
    assert set(config["service"]["extensions"]) <= set(config["extensions"])
    assert config["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"].endswith(":4317")


def test_what_the_core_serves_needs_nothing_but_the_core() -> None:
    imported = {
        name.name
        for node in ast.walk(ast.parse((ROOT / "examples/first/app.py").read_text()))
        if isinstance(node, ast.Import)
        for name in node.names
    }
    assert imported == {"dyorc", "numpy"}


@pytest.mark.parametrize(("given", "is_warned"), [("", True), ("./mine.toml", False)])
def test_who_gives_no_configuration_is_warned_in_the_log(given: str, is_warned: bool) -> None:
    script = ROOT / "services/gateway/at-address"
    done = subprocess.run(
        [script, "true"], env={**os.environ, "CONFIGURATION": given}, capture_output=True, text=True, check=True
    )
    assert [json.loads(line)["event"] for line in done.stderr.splitlines()] == ["example_configuration"] * is_warned
    assert ("set DYORC_TOML" in done.stderr) == is_warned


@pytest.mark.parametrize(("name", "num_processes"), [("ray-head", 5), ("ray-worker", 3)])
def test_a_node_of_ray_has_the_time_that_ray_takes_to_end_it(name: str, num_processes: int) -> None:
    kill_s = 2.0  # for each process, one after another (`Node.kill_all_processes` of Ray)
    service = _SERVICES[name]
    drain_s = float(service["environment"]["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"])
    assert drain_s + kill_s * num_processes <= float(service["stop_grace_period"].removesuffix("s"))
