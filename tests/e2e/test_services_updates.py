"""Versions that are deployed by gateways, on orchestrators in other processes."""

import json
from pathlib import Path

import numpy as np
import pytest

import dyorc
from dyorc.errors import ConflictError, InvalidInputError, UnknownModelError
from tests.deadlines import TIMEOUT_S, wait_until
from tests.e2e.test_services import run
from tests.e2e.updates import App, X, update_under_load
from tests.parted import cluster
from tests.server_process import client_of, target

pytestmark = pytest.mark.together


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(tmp_path)


def test_updates_by_gateways_cost_no_request_and_outlive_the_leader(app: App) -> None:
    with (
        cluster() as found,
        found.orchestrator([app.target]) as first,
        found.orchestrator([app.target]) as second,
        found.gateway("--processes", "2") as gateway,
        dyorc.Client(gateway.url, timeout_s=TIMEOUT_S) as client,
    ):
        gateway.wait_until_ready()
        wait_until(lambda: "Leads group" in first.output + second.output, "one of them leads")
        leader, standby = (first, second) if "Leads group" in first.output else (second, first)
        standby.wait_for("Standing by")
        update_under_load(app, gateway.url, client, 3)
        wait_until(lambda: set(client.status()["programs"]) == {"double", "plus@4"}, "old versions have left")
        app.write(20)
        assert client.deploy(app.target, version="blue", share=0)["shares"] == {"blue": 0}
        with pytest.raises(ConflictError, match="is the default; say first"):
            client.undeploy("flow", "4")
        app.write("this is no code (")

        leader.process.kill()
        assert client.infer("flow", x=X)[0] == 6, "the standby serves what was deployed"
        assert client.infer("flow", version="blue", x=X)[0] == 22
        standby.wait_for("^Ready")
        assert "no code" not in run("deploy", url=gateway.url)
        assert client.rollback("flow")["shares"] == {}
        assert client.rollback("flow")["default"] == "3"
        assert client.infer("flow", x=X)[0] == 5
        with client_of(gateway) as http:
            index = http.post("/v2/repository/index", json={}).json()
        assert ("flow", "3") in {(one["name"], one["version"]) for one in index}


def test_of_several_groups_the_one_is_changed_that_has_the_model(app: App) -> None:
    folders = {"DYORC_DEPLOYMENT__CODE_FOLDERS": json.dumps([str(app.folder)])}
    with (
        cluster() as found,
        found.orchestrator([app.target], "--group", "a") as a,
        found.orchestrator([target("arithmetic", "quadruple")], "--group", "b", **folders) as b,
        found.gateway("--groups", "a,b") as gateway,
        dyorc.Client(gateway.url, timeout_s=TIMEOUT_S) as client,
    ):  # fmt: skip
        a.wait_until_ready()
        b.wait_until_ready()
        gateway.wait_until_ready()
        app.write(2)
        assert client.deploy(app.target)["group"] == "a", "from where `flow` was loaded"
        assert client.infer("flow", x=X)[0] == 4
        assert client.rollback("flow")["group"] == "a"
        assert client.infer("flow", x=X)[0] == 3
        other = app.folder / "other.py"
        other.write_text(Path(app.target.partition(":")[0]).read_text().replace("def flow", "def other"))
        with pytest.raises(InvalidInputError, match=r"--group.*\['a', 'b'\]"):
            client.deploy(f"{other}:other")
        with pytest.raises(InvalidInputError, match="no group 'c'"):
            client.deploy(f"{other}:other", group="c")
        assert client.deploy(f"{other}:other", group="b")["group"] == "b"
        np.testing.assert_array_equal(client.infer("other", x=X), 2 * X + 2)
        assert {name: line["group"] for name, line in client.deployments().items()} == {
            "flow": "a",
            "other": "b",
            "quadruple": "b",
        }
        client.undeploy("other")
        with pytest.raises(UnknownModelError):
            client.infer("other", x=X)
