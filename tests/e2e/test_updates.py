"""Versions of a workflow that go live while clients ask for it."""

import os
import signal
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

import dyorc
from dyorc.errors import ClientError, ConflictError, DeployError, PermissionDeniedError, UnknownModelError
from dyorc.testing import ServerProcess, serving
from tests.deadlines import TIMEOUT_S, wait_until
from tests.e2e.updates import APP, App, X, update_under_load
from tests.server_process import client_of


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(tmp_path)


@contextmanager
def served(
    app: App, *options: str, in_process: bool = True, environment: Mapping[str, str] | None = None
) -> Generator[tuple[ServerProcess, dyorc.Client]]:
    """Serves it, with a client."""
    with (
        serving(app.target, *options, in_process=in_process, environment=environment) as server,
        dyorc.Client(server.url, timeout_s=TIMEOUT_S) as client,
    ):
        yield server, client


def test_updates_under_load_cost_no_request(app: App) -> None:
    with served(app) as (server, client):
        update_under_load(app, server.url, client, 5)
        programs = lambda: set(client.status()["programs"])  # noqa: E731
        wait_until(lambda: programs() == {"double", "plus@6"}, "old versions have left, and `double` is shared by all")
        assert client.rollback("flow")["default"] == "5"
        assert client.infer("flow", x=X)[0] == 7


def test_several_cells_change_together_and_one_that_restarts_serves_the_same(app: App) -> None:
    with served(app, "--cells", "2") as (server, client), client_of(server) as http:
        update_under_load(app, server.url, client, 3)
        victim = next(cell["pid"] for cell in http.get("/status").json()["cells"])

        os.kill(victim, signal.SIGKILL)
        server.wait_for(r"Cell \d is ready again")
        app.write(100)
        assert client.deploy(app.target, share=0.5)["shares"] == {"5": 0.5}
        answers = [infer_anew(server.url) for _ in range(40)]
        assert set(answers) == {4.0, 100.0}


def infer_anew(url: str) -> float:
    """Asks by a new connection, which another cell may take."""
    with dyorc.Client(url) as client:
        return float(client.infer("flow", x=X)[0]) - 2


def test_a_canary_gets_its_share_and_versions_can_be_asked_for(app: App) -> None:
    with served(app) as (server, client), client_of(server) as http:
        app.write(2)
        client.deploy(app.target, version="blue", share=0.25)
        answers = [float(client.infer("flow", x=X)[0]) - 2 for _ in range(400)]
        num_blue = answers.count(2)
        assert 50 < num_blue < 150, "a quarter, within six standard deviations"
        assert answers.count(1) == 400 - num_blue
        for version, expected in (("1", 1), ("blue", 2)):
            assert client.infer("flow", version=version, x=X)[0] - 2 == expected
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}
        answer = http.post("/v2/models/flow/versions/blue/infer", json=body).json()
        assert (answer["model_name"], answer["model_version"]) == ("flow", "blue")
        stats = http.get("/v2/models/flow/stats").json()["model_stats"]
        assert {one["version"]: one["inference_count"] for one in stats} == {"1": 401 - num_blue, "blue": num_blue + 2}
        assert 'workflow="flow@blue"' in http.get("/metrics").text
        index = {(one["name"], one["version"]): one["state"] for one in http.post("/v2/repository/index", json={}).json()}
        assert index["flow", "blue"] == index["flow", "1"] == "READY"

        assert client.undeploy("flow", "blue")["shares"] == {}
        with pytest.raises(UnknownModelError, match=r"no version 'blue'; it has \['1'\]"):
            client.infer("flow", version="blue", x=X)
        assert client.rollback("flow")["shares"] == {"blue": 0.25}
        with pytest.raises(ConflictError, match="is the default; choose another default first"):
            client.undeploy("flow", "1")
        client.undeploy("flow")
        with pytest.raises(UnknownModelError):
            client.infer("flow", x=X)
        client.rollback("flow")
        assert client.infer("flow", version="blue", x=X)[0] - 2 == 2


