"""The load generator over TLS: which servers it trusts, and which certificate it shows."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pytest

from dyorc.config import GatewayConfig
from loadgen.drawing import draw_pool
from loadgen.errors import WorkerFailedError
from loadgen.load import Load
from loadgen.pool import Pool
from loadgen.run import run
from loadgen.server_figures import StatisticsWatch
from loadgen.targets.base import TargetSpec
from tests.certificates import Authority, Certificate
from tests.integration.stack import Stack, running
from tests.integration.test_loadgen_served import done
from tests.workflows import arithmetic

INPUTS = [{"x": np.full(4, number, np.float32)} for number in range(8)]
QUADRUPLES = Pool(inputs=INPUTS, answers=[{"output": one["x"] * 4} for one in INPUTS])
LOAD = Load(rate_rps=50, warm_up_s=0.2, duration_s=0.5)


@dataclass
class Closed:
    """A server that wants certificates, and one that it takes."""

    stack: Stack
    authority: Authority
    own: Certificate

    @property
    def url(self) -> str:
        return str(self.stack.client.base_url).rstrip("/")

    def spec(self, protocol: str, *, ca: str | None = None, cert: str | None = None) -> TargetSpec:
        url = f"grpcs://{self.stack.grpc_address}" if protocol == "grpc" else self.url
        return TargetSpec(
            protocol=protocol,
            url=url,
            model="quadruple",
            ca=str(self.authority.own.certificate) if ca is None else ca,
            cert=str(self.own.certificate) if cert is None else cert,
            key=str(self.own.key) if cert is None else "",
        )


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Closed]:
    authority = Authority(tmp_path)
    server, own = authority.sign("server"), authority.sign("client")
    gateway = GatewayConfig(
        port=0,
        drain_timeout_s=1,
        tls_certificate_file=str(server.certificate),
        tls_key_file=str(server.key),
        tls_client_roots_file=str(authority.own.certificate),
    )
    async with running([arithmetic.quadruple], gateway=gateway, grpc=True) as stack:
        yield Closed(stack, authority, own)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
async def test_a_generator_with_a_certificate_measures(protocol: str, closed: Closed) -> None:
    spec = closed.spec(protocol)
    assert (await asyncio.to_thread(draw_pool, spec, {}, seed=0, num_requests=1)).inputs[0]["x"].shape == (4,)
    result = await asyncio.to_thread(run, protocol, spec, QUADRUPLES, LOAD, server=StatisticsWatch(closed.spec("http")))
    assert result.counts.correct == result.counts.planned > 0
    assert "double" in result.server.batch_sizes


async def test_a_generator_without_a_certificate_gets_no_answer(closed: Closed) -> None:
    result = await asyncio.to_thread(run, "http", closed.spec("http", cert=""), QUADRUPLES, LOAD)
    assert result.counts.failed == result.counts.planned
    assert set(result.errors) == {"the server closed the connection without an answer"}
    with pytest.raises(ValueError, match="no metadata"):
        await asyncio.to_thread(draw_pool, closed.spec("http", cert=""), {}, seed=0, num_requests=1)


async def test_a_server_that_is_not_trusted_is_not_measured(closed: Closed) -> None:
    with pytest.raises(WorkerFailedError, match="certificate"):
        await asyncio.to_thread(run, "http", closed.spec("http", ca=""), QUADRUPLES, LOAD)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
async def test_errors_name_unusable_files(protocol: str, tmp_path: Path) -> None:
    spec = TargetSpec(protocol=protocol, url="https://127.0.0.1:1", model="m")
    for changes in ({"ca": "/nowhere.pem"}, {"cert": "/nowhere.pem"}):
        with pytest.raises(ValueError, match=r"/nowhere\.pem"):
            await asyncio.to_thread(draw_pool, msgspec.structs.replace(spec, **changes), {}, seed=0, num_requests=1)


async def test_the_command_takes_certificates(closed: Closed, tmp_path: Path) -> None:
    QUADRUPLES.save(tmp_path / "pool.npz")
    trust = ("--ca", str(closed.authority.own.certificate), "--cert", str(closed.own.certificate), "--key", str(closed.own.key))
    quick = ("--rate", "50", "--duration", "0.5", "--warm-up", "0.2", "--pool", str(tmp_path / "pool.npz"), "--json")
    status, out, _ = await done(closed.url, "quadruple", *trust, *quick)
    assert (status, json.loads(out)["counts"]["failed"]) == (0, 0)
    status, _, errors = await done(closed.url, "quadruple", *quick)
    assert status == 2
    assert errors.startswith("error: ")
    assert "certificate" in errors
