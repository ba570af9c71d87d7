"""``POST /run/NAME`` by a foreign client (httpx): JSON, forms, raw bodies and events. `dyorc.run` is the reference."""

import base64
import gzip
import io
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import PIL.Image
import pytest

import dyorc
from dyorc.config import GatewayConfig
from tests.integration.stack import Stack, running
from tests.workflows import tensors, values

TARGETS = [values.judge, values.thumbnail, values.describe, values.tell, values.parcel, values.note, tensors.affine]
MAX_BYTES = 4 * 2**20


@pytest.fixture(scope="module")
async def stack(leaves_nothing: None) -> AsyncIterator[Stack]:
    """Starts one server with replicas of all programs."""
    gateway = GatewayConfig(port=0, drain_timeout_s=1, max_request_bytes=MAX_BYTES)
    async with running(TARGETS, gateway=gateway) as started:
        for target in TARGETS:
            for program in target.programs if hasattr(target, "programs") else (target,):
                if program.name not in started.workers:
                    await started.start_worker(program)
        yield started


@pytest.fixture
def client(stack: Stack) -> httpx.AsyncClient:
    return stack.client


def picture(form: str = "PNG", size: tuple[int, int] = (6, 4)) -> bytes:
    pixels = np.arange(size[0] * size[1] * 3, dtype=np.uint8).reshape(size[1], size[0], 3)
    buffer = io.BytesIO()
    PIL.Image.fromarray(pixels).save(buffer, form)
    return buffer.getvalue()


async def test_json_in_and_out(client: httpx.AsyncClient) -> None:
    answer = await client.post("/run/judge", json={"text": "An invoice", "options": {"lower": False}})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == dyorc.run(values.judge, "An invoice", values.Options(lower=False)).model_dump()
    assert (await client.post("/run/judge", json={"text": "a letter"})).json() == {"label": "letter", "words": 2, "score": 0}


async def test_a_tensor_takes_nested_lists(client: httpx.AsyncClient) -> None:
    x = [1.5, -2.0, 0.25, 3.0]
    tensors = [
        {"name": "x", "datatype": "FP32", "shape": [4], "data": x},
        {"name": "index", "datatype": "INT64", "shape": [2], "data": [3, 0]},
    ]
    infer = {"inputs": tensors, "parameters": {"factor": 2.0}}
    by_tensor = (await client.post("/v2/models/affine/infer", json=infer)).json()["outputs"][0]["data"]
    assert (await client.post("/run/affine", json={"x": x, "index": [3, 0], "factor": 2})).json() == by_tensor


async def test_curl_says_that_json_is_a_form(client: httpx.AsyncClient) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    assert (await client.post("/run/judge", content=b'{"text": "a b c"}', headers=headers)).json()["words"] == 3
    assert (await client.post("/run/judge", data={"text": "a b"})).json()["words"] == 2


@pytest.mark.parametrize("text", ["5", "true", "null", "[1]", '"x"', "x", "1e5", '{"a": 1}', " "])
async def test_a_field_where_a_text_may_stand_is_that_text(client: httpx.AsyncClient, text: str) -> None:
    fields = {"number": "1", "text": text, "scores": "[1, 2]"}
    expected = dyorc.run(values.note, 1, text, [1.0, 2.0])
    for sent in ({"data": fields}, {"params": fields}, {"files": {name: (None, value) for name, value in fields.items()}}):
        assert (await client.post("/run/note", **sent)).json() == expected


async def test_events_that_a_client_refuses_are_not_sent(client: httpx.AsyncClient) -> None:
    answer = await client.post("/run/tell", json={"text": "a"}, headers={"accept": "application/json, text/event-stream;q=0"})
    assert answer.json() == [{"word": "a"}]


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "BMP", "GIF"])
async def test_an_image_as_raw_body_form_and_base64(client: httpx.AsyncClient, form: str) -> None:
    image = picture(form)
    expected = np.asarray(dyorc.run(values.thumbnail, image, 2))
    url = f"data:image/{form.lower()};base64,{base64.b64encode(image).decode()}"
    for answer in (
        await client.post("/run/thumbnail?side=2", content=image, headers={"content-type": f"image/{form.lower()}"}),
        await client.post("/run/thumbnail", files={"image": ("a name", image)}, data={"side": "2"}),
        await client.post("/run/thumbnail", json={"image": base64.b64encode(image).decode(), "side": 2}),
        await client.post("/run/thumbnail", json={"image": url, "side": 2}),
    ):
        assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png"), answer.text
        assert (np.asarray(PIL.Image.open(io.BytesIO(answer.content))) == expected).all()


async def test_a_tuple_is_a_list(client: httpx.AsyncClient) -> None:
    image = picture()
    text, colour = dyorc.run(values.describe, image, "ä")
    assert (await client.post("/run/describe?note=%C3%A4", content=image, headers={"content-type": "image/png"})).json() == [
        text,
        pytest.approx(colour.tolist()),
    ]


