"""How many replicas programs have is shown over HTTP, and set by clients that may."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

import httpx
import msgspec
import pytest

from dyorc.authoring.workflow import Workflow
from dyorc.client import Client
from dyorc.config import GatewayConfig
from dyorc.core.arrays import Array
from dyorc.errors import PermissionDeniedError, UnknownModelError
from dyorc.gateway.http.app import Gateway
from dyorc.gateway.http.http_server import HttpServer
from dyorc.gateway.keys import TenantRecord, new_key, write_tenants
from dyorc.gateway.service import InferenceService
from dyorc.models.registry import ModelRegistry
from tests.fake_backend import FakeBackend
from tests.workflows import arithmetic


class Served(NamedTuple):
    """A gateway over a fake, with two keys."""

    url: str
    backend: FakeBackend
    operator: str
    user: str


def answer(workflow: Workflow, inputs: Sequence[Array]) -> list[list[Array]]:
    """Returns the inputs."""
    return [list(inputs)]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Serves a model to an operator and to somebody who may only use it."""
    operator, may = new_key()
    user, may_not = new_key()
    file = tmp_path / "keys.toml"
    keys = [msgspec.structs.replace(may, may_manage=True), may_not]
    write_tenants(file, [TenantRecord(name="team", keys=keys)])
    repertoire = ModelRegistry.of([arithmetic.quadruple])
    backend = FakeBackend(repertoire, answer)
    config = GatewayConfig(port=0, drain_timeout_s=1, keys_file=str(file))
    with contextlib.closing(InferenceService(backend, config)) as service:
        async with HttpServer(Gateway(service), config, service.shedding) as server:
            yield Served(server.url, backend, operator, user)


async def test_an_operator_sets_how_many_replicas_a_program_has_and_leaves_it_to_the_forecast_again(served: Served) -> None:
    def operate() -> None:
        with Client(served.url, api_key=served.operator) as client:
            assert client.scale("double", num_warm=2, num_parked=1) == client.scaling()
            assert client.scaling()["programs"] == {"double": {"num_warm": 2, "num_parked": 1}}
            client.scale("double")

    await asyncio.to_thread(operate)
    assert served.backend.scaled == {"double": (None, None)}


async def test_others_only_see_it(served: Served) -> None:
    def use() -> None:
        with Client(served.url, api_key=served.user) as client:
            assert client.scaling() == {"programs": {}}
            with pytest.raises(PermissionDeniedError, match="may not change how the server runs; `dyorc keys add --may-manage`"):
                client.scale("double", num_warm=2)

    await asyncio.to_thread(use)
    assert not served.backend.scaled


async def test_an_unknown_program_is_named(served: Served) -> None:
    def operate() -> None:
        with Client(served.url, api_key=served.operator) as client, pytest.raises(UnknownModelError, match="'triple'"):
            client.scale("triple", num_warm=1)

    await asyncio.to_thread(operate)


@pytest.mark.parametrize("body", ['{"num_warm": -1}', '{"num_warm": 1.5}', '{"warm": 1}', "[]", "x"])
async def test_a_malformed_wish_is_refused(served: Served, body: str) -> None:
    headers = {"X-API-Key": served.operator}
    async with httpx.AsyncClient(base_url=served.url, headers=headers, trust_env=False) as client:
        assert (await client.post("/scaling/double", content=body)).status_code == 400
    assert not served.backend.scaled
