# pyright: basic
# Generated messages and stubs have no types.
"""Every request has an id: its client's, or one that the server makes up; errors name it on every way in."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest

from dyorc.client import AsyncClient
from dyorc.config import GatewayConfig
from dyorc.errors import UnknownModelError
from tests import oip, oip_grpc
from tests.integration.stack import Stack, running
from tests.workflows import arithmetic, faulty

X = np.array([1, 2, 3, 4], np.float32)
GOOD = {"inputs": [oip.json_tensor("x", X)]}
BAD = {"inputs": [oip.json_tensor("x", X), oip.json_tensor("y", X)]}
LARGE = {"X-Large": "x" * 65_000}  # goes the long way


@pytest.fixture(scope="module")
async def stack(leaves_nothing: None) -> AsyncIterator[Stack]:
    """Starts one server for this module."""
    async with running(
        [arithmetic.quadruple, faulty.pick], gateway=GatewayConfig(port=0, max_header_bytes=2**20), grpc=True
    ) as found:
        await found.start_worker(arithmetic.double)
        yield found


async def infer(stack: Stack, content: Any, **headers: str) -> httpx.Response:
    """Sends a request."""
    return await stack.client.post("/v2/models/quadruple/infer", json=content, headers=headers)


@pytest.mark.parametrize("more", [{}, LARGE], ids=["direct", "asgi"])
async def test_answers_name_their_request_if_its_client_did(stack: Stack, more: dict[str, str]) -> None:
    for _ in range(3):  # the head is known from the second time on
        assert "X-Request-Id" not in (await infer(stack, GOOD, **more)).headers
        assert (await infer(stack, GOOD, **{"X-Request-Id": "from-a-proxy"}, **more)).headers["X-Request-Id"] == "from-a-proxy"
    both = await infer(stack, GOOD | {"id": "mine"}, **{"X-Request-Id": "from-a-proxy"}, **more)
    assert (both.headers["X-Request-Id"], both.json()["id"]) == ("mine", "mine")


async def test_answers_over_grpc_name_their_request_if_its_client_did(stack: Stack) -> None:
    good = oip_grpc.request("quadruple", {"x": X})
    mine = oip_grpc.request("quadruple", {"x": X}, request_id="mine")
    proxy = (("x-request-id", "from-a-proxy"),)
    async with oip_grpc.connected(stack.grpc_address) as stub:
        calls = [stub.ModelInfer(good), stub.ModelInfer(good, metadata=proxy), stub.ModelInfer(mine, metadata=proxy)]
        ids = [(call_id(await call.trailing_metadata()), (await call).id) for call in calls]
    assert ids == [(None, ""), ("from-a-proxy", ""), ("mine", "mine")], "as by HTTP"


def call_id(metadata: Any) -> str | None:
    """Returns the id in a call's trailing metadata."""
    return dict(metadata).get("x-request-id")


@pytest.mark.parametrize("more", [{}, LARGE], ids=["direct", "asgi"])
async def test_errors_always_name_their_request(stack: Stack, more: dict[str, str]) -> None:
    found = [await infer(stack, BAD, **more) for _ in range(2)]
    texts = [oip.error_text(one) for one in found]
    assert all("no input 'y'" in text for text in texts)
    made_up = {one.json()["request_id"] for one in found}
    assert len(made_up) == 2, "each has its own"
    given = await infer(stack, BAD, **{"X-Request-Id": "mine"}, **more)
    assert (oip.error_text(given), given.json()["request_id"]) == (texts[0], "mine")


@pytest.mark.parametrize("odd", ["ü" * 3, "x" * 129, "a\nb", ""])
async def test_ids_that_no_header_or_log_can_hold_are_replaced(stack: Stack, odd: str) -> None:
    failed = await infer(stack, BAD | {"id": odd})
    assert failed.json()["request_id"] not in ("", odd)
    answered = await infer(stack, GOOD | {"id": odd})
    assert answered.json().get("id", "") == odd, "the protocol's field goes back as it came"
    assert "X-Request-Id" not in answered.headers


async def test_other_routes_name_requests_too(stack: Stack) -> None:
    for path, status in (("/nowhere", 404), ("/v2/models/nix", 404), ("/v2/models/quadruple/infer", 405)):
        failed = await stack.client.get(path, headers={"X-Request-Id": "mine"})
        oip.error_text(failed)
        assert (failed.status_code, failed.headers["X-Request-Id"]) == (status, "mine")


async def test_a_client_learns_which_request_failed(stack: Stack) -> None:
    async with AsyncClient(str(stack.client.base_url)) as client:
        with pytest.raises(UnknownModelError) as failed:
            await client.infer("nix", {"x": X})
    assert failed.value.request_id
    assert failed.value.__notes__ == [f"request {failed.value.request_id}"]


async def test_errors_over_grpc_name_their_request(stack: Stack) -> None:
    async with oip_grpc.connected(stack.grpc_address) as stub:
        bad = oip_grpc.request("quadruple", {"y": X})
        mine = oip_grpc.request("quadruple", {"y": X}, request_id="mine")
        made_up = await oip_grpc.refused(stub.ModelInfer(bad))
        proxied = await oip_grpc.refused(stub.ModelInfer(bad, metadata=(("x-request-id", "from-a-proxy"),)))
        given = await oip_grpc.refused(stub.ModelInfer(mine, metadata=(("x-request-id", "from-a-proxy"),)))
        control = await oip_grpc.refused(stub.ModelMetadata(oip_grpc.pb.ModelMetadataRequest(name="nix")))
        stream = stub.ModelStreamInfer()
        await stream.write(bad)
        answer = await stream.read()
        await stream.done_writing()
    assert made_up.request_id
    assert (proxied.request_id, given.request_id) == ("from-a-proxy", "mine")
    assert control.request_id not in ("", made_up.request_id)
    assert answer.infer_response.parameters["request_id"].string_param
