"""`Client.run` and `Client.run_stream` against the real gateway, with `dyorc.run` as the reference."""

import asyncio
import io
import math
from collections.abc import AsyncIterator
from contextlib import aclosing

import numpy as np
import PIL.Image
import pytest

import dyorc
from dyorc.client import AsyncClient
from dyorc.config import GatewayConfig
from dyorc.errors import DeadlineError, InvalidInputError, UnknownModelError
from tests.client_shells import SHELLS, shell
from tests.deadlines import wait_until_async
from tests.integration.stack import Stack, running
from tests.workflows import tensors, values


@dyorc.workflow
async def counting(start: int, until: int, broken_at: int = -1) -> AsyncIterator[dict[str, int | str]]:
    for number in range(start, until):
        if number == broken_at:
            raise RuntimeError("no more")
        letter = await values.read("x", values.Options())
        # The form of an error, which no client may take for one
        yield {"error": letter.kind, "code": "invalid_input", "number": number}


TARGETS = [values.judge, values.thumbnail, values.describe, values.tell, values.parcel, tensors.affine, counting]


@pytest.fixture(scope="module")
async def stack(leaves_nothing: None) -> AsyncIterator[Stack]:
    async with running(TARGETS, gateway=GatewayConfig(port=0, drain_timeout_s=1)) as started:
        yield started


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(str(stack.client.base_url)) as made:
        yield made


def picture(side: int) -> PIL.Image.Image:
    pixels = np.random.default_rng(1).integers(0, 256, (side, side, 3), np.uint8)
    return PIL.Image.fromarray(pixels)


async def test_plain_values_dataclasses_and_models(client: AsyncClient) -> None:
    options = values.Options(lower=False)
    expected = dyorc.run(values.judge, "An invoice", options).model_dump()
    assert await client.run("judge", text="An invoice", options=options) == expected
    assert await client.run("judge", {"text": "An invoice"}, options={"lower": False}, version="1") == expected


async def test_arrays_are_nested_lists(client: AsyncClient) -> None:
    x, index = np.array([1.5, -2, 0.25, 3], np.float32), np.array([3, 0])
    expected = (await client.infer("affine", x=x, index=index, factor=2.0)).tolist()
    assert await client.run("affine", x=x, index=index, factor=np.float64(2)) == expected
    assert await client.run("affine", x=x.tolist(), index=[3, 0], factor=2) == expected


@pytest.mark.parametrize("side", [8, 400])  # as base64, and as the whole body
async def test_pictures_and_files(client: AsyncClient, side: int) -> None:
    image = picture(side)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    expected = np.asarray(dyorc.run(values.thumbnail, image, 3))
    for sent in (image, buffer.getvalue(), bytearray(buffer.getvalue()), dyorc.File(buffer.getvalue())):
        answer = await client.run("thumbnail", image=sent, side=3)
        assert isinstance(answer, bytes)
        assert (np.asarray(PIL.Image.open(io.BytesIO(answer))) == expected).all()
    assert (await client.run("parcel", file=b"x" * side**2, factor=0.5))["weight"] == side**2 / 2
    text, colour = await client.run("describe", image=image, note="a & b=ä")
    assert text == f"{side} x {side} a & b=ä"
    assert len(colour) == 3


async def test_a_large_file_is_the_body() -> None:
    """Base64 would be longer than this server takes."""
    gateway = GatewayConfig(port=0, drain_timeout_s=1, max_request_bytes=110_000)
    async with running([values.parcel], gateway=gateway) as small, AsyncClient(str(small.client.base_url)) as to_small:
        assert (await to_small.run("parcel", file=b"x" * 100_000))["weight"] == 100_000


async def test_parts(client: AsyncClient) -> None:
    assert [part async for part in client.run_stream("tell", text="a ä")] == [{"word": "a"}, {"word": "ä"}]
    assert await client.run("tell", text="a ä") == [{"word": "a"}, {"word": "ä"}]
    assert [part async for part in client.run_stream("tell", text="")] == []
    assert [part["words"] async for part in client.run_stream("judge", text="a b")] == [2]


async def test_an_error_in_a_stream_is_told_from_parts_of_its_form(client: AsyncClient) -> None:
    parts = client.run_stream("counting", start=0, until=5, broken_at=2)
    assert [(await anext(parts))["number"] for _ in range(2)] == [0, 1]
    with pytest.raises(dyorc.errors.DyOrcError, match="no more"):
        await anext(parts)


async def test_leaving_a_stream_cancels_its_request(stack: Stack, client: AsyncClient) -> None:
    async with aclosing(client.run_stream("counting", start=0, until=10**9)) as parts:
        await anext(parts)
    await wait_until_async(lambda: stack.service.admission.num_requests == 0, "the request ends")


async def test_errors(client: AsyncClient) -> None:
    with pytest.raises(InvalidInputError, match="most: Input should be greater"):
        await client.run("judge", text="x", options={"most": 0})
    with pytest.raises(InvalidInputError, match="'text' is object, which cannot be written as JSON"):
        await client.run("judge", text=object())
    with pytest.raises(InvalidInputError, match="'text' was given twice"):
        await client.run("judge", {"text": "a"}, text="b")
    with pytest.raises(UnknownModelError):
        await client.run("nobody", text="x")
    with pytest.raises(InvalidInputError, match="no image"):
        await client.run("thumbnail", image=b"x" * 2**17)
    with pytest.raises(DeadlineError):
        await client.run("judge", text="x", timeout_s=0)
    with pytest.raises(DeadlineError):
        async for _ in client.run_stream("counting", start=0, until=10**9, timeout_s=0.5):
            pass
    with pytest.raises(ValueError, match="expected seconds"):
        await client.run("judge", text="x", timeout_s=math.nan)
    with pytest.raises(InvalidInputError) as raised:
        await client.run("judge", text=3, request_id="mine")
    assert raised.value.request_id == "mine"


@pytest.mark.parametrize("kind", SHELLS)
async def test_both_clients(stack: Stack, kind: str) -> None:
    def use() -> None:
        with shell(kind, str(stack.client.base_url)) as client:
            assert client.run("judge", text="a b")["words"] == 2
            assert [part["word"] for part in client.run_stream("tell", text="a b")] == ["a", "b"]
            with pytest.raises(InvalidInputError):
                client.run("judge")

    await asyncio.to_thread(use)