def test_what_cannot_be_deployed_changes_nothing(app: App, tmp_path: Path) -> None:
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere"
    elsewhere.mkdir()
    (elsewhere / "app.py").write_text(APP.format(number=1))
    with served(app) as (_, client):
        wrong: list[tuple[str, Callable[[str], str], type[ClientError], str]] = [
            ("1", lambda text: text.replace("async def", "async dev"), DeployError, "SyntaxError"),
            ("1", lambda text: text.replace("def flow", "def flew"), DeployError, "has no workflow or program 'flow'"),
            ("1", lambda text: text + "\nimport os; os.abort()\n", DeployError, "SIGABRT"),
            ("1", lambda text: text.replace("Plus(1)", "Plus()"), DeployError, "program 'plus@2' cannot be loaded: TypeError"),
            ("1", lambda text: text.replace("flow(x:", "flow(z:").replace("double(x)", "double(z)"), ConflictError, "z: FP32"),
        ]  # fmt: skip
        for number, change, kind, text in wrong:
            app.write(number, change)
            with pytest.raises(kind, match=text):
                client.deploy(app.target)
            assert client.infer("flow", x=X)[0] == 3
        app.write(1, wrong[-1][1])
        assert client.deploy(app.target, share=0)["shares"] == {"2": 0}, "those who ask for it by its version get it"
        assert client.infer("flow", version="2", z=X)[0] == 3
        app.write(5)
        with pytest.raises(ConflictError, match="'2' of 'flow' exists, with other code"):
            client.deploy(app.target, version="2")
        with pytest.raises(PermissionDeniedError, match="CODE_FOLDERS"):
            client.deploy(f"{elsewhere}/app.py:flow")
        with pytest.raises(ClientError):
            client.deploy(app.target, share=1.5)
        assert set(client.deployments()["flow"]["versions"]) == {"1", "2"}
        wait_until(lambda: set(client.status()["programs"]) == {"double", "plus"}, "nothing is left of what failed")


def test_two_deploys_at_once_happen_one_after_the_other(app: App) -> None:
    with served(app) as (server, client):
        app.write(2)
        defaults: list[str] = []

        def deploy(version: str) -> None:
            with dyorc.Client(server.url, timeout_s=TIMEOUT_S) as other:
                defaults.append(other.deploy(app.target, version=version)["default"])

        threads = [threading.Thread(target=deploy, args=(version,)) for version in ("a", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(defaults) == ["a", "b"]
        last = client.deployments()["flow"]["default"]
        defaults.remove(last)
        assert [client.rollback("flow")["default"]] == defaults
        assert client.rollback("flow")["default"] == "1"
        assert client.infer("flow", x=X)[0] == 3


def test_what_is_deployed_outlives_the_server_whatever_lies_on_the_disk(app: App, tmp_path: Path) -> None:
    environment = {"DYORC_STORE": f"sqlite://{tmp_path}/store.sqlite"}
    with served(app, environment=environment) as (server, client):
        app.write(2)
        client.deploy(app.target, version="blue")
        server.process.kill()
        server.process.wait()
    app.write("this is no code (")
    with served(app, environment=environment) as (server, client):
        assert "blue" in server.output, "it says what it serves"
        assert client.infer("flow", x=X)[0] == 4
        client.rollback("flow")
        assert client.infer("flow", x=X)[0] == 3


@pytest.mark.slow
@pytest.mark.ray
def test_on_ray_replicas_of_a_version_run_its_code(app: App) -> None:
    with served(app, in_process=False) as (server, client):
        update_under_load(app, server.url, client, 2)
        app.write(100)  # not deployed
        victim = next(iter(client.status()["programs"]["plus@3"]["replicas"].values()))["pid"]

        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: victim not in _pids(client), "the killed replica has been noticed")
        assert client.infer("flow", x=X)[0] == 5, "the replica that took its place imports the version's code"
        wait_until(lambda: set(client.status()["programs"]) == {"double", "plus@3"}, "old replicas have gone")
        assert client.rollback("flow")["default"] == "2"
        assert client.infer("flow", x=X)[0] == 4


def _pids(client: dyorc.Client) -> set[int]:
    return {one["pid"] for one in client.status()["programs"]["plus@3"]["replicas"].values()}
