"""The Python client against the real gateway."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dyorc.client import AsyncClient, Client
from dyorc.config import GatewayConfig
from dyorc.core.arrays import same_array
from dyorc.errors import DeadlineError, InvalidInputError, PayloadTooLargeError, ProgramError, UnknownModelError
from tests.client_shells import SHELLS
from tests.integration.stack import Stack, running
from tests.workflows import arithmetic, faulty, guarded, slow, tensors

X = np.array([1.5, 2.5, 3.5, 4.5], np.float32)


@pytest.fixture(scope="module")
async def stack(leaves_nothing: None) -> AsyncIterator[Stack]:
    """Starts one server for this module."""
    targets = [tensors.echo, tensors.affine, arithmetic.sums, arithmetic.quadruple, faulty.pick, guarded.guarded, slow.resting]
    async with running(targets, gateway=GatewayConfig(port=0, drain_timeout_s=1, max_request_bytes=1_000_000)) as found:
        yield found


@pytest.fixture(params=SHELLS)
async def client(request: pytest.FixtureRequest, stack: Stack) -> AsyncIterator[Any]:
    """Yields each of the two clients; neither blocks the server's event loop."""
    url = str(stack.client.base_url)
    if request.param == "asyncio":
        async with AsyncClient(url) as found:
            yield found
    else:
        with Client(url) as found:
            yield _Threaded(found)


class _Threaded:
    """A blocking client that makes each of its calls on a separate thread."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(method, *args, **kwargs)

        return call


def _texts(*items: bytes) -> Any:
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


async def test_one_output_is_an_array_and_several_are_named(client: Any) -> None:
    found = await client.infer("quadruple", x=X)
    assert same_array(found, X * 4)
    assert (await client.infer("quadruple", x=[1, 2, 3, 4])).dtype == np.float32, "a list takes the declared type"
    found = await client.infer("sums", x=X)
    assert list(found) == ["total", "num_calls"]
    assert found["total"].shape == ()
    assert float(found["total"]) == 12.0
    assert (await client.infer("sums", x=X, outputs=["total"])) == 12.0


@pytest.mark.parametrize("num", [3, 0])
async def test_every_type_survives(client: Any, num: int) -> None:
    given = {
        "flags": np.array([True, False, True][:num], np.bool_),
        "halves": np.array([1.5, -2.25, 65504][:num], np.float16),
        "brains": np.array([1, -3, 1e30][:num], ml_dtypes.bfloat16),
        "texts": _texts(b"plain", b"\x00\xff no text", "zwölf €".encode())[:num],
        "image": np.arange(2 * num, dtype=np.uint8).reshape(2, num),
    }
    found = await client.infer("echo", given)
    expected = {
        "negated": ~given["flags"],
        "halved": given["halves"] / np.float16(2),
        "doubled": given["brains"] + given["brains"],
        "reversed": _texts(*(text[::-1] for text in given["texts"])),
        "transposed": given["image"].T,
    }
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert same_array(found[name], array), name


async def test_a_name_that_is_not_a_tensor_becomes_a_parameter(client: Any) -> None:
    assert (await client.infer("affine", x=X, index=[3, 0], factor=2.0)).tolist() == [9.0, 3.0]


async def test_errors_are_those_of_the_server(client: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"'x' is FP64.*expected FP32"):
        await client.infer("quadruple", x=X.astype(np.float64))
    with pytest.raises(InvalidInputError, match="no parameter 'wrong'"):
        await client.infer("affine", x=X, index=[3, 0], wrong=2.0)
    with pytest.raises(UnknownModelError, match="unknown model 'nobody'"):
        await client.infer("nobody", x=X)
    with pytest.raises(UnknownModelError, match="no version '2'"):
        await client.infer("quadruple", x=X, version="2")
    with pytest.raises(ProgramError, match="negative number -1") as found:
        await client.infer("pick", x=-np.ones(4, np.float32))
    assert (found.value.program, found.value.error_type) == ("picky", "ValueError")
    with pytest.raises(PayloadTooLargeError, match="limit is 1000000"):
        await client.infer("sums", x=np.zeros(10**6, np.float32))
    assert same_array(await client.infer("quadruple", x=X), X * 4)


async def test_a_request_ends_at_its_timeout(client: Any) -> None:
    with pytest.raises(DeadlineError):
        await client.infer("resting", x=X, rest_s=2.0, timeout_s=0.2)


async def test_an_answer_tells_everything(client: Any) -> None:
    answer = await client.answer("guarded", x=X, explain=True, request_id="r-1", priority=1)
    assert (answer.model_name, answer.model_version, answer.request_id) == ("guarded", "1", "r-1")
    assert same_array(answer.value, answer.outputs["output"])
    assert any(step["event"] == "decided" for step in answer.explain)
    assert (await client.answer("guarded", x=X)).explain == []


async def test_the_server_describes_itself(client: Any) -> None:
    assert {"quadruple", "echo", "double"} <= set(await client.models())
    found = await client.metadata("affine")
    assert [(tensor.name, tensor.datatype, tensor.shape) for tensor in found.inputs] == [
        ("x", "FP32", (4,)),
        ("index", "INT64", (2,)),
    ]
    assert found.platform == "dyorc_workflow"
    assert await client.is_live()
    assert await client.is_ready()
    assert await client.is_ready("quadruple")
    await client.wait_until_ready(30, model="quadruple")
    with pytest.raises(UnknownModelError):
        await client.is_ready("nobody")


async def test_many_at_once_get_their_own_answers(stack: Stack) -> None:
    async with AsyncClient(str(stack.client.base_url), max_connections=8) as client:
        found = await asyncio.gather(*(client.infer("quadruple", x=np.full(4, at, np.float32)) for at in range(40)))
    assert [array[0] for array in found] == [4 * at for at in range(40)]


async def test_a_task_that_is_cancelled_cancels_its_request(stack: Stack) -> None:
    async with AsyncClient(str(stack.client.base_url)) as client:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.infer("resting", x=X, rest_s=2.0), 0.2)
        assert same_array(await client.infer("quadruple", x=X), X * 4)
