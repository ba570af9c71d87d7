"""Versions that are deployed by gateways, on orchestrators in other processes."""

import contextlib
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import dyorc
from dyorc.client.retries import Retries
from dyorc.errors import CapacityError, ConflictError, InvalidInputError, StoreError, UnknownModelError, UnsupportedError
from tests.deadlines import TIMEOUT_S, wait_until
from tests.e2e.test_services import run
from tests.e2e.updates import App, X, update_under_load
from tests.parted import LEASE_S, cluster
from tests.redis_server import redis_server
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
        with pytest.raises(ConflictError, match="is the default; choose another default first"):
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


def test_requests_of_a_version_that_is_on_offer_no_more_are_answered_by_the_next_leader(app: App) -> None:
    with (
        cluster() as found,
        found.orchestrator([app.target]) as leader,
        found.gateway() as gateway,
        dyorc.Client(gateway.url, timeout_s=TIMEOUT_S) as client,
        ThreadPoolExecutor() as threads,
    ):
        gateway.wait_until_ready()
        app.write_held(2)
        client.deploy(app.target)
        of_second = threads.submit(client.infer, "flow", x=X)
        wait_until((app.folder / "started-2").exists, "a request of version 2 runs")
        app.write_held(3)
        client.deploy(app.target)
        of_third = threads.submit(client.infer, "flow", x=X)
        wait_until((app.folder / "started-3").exists, "a request of version 3 runs")
        client.rollback("flow")
        assert client.rollback("flow")["default"] == "1", "no way leads back to 2 and 3"
        with found.orchestrator([app.target]) as standby:
            standby.wait_for("Standing by")
            for number in (2, 3):
                (app.folder / f"started-{number}").unlink()
            leader.process.kill()
            for number in (2, 3):
                wait_until((app.folder / f"started-{number}").exists, f"version {number} runs at the next leader")
            assert client.infer("flow", x=X)[0] == 3, "the one that is on offer"
            (app.folder / "open").touch()
            assert of_second.result(TIMEOUT_S)[0] == 4
            assert of_third.result(TIMEOUT_S)[0] == 5
            with pytest.raises(UnknownModelError):
                client.infer("flow", version="2", x=X)


def test_without_the_store_requests_go_on_and_what_it_would_keep_is_refused(app: App) -> None:
    with (
        redis_server() as redis,
        cluster() as found,
        found.orchestrator([app.target], DYORC_STORE=redis.url) as orchestrator,
        found.gateway(DYORC_STORE=redis.url) as gateway,
        dyorc.Client(gateway.url, timeout_s=TIMEOUT_S, retries=Retries(max_attempts=1)) as client,
    ):
        gateway.wait_until_ready()
        redis.kill()
        away_s = time.monotonic()
        app.write(2)
        with pytest.raises(StoreError):
            client.submit("flow", x=X)
        with pytest.raises(CapacityError) as refused:  # of the store, or of a leader that cannot renew its lease
            client.deploy(app.target)
        assert refused.value.code in ("store", "not_ready")
        assert client.deployments()["flow"]["default"] == "1"
        while time.monotonic() < away_s + 2 * LEASE_S:
            assert client.infer("flow", x=X)[0] == 3

        redis.start()
        wait_until(lambda: _is_deployed(client, app), "what is deployed can be noted again")
        assert client.submit("flow", x=X).result(timeout_s=TIMEOUT_S)[0] == 4
        assert orchestrator.output.count("Leads group") == 1, "the lead stays"


def _is_deployed(client: dyorc.Client, app: App) -> bool:
    with contextlib.suppress(CapacityError):
        client.deploy(app.target)
        return True
    return False


@pytest.mark.ray
def test_gateways_have_versions_deployed_on_ray_and_their_replicas_come_and_go(app: App) -> None:
    with (
        cluster() as found,
        found.orchestrator([app.target], in_process=False) as orchestrator,
        found.gateway("--processes", "2") as gateway,
        dyorc.Client(gateway.url, timeout_s=TIMEOUT_S) as client,
    ):
        orchestrator.wait_until_ready()
        gateway.wait_until_ready()
        update_under_load(app, gateway.url, client, 2)
        app.write(100)  # not deployed
        wait_until(lambda: set(client.status()["programs"]) == {"double", "plus@3"}, "replicas of old versions have gone")
        (replica,) = client.status()["programs"]["plus@3"]["replicas"].values()
        assert replica["pid"] != orchestrator.process.pid
        assert client.rollback("flow")["default"] == "2"
        assert client.infer("flow", x=X)[0] == 4


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
        with pytest.raises(InvalidInputError, match="unknown group 'c'"):
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


def test_gateways_keep_users_with_their_version_and_copy_requests_but_judge_nothing(app: App) -> None:
    with (
        cluster() as found,
        found.orchestrator([app.target]),
        found.gateway("--processes", "2") as gateway,
        dyorc.Client(gateway.url, timeout_s=TIMEOUT_S) as client,
    ):
        gateway.wait_until_ready()
        app.write(2)
        assert client.deploy(app.target, share=0.5, shadow=1.0, sticky="x-user")["shadows"] == {"2": 1.0}
        seen: dict[int, set[float]] = {user: set() for user in range(20)}
        for _ in range(3):
            for user, answers in seen.items():
                with dyorc.Client(gateway.url, headers={"x-user": str(user)}) as other:
                    answers.add(float(other.infer("flow", x=X)[0]))
        assert all(len(answers) == 1 for answers in seen.values())
        assert {answer for answers in seen.values() for answer in answers} == {3.0, 4.0}

        def copies() -> dict[str, int]:
            client.infer("flow", version="1", x=X)
            shadow: dict[str, int] = client.deployments()["flow"]["versions"]["2"]["traffic"]["shadow"]
            return shadow

        wait_until(lambda: copies().get("different", 0) >= 3, "copies were compared")
        assert "same" not in copies()
        with pytest.raises(UnsupportedError, match="an orchestrator of a group judges no versions"):
            client.deploy(app.target, share=0.1, rules={"errors": {"max_ratio": 0.1}})
