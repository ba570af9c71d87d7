"""`Client.run` and `Client.run_stream` against the real gateway, with `dyorc.run` as the reference."""

import asyncio
import io
import math
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from jaxtyping import Float, Float16, Int
from pydantic import BaseModel, ConfigDict

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


Table = Int[np.ndarray, "n m"]
Numbers = Float[np.ndarray, " n"]


@dataclass
class Enclosed:
    numbers: list[float]


@dyorc.program(batched=False)
def shape(table: Table) -> list[int]:
    return list(table.shape)


@dyorc.program(batched=False)
def are_nan(numbers: Numbers) -> list[bool]:
    return np.isnan(numbers).tolist()


@dyorc.program(batched=False)
def digest(blob: dyorc.Bytes[np.ndarray, ""], halves: Float16[np.ndarray, " n"]) -> list[Any]:
    return [bytes(blob[()]).hex(), halves.tolist()]


@dyorc.program(batched=False)
def tell_type(value: Any) -> str:
    return repr(value)


@dyorc.program(batched=False)
def lengths(blobs: dict[str, bytes]) -> dict[str, int]:
    return {name: len(blob) for name, blob in blobs.items()}


@dyorc.program(batched=False)
def enclosed(value: Enclosed) -> list[str]:
    return [str(number) for number in value.numbers]


class Lasting(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="strings")

    number: float


@dyorc.program(batched=False)
def lasting(value: Lasting) -> str:
    return str(value.number)


@dyorc.program(batched=False)
def spelled(numbers: list[float]) -> list[str]:
    return [str(number) for number in numbers]


@dyorc.program(batched=False)
def mode(image: PIL.Image.Image) -> str:
    return f"{image.mode} {image.size}"


@dyorc.workflow
async def echo_text(text: str) -> str:
    return text


EXACT = [shape, are_nan, digest, tell_type, lengths, enclosed, lasting, spelled, mode, echo_text]
TARGETS = [*EXACT, values.judge, values.thumbnail, values.describe, values.tell, values.parcel, tensors.affine, counting]


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


@pytest.mark.parametrize("size", [(0, 3), (3, 0), (0, 0), (2, 3)])
async def test_arrays_without_elements_keep_their_shape(client: AsyncClient, size: tuple[int, int]) -> None:
    assert await client.run("shape", table=np.zeros(size, np.int64)) == list(size)
    assert await client.run("shape", table=torch.zeros(size, dtype=torch.int32)) == list(size)


async def test_tensors_arrive_as_they_are(client: AsyncClient) -> None:
    assert await client.run("are_nan", numbers=np.array([np.nan, 1])) == [True, False]
    assert await client.run("are_nan", numbers=[math.inf, math.nan]) == [False, True]
    assert await client.run("are_nan", numbers=[]) == []
    assert await client.run("digest", blob=b"\xff\x00", halves=[0.5]) == ["ff00", [0.5]]
    with pytest.raises(InvalidInputError, match="'table' has rank 1"):
        await client.run("shape", table=[1, 2])
    with pytest.raises(InvalidInputError, match=r"'numbers': .* is text, expected FP32"):
        await client.run("are_nan", numbers=["a"])


@pytest.mark.parametrize("value", [math.nan, [math.nan], {"a": np.array([math.nan])}, Enclosed([math.nan]), {math.nan: 1}])
async def test_nan_is_refused_and_never_nothing(client: AsyncClient, value: Any) -> None:
    with pytest.raises(InvalidInputError, match="'value' holds NaN, which JSON does not have"):
        await client.run("tell_type", value=value)


async def test_numbers_that_json_does_not_have_travel_as_texts(client: AsyncClient) -> None:
    with pytest.raises(InvalidInputError, match=r"'factor' holds -Infinity.*expected finite numbers"):
        await client.run("parcel", file=b"x" * 2**17, factor=-math.inf)
    with pytest.raises(InvalidInputError, match="the text 'NaN', which its floats read"):
        await client.run("enclosed", value=Enclosed([math.nan]))
    assert await client.run("spelled", numbers=["NaN", "-Infinity", 1]) == ["nan", "-inf", "1.0"]
    with pytest.raises(dyorc.errors.DyOrcError, match=r"holds NaN or infinity.*ser_json_inf_nan='strings'"):
        await client.run("enclosed", value={"numbers": ["NaN"]})
    assert await client.run("lasting", value=Lasting(number=math.nan)) == "nan"


@pytest.mark.parametrize(
    ("model", "given"),
    [
        ("echo_text", {"text": b"a"}),
        ("echo_text", {"text": bytearray(b"a")}),
        ("echo_text", {"text": dyorc.File(b"a")}),
        ("tell_type", {"value": b"a"}),
        ("tell_type", {"value": {"deep": [b"a"]}}),
        ("tell_type", {"value": {"deep": dyorc.File(b"a")}}),
    ],
)
async def test_bytes_do_not_become_texts(client: AsyncClient, model: str, given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=rf"'{next(iter(given))}' holds bytes, b'a', but takes none"):
        await client.run(model, given)


async def test_bytes_inside_json(client: AsyncClient) -> None:
    assert await client.run("lengths", blobs={"a": b"\xff\xfe\xfb", "b": bytearray(2**17)}) == {"a": 3, "b": 2**17}


@pytest.mark.parametrize("kind", ["1", "L", "P", "RGBA", "CMYK", "F", "I", "YCbCr", "I;16"])
async def test_pictures_of_other_modes(client: AsyncClient, kind: str) -> None:
    assert await client.run("mode", image=PIL.Image.new(kind, (3, 2))) == f"{kind} (3, 2)"


@pytest.mark.parametrize(("kind", "size"), [("HSV", (3, 2)), ("RGB", (0, 0))])
async def test_a_picture_that_no_file_can_hold_is_named(client: AsyncClient, kind: str, size: tuple[int, int]) -> None:
    with pytest.raises(InvalidInputError, match=rf"'image': an image of mode '{kind}' cannot be written"):
        await client.run("mode", image=PIL.Image.new(kind, size))


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        ({"shape": [1, 1]}, "'table' is an object, expected nested lists, or datatype, shape and base64"),
        ({"datatype": "INT64", "shape": [1, 1], "base64": "%"}, "'table' is str '%', expected .*base64"),
        ({"datatype": "INT64", "shape": [1, 1], "base64": "AAAA"}, "'table'.* 3 bytes"),
        ({"datatype": "INT16", "shape": [1, 1], "base64": "AAA="}, "'table' is INT16, expected INT64"),
    ],
)
async def test_malformed_raw_tensors_are_named(stack: Stack, tensor: dict[str, Any], text: str) -> None:
    answer = await stack.client.post("/run/shape", json={"table": tensor})
    assert answer.status_code == 400
    assert re.search(text, answer.json()["error"])


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
