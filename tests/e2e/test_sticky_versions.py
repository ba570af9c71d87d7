"""Clients that stay with one version while several serve, and deployments that change nothing."""

import asyncio
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

import dyorc
from dyorc.errors import ConflictError, InvalidInputError
from dyorc.gateway.keys import TenantRecord, new_key, write_tenants
from dyorc.testing import ServerProcess, serving
from tests import oip_grpc
from tests.deadlines import TIMEOUT_S
from tests.e2e.updates import App, X
from tests.server_process import client_of

BODY = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}
USERS = [f"user-{number}" for number in range(60)]


def version_of(http: httpx.Client, user: str) -> str:
    """Returns which version answers a user."""
    return str(http.post("/v2/models/flow/infer", json=BODY, headers={"X-User": user}).json()["model_version"])


def deployed(server: ServerProcess, *options: str) -> str:
    """Runs `dyorc deploy` and returns what it prints."""
    command = [sys.executable, "-P", "-m", "dyorc.cli.main", "deploy", *options, "--url", server.url]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout


def versions_over_grpc(address: str, users: list[str]) -> list[str]:
    """Returns the same, by gRPC."""

    async def ask() -> list[str]:
        async with oip_grpc.connected(address) as stub:
            request = oip_grpc.request("flow", {"x": X})
            answers = [await stub.ModelInfer(request, metadata=[("x-user", user)]) for user in users]
        return [answer.model_version for answer in answers]

    return asyncio.run(ask())


def test_unchanged_code_is_no_new_version(tmp_path: Path) -> None:
    app = App(tmp_path)
    with serving(app.target, in_process=True) as server, dyorc.Client(server.url, timeout_s=TIMEOUT_S) as client:
        assert "flow is unchanged: version 1 has this code already" in deployed(server, app.target)
        with pytest.raises(ConflictError, match="'flow' is unchanged: version '1', the default, has this code already"):
            client.deploy(app.target, share=0.1)
        named = client.deploy(app.target, version="named", share=0.1)
        assert named["shares"] == {"named": 0.1}, "a version is made because it is named"
        assert named["versions"]["named"]["programs"] == named["versions"]["1"]["programs"], "which are shared"
        assert client.rollback("flow")["shares"] == {}
        app.write(2)
        assert "is unchanged" not in deployed(server, app.target)
        for _ in range(2):
            assert client.deploy(app.target)["is_changed"] is False
        assert client.rollback("flow")["default"] == "1", "one step back, whatever was deployed again"
        assert client.deploy(app.target, share=0.5)["shares"] == {"3": 0.5}, "no number comes twice"
        assert client.deploy(app.target, share=0.7)["shares"] == {"3": 0.7}, "the version with this code gets more"
        assert client.deploy(app.target)["default"] == "3"
        again = client.deploy(app.target, fresh=True)
        assert (again["default"], again["versions"]["4"]["programs"]["double"]) == ("4", "double@4"), "what code does not show"


@pytest.mark.parametrize("cells", [1, 2])
def test_a_user_stays_with_one_version_over_every_door(tmp_path: Path, cells: int) -> None:
    app = App(tmp_path)
    with serving(app.target, "--cells", str(cells), in_process=True) as server, client_of(server) as http:
        app.write(2)
        printed = deployed(server, app.target, "--canary", "40", "--sticky", "X-User")
        assert "flow: the header x-user of a request picks its version." in printed
        first = {user: version_of(http, user) for user in USERS}
        assert set(first.values()) == {"1", "2"}
        for user in USERS:
            with client_of(server) as other:  # perhaps of another cell
                assert version_of(other, user) == first[user]
            values = http.post("/run/flow", json={"x": [1, 2]}, headers={"X-User": user}).json()
            assert values[0] == 2 + int(first[user])
        for user in USERS[:10]:
            with dyorc.Client(server.url, headers={"X-User": user}) as client:
                assert client.infer("flow", x=X)[0] == 2 + int(first[user])
        (grpc,) = server.wait_for(r"gRPC on (\S+)").groups()
        assert versions_over_grpc(grpc, USERS) == list(first.values())
        metrics = http.get("/metrics").text
        assert 'dyorc_assigned_requests_total{reason="sticky",workflow="flow@2"}' in metrics

        deployed(server, app.target, "--canary", "80")
        later = {user: version_of(http, user) for user in USERS}
        assert {user for user in USERS if first[user] == "2"} < {user for user in USERS if later[user] == "2"}
        with (
            dyorc.Client(server.url, timeout_s=TIMEOUT_S) as client,
            pytest.raises(InvalidInputError, match="'x user', expected"),
        ):
            client.deploy(app.target, share=0.5, sticky="x user")


def test_a_key_stays_with_one_version(tmp_path: Path) -> None:
    app, file = App(tmp_path), tmp_path / "tenants.toml"
    keys = [new_key() for _ in range(12)]
    manager, record = new_key()
    tenants = [TenantRecord(name=f"tenant-{number}", keys=[known]) for number, (_, known) in enumerate(keys)]
    may_manage = replace(record, may_manage=True)
    write_tenants(file, [*tenants, TenantRecord(name="manager", keys=[may_manage])])
    with serving(app.target, "--keys-file", str(file), in_process=True) as server:
        app.write(2)
        with dyorc.Client(server.url, api_key=manager, timeout_s=TIMEOUT_S) as client:
            assert client.deploy(app.target, share=0.5, sticky="key")["sticky"] == "key"
        versions: set[str] = set()
        for key, _ in keys:
            with client_of(server, key) as http:
                seen = {version_of(http, user) for user in USERS[:8]}
            assert len(seen) == 1
            versions |= seen
        assert versions == {"1", "2"}, "all alike once in 2048 servers"