async def test_parts_as_events_and_as_a_list(client: httpx.AsyncClient) -> None:
    async with client.stream("POST", "/run/tell", json={"text": "a b"}, headers={"accept": "text/event-stream"}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [json.loads(line[6:]) async for line in answer.aiter_lines() if line.startswith("data: ")]
    assert events == [{"word": "a"}, {"word": "b"}]
    assert (await client.post("/run/tell", json={"text": "a b"})).json() == events
    assert (await client.post("/run/tell", json={"text": ""})).json() == []
    async with client.stream("POST", "/run/judge", json={"text": "x"}, headers={"accept": "text/event-stream"}) as answer:
        assert len([line async for line in answer.aiter_lines() if line.startswith("data: ")]) == 1


async def test_any_file(client: httpx.AsyncClient) -> None:
    for size in (0, 1, 3 * 2**20):
        body = b"%PDF"[:size].ljust(size, b"-")
        headers = {"content-type": "application/pdf"}
        answer = await client.post("/run/parcel?factor=0.5", content=body, headers=headers)
        assert answer.json()["weight"] == size / 2
    assert (await client.post("/run/parcel", files={"file": b""})).json()["weight"] == 0


DEEP = b'{"text": ' + b"[" * 10_000 + b"]" * 10_000 + b"}"
URL_FORM = {"content-type": "application/x-www-form-urlencoded"}
BOUNDARY = {"content-type": "multipart/form-data; boundary=x"}


@pytest.mark.parametrize(
    ("path", "sent", "message"),
    [
        ("judge", {"content": b"{"}, "expected an object with a key for each parameter"),
        ("judge", {"content": b"[1]"}, "expected an object"),
        ("judge", {"content": DEEP}, "nested too deeply"),
        ("judge", {"content": b'{"text": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001}, "nested too deeply"),
        ("judge", {"json": {}}, "'text' is missing"),
        ("judge", {"json": {"text": 3}}, "'text' is int 3, expected str"),
        ("judge", {"json": {"text": "x", "other": 1}}, "has no parameter 'other'; expected ['text'], and optionally ['options']"),
        ("judge", {"json": {"text": "x", "options": {"most": 0}}}, "most: Input should be greater than or equal to 1, got 0"),
        ("judge", {"json": {"text": "x", "options": 7}}, "'options'"),
        ("judge?text=a", {"json": {"text": "b"}}, "'text' was given twice"),
        ("judge", {"content": b"x", "headers": {"content-type": "image/png"}}, "send JSON or multipart/form-data"),
        ("thumbnail", {"json": {"image": "no base64!"}}, "expected the file as base64"),
        ("thumbnail", {"json": {"image": "aGFsbG8="}}, "'image' is no image: 5 bytes"),
        ("thumbnail", {"json": {"image": 5}}, "'image' is int 5"),
        ("thumbnail?side=x", {"content": picture(), "headers": {"content-type": "image/png"}}, "'side' is 'x', expected int"),
        ("thumbnail", {"content": b"--x\r\n", "headers": BOUNDARY}, "the form does not end"),
        ("thumbnail", {"content": b"no form", "headers": BOUNDARY}, "the form is malformed"),
        ("thumbnail", {"content": b"--x--", "headers": {"content-type": "multipart/form-data"}}, "without a boundary"),
        ("affine", {"json": {"x": [1, 2]}}, "'x'"),
        ("affine", {"json": {"x": [[1], [2, 3]]}}, "'x'"),
        ("affine", {"json": {"x": 1}}, "'x' is nested 0 lists deep, expected"),
        ("judge", {"content": b"text=%FF", "headers": URL_FORM}, "the form cannot be read"),
        ("judge", {"content": b"text=a&text=b", "headers": URL_FORM}, "the form has two fields named 'text'"),
        ("judge?text=a&text=b", {}, "the query has two fields named 'text'"),
        ("judge", {"content": b'{"text": "\\ud800"}'}, "half of a surrogate pair"),
        ("thumbnail?side=1_0", {"content": picture(), "headers": {"content-type": "image/png"}}, "'side' is '1_0', expected int"),
    ],
)
async def test_what_does_not_fit_is_refused(client: httpx.AsyncClient, path: str, sent: Any, message: str) -> None:
    answer = await client.post(f"/run/{path}", **sent)
    assert answer.status_code == 400, answer.text
    assert message in answer.json()["error"], answer.text


async def test_bombs_are_refused(client: httpx.AsyncClient) -> None:
    wide = PIL.Image.new("1", (9_000, 9_000))
    buffer = io.BytesIO()
    wide.save(buffer, "PNG")
    answer = await client.post("/run/thumbnail", content=buffer.getvalue(), headers={"content-type": "image/png"})
    assert answer.status_code == 400
    assert "pixels, expected at most" in answer.json()["error"]
    bomb = gzip.compress(b'{"text": "' + b" " * 64 * 2**20 + b'"}')
    answer = await client.post(
        "/run/judge", content=bomb, headers={"content-encoding": "gzip", "content-type": "application/json"}
    )
    assert answer.status_code == 413


async def test_other_methods_and_models(client: httpx.AsyncClient) -> None:
    assert (await client.get("/run/judge")).status_code == 405
    assert (await client.post("/run/nothing", json={})).status_code == 404
    assert (await client.post("/run/judge/versions/9", json={})).status_code == 404
    assert (await client.post("/run/judge/versions/1", json={"text": "a"})).status_code == 200


async def test_the_description_has_the_schema_of_each_workflow(client: httpx.AsyncClient) -> None:
    description = (await client.get("/openapi.json")).json()
    body = description["paths"]["/run/judge"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert body["required"] == ["text"]
    options = body["properties"]["options"]
    assert options["properties"]["most"]["minimum"] == 1
    image = description["paths"]["/run/thumbnail"]["post"]["requestBody"]["content"]
    assert set(image) == {"application/json", "multipart/form-data", "image/*"}
