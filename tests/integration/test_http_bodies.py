"""Compressed bodies and answers, raw requests, plain JSON values and timeouts, against a running server."""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from dyorc.config import GatewayConfig
from tests import oip
from tests.deadlines import TIMEOUT_S
from tests.integration.stack import Stack, running
from tests.workflows import arithmetic, slow, tensors

_MAX_BYTES = 2_000_000
_PACK: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress, "identity": bytes}
_UNPACK: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "deflate": zlib.decompress}


@pytest.fixture(scope="module")
async def stack(leaves_nothing: None) -> AsyncIterator[Stack]:
    """Starts one server for this module."""
    gateway = GatewayConfig(port=0, drain_timeout_s=1, max_request_bytes=_MAX_BYTES)
    targets = [
        arithmetic.sums,
        arithmetic.quadruple,
        tensors.echo,
        tensors.shift,
        tensors.brighter,
        slow.gated,
        tensors.next_number,
    ]
    async with running(targets, gateway=gateway) as found:
        yield found


async def _post(stack: Stack, path: str, body: bytes, **headers: str) -> httpx.Response:
    """Sends a body without headers that httpx would add; returns the answer as it came."""
    request = stack.client.build_request("POST", path, content=body)
    for name in ("accept-encoding", "accept"):
        del request.headers[name]
    request.headers.update({name.replace("_", "-"): value for name, value in headers.items()})
    response = await stack.client.send(request, stream=True)
    response._content = b"".join([part async for part in response.aiter_raw()])  # httpx would decompress it
    await response.aclose()
    return response


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "identity"])
@pytest.mark.parametrize("num", [1, 3_000, 300_000])
@pytest.mark.parametrize("is_binary", [True, False])
async def test_bodies_may_be_compressed(stack: Stack, encoding: str, num: int, is_binary: bool) -> None:
    make = oip.binary_body if is_binary else oip.json_body
    body = make({"x": np.ones(num, np.float32)})
    headers = {oip.LENGTH_HEADER: body.headers[oip.LENGTH_HEADER]} if is_binary else {}
    response = await _post(stack, "/v2/models/sums/infer", _PACK[encoding](body.content), Content_Encoding=encoding, **headers)
    assert oip.read(response).outputs["total"] == num
    assert not {"vary", "content-encoding"} & response.headers.keys(), "nobody asked for that"


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_body_that_unpacks_beyond_the_limit_is_refused(stack: Stack, encoding: str) -> None:
    response = await _post(stack, "/v2/models/sums/infer", _PACK[encoding](bytes(50_000_000)), Content_Encoding=encoding)
    assert response.status_code == 413
    assert f"more than {_MAX_BYTES} bytes" in oip.error_text(response)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("is_binary", [True, False])
@pytest.mark.parametrize("num", [1_000, 100_000])
async def test_answers_are_compressed_if_asked_for(stack: Stack, encoding: str, is_binary: bool, num: int) -> None:
    image = np.arange(num, dtype=np.uint8).reshape(1, num)
    empty = {"flags": np.zeros(0, np.bool_), "halves": np.zeros(0, np.float16), "brains": np.zeros(0, oip.NUMPY["BF16"])}
    body = oip.binary_body(
        {**empty, "texts": np.zeros(0, dtype=object), "image": image},
        outputs=[{"name": "transposed", "parameters": {"binary_data": is_binary}}],
    )
    response = await _post(stack, "/v2/models/echo/infer", body.content, **body.headers, Accept_Encoding=encoding)
    assert response.headers["content-encoding"] == encoding
    assert response.headers["vary"] == "accept-encoding"
    assert int(response.headers["content-length"]) == len(response.content) < num
    content = _UNPACK[encoding](response.content)
    length = int(response.headers.get(oip.LENGTH_HEADER, len(content)))
    assert ("inference-header-content-length" in response.headers) == is_binary
    output = json.loads(content[:length])["outputs"][0]
    found = np.frombuffer(content[length:], np.uint8) if is_binary else np.array(output["data"], np.uint8)
    assert found.tolist() == image.reshape(-1).tolist()


async def test_short_answers_and_errors_are_not_compressed(stack: Stack) -> None:
    body = oip.json_body({"x": np.ones(3, np.float32)})
    response = await _post(stack, "/v2/models/sums/infer", body.content, Accept_Encoding="gzip")
    assert oip.read(response).outputs["total"] == 3
    assert response.headers["vary"] == "accept-encoding"
    refused = await _post(stack, "/v2/models/sums/infer", b"{}", Accept_Encoding="gzip")
    assert refused.status_code == 400
    assert "inputs" in oip.error_text(refused)


@pytest.mark.parametrize("num", [0, 5, 400_000])
async def test_a_body_may_be_the_only_input(stack: Stack, num: int) -> None:
    x = np.ones(num, np.float32)
    response = await _post(stack, "/v2/models/sums/infer", x.tobytes(), Inference_Header_Content_Length="0")
    answer = oip.read(response)
    assert answer.outputs["total"] == num
    assert answer.binary == {"total", "num_calls"}, "all outputs come as raw bytes"
    packed = gzip.compress(x.tobytes())
    response = await _post(stack, "/v2/models/sums/infer", packed, Inference_Header_Content_Length="0", Content_Encoding="gzip")
    assert oip.read(response).outputs["total"] == num


@pytest.mark.parametrize(
    ("model", "num_bytes", "says"),
    [
        ("sums", 7, "input 'x' has 7 bytes, expected a multiple of 4"),
        ("quadruple", 12, "input 'x' has 12 bytes, FP32[4] has 16"),
        ("echo", 4, "needs a model with one input; model 'echo' has ['flags'"),
        ("brighter", 12, "2 dimensions of any size"),
        ("shift", 16, "'by' is missing"),
    ],
)
async def test_a_body_that_cannot_be_the_only_input_is_refused(stack: Stack, model: str, num_bytes: int, says: str) -> None:
    response = await _post(stack, f"/v2/models/{model}/infer", bytes(num_bytes), Inference_Header_Content_Length="0")
    assert response.status_code == 400
    assert says in oip.error_text(response)


@pytest.mark.parametrize(
    ("model", "fields", "expected"),
    [
        ("sums", {"x": 2.5}, {"total": 2.5, "num_calls": 1}),
        ("sums", {"x": [1, 2, 3]}, {"total": 6.0, "num_calls": 1}),
        ("sums", {"x": []}, {"total": 0.0, "num_calls": 1}),
        ("sums", {"parameters": {"x": [4], "priority": 1}}, {"total": 4.0, "num_calls": 1}),
        ("quadruple", {"x": [1, 2, 3, 4]}, {"output": [4.0, 8.0, 12.0, 16.0]}),
        ("shift", {"x": [1, 2, 3, 4], "by": 2}, {"output": [3.0, 4.0, 5.0, 6.0]}),
        ("shift", {"x": [1, 2, 3, 4], "parameters": {"by": 2, "label": "a"}}, {"output": [3.0, 4.0, 5.0, 6.0]}),
        ("brighter", {"image": [[[0, 1, 2]], [[3, 4, 255]]]}, {"output": [10, 11, 12, 13, 14, 255]}),
        ("brighter", {"image": [0, 1, 2, 3, 4, 255]}, {"output": [10, 11, 12, 13, 14, 255]}),
        ("next_number_", {"x": 2**64 - 1}, {"output": 0}),
    ],
)
async def test_generate_takes_plain_values(stack: Stack, model: str, fields: dict[str, Any], expected: dict[str, Any]) -> None:
    model = model.rstrip("_")
    response = await stack.client.post(f"/v2/models/{model}/generate", json={"id": "7", **fields})
    assert response.status_code == 200, response.text
    assert response.json() == {**expected, "model_name": model, "model_version": "1", "id": "7"}
    stream = await stack.client.post(f"/v2/models/{model}/versions/1/generate_stream", json=fields)
    assert json.loads(stream.text.removeprefix("data: ")) == {**expected, "model_name": model, "model_version": "1"}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "'x' is missing"),
        (b"[1]", "malformed"),
        (b"{", "malformed"),
        (b'{"x": "text"}', "'x' has 1 elements, which do not fit its shape [4]"),
        (b'{"x": [1, 2, 3, null]}', "not an evenly nested list of numbers"),
        (b'{"x": [1, 2, 3]}', "'x' has size 3 in dimension 0, expected 4"),
        (b'{"x": [[1, 2], [3, 4]]}', "has rank 2"),
        (b'{"x": [1, [2], 3, 4]}', "not an evenly nested list of numbers"),
        (b'{"x": ' + b"[" * 40 + b"1" + b"]" * 40 + b"}", "'x' has rank 32"),
        (b'{"x": ' + b"[" * 100_000 + b"1" + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"x": [1, 2, 3, 4], "id": 7}', "'id' is 7, expected a string"),
        (b'{"x": [1, 2, 3, 4], "y": 7}', "has no parameter 'y'"),
        (b'{"x": [1, 2, 3, 4], "y": [7]}', "'y' is not an input of model 'quadruple'"),
        (b'{"x": [1, 2, 3, 4], "parameters": 1}', "'parameters' is not an object"),
        (b'{"x": [1, 2, 3, 4], "parameters": {"x": 1}}', "'x' was given twice"),
    ],
)
async def test_errors_of_generate_say_what_is_wrong(stack: Stack, body: bytes, says: str) -> None:
    response = await stack.client.post("/v2/models/quadruple/generate", content=body)
    assert response.status_code == 400
    assert says in oip.error_text(response)


@pytest.mark.parametrize("parameters", [{}, {"timeout": 60_000_000}])
async def test_the_request_timeout_applies(stack: Stack, tmp_path: Path, parameters: dict[str, Any]) -> None:
    body = oip.json_body({"x": np.zeros(4, np.float32)}, parameters={"folder": str(tmp_path), **parameters})
    try:
        response = await _post(stack, "/v2/models/gated/infer", body.content, Request_Timeout="0.25")
        assert response.status_code == 504
        oip.error_text(response)
    finally:
        await asyncio.to_thread((tmp_path / "open").touch)


async def test_a_timeout_in_the_parameters_counts_beside_a_longer_one_in_the_header(stack: Stack, tmp_path: Path) -> None:
    body = oip.json_body({"x": np.zeros(4, np.float32)}, parameters={"folder": str(tmp_path), "timeout": 250_000})
    try:
        response = await _post(stack, "/v2/models/gated/infer", body.content, Request_Timeout="60")
        assert response.status_code == 504
    finally:
        await asyncio.to_thread((tmp_path / "open").touch)


@pytest.mark.parametrize("value", ["-1", "1e3", "nan", "inf", "0x1", "", "1,5", "9" * 400, "soon"])
async def test_a_timeout_that_is_not_a_number_is_refused(stack: Stack, value: str) -> None:
    response = await _post(stack, "/v2/models/sums/infer", b"{}", Request_Timeout=value)
    assert response.status_code == 400
    assert "Request-Timeout" in oip.error_text(response)


@pytest.mark.parametrize("path", ["infer", "generate"])
async def test_a_timeout_of_zero_in_the_parameters_is_none(stack: Stack, path: str) -> None:
    sent = {"infer": oip.json_body({"x": np.ones(3, np.float32)}, parameters={"timeout": 0}).content,
            "generate": b'{"x": [1, 1, 1], "parameters": {"timeout": 0}}'}  # fmt: skip
    assert (await _post(stack, f"/v2/models/sums/{path}", sent[path])).status_code == 200
    late = await _post(stack, f"/v2/models/sums/{path}", sent[path], Request_Timeout="0")
    assert late.status_code == 504, "in the header, 0 leaves no time, and the smaller of the two counts"


async def test_a_timeout_of_zero_is_over_at_once(stack: Stack) -> None:
    body = oip.json_body({"x": np.ones(3, np.float32)})
    response = await _post(stack, "/v2/models/sums/infer", body.content, Request_Timeout="0")
    assert response.status_code == 504


@pytest.mark.parametrize("header", ["Expect: 100-continue", "Content-Encoding: gzip", f"{oip.LENGTH_HEADER}: 10", "Accept: */*"])
@pytest.mark.parametrize(
    "path", ["/v2/models/echo/infer", "/v2/models/echo/generate", "/run/echo", "/v1/chat/completions", "/v2/logging"]
)
async def test_a_body_that_is_too_large_is_refused_before_it_comes(stack: Stack, path: str, header: str) -> None:
    place = stack.client.base_url
    reader, writer = await asyncio.open_connection(place.host, place.port)
    head = f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {_MAX_BYTES + 1}\r\n{header}\r\n\r\n"
    writer.write(head.encode())
    async with asyncio.timeout(TIMEOUT_S):
        answer = await reader.read()  # until the connection is closed
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer
    writer.close()


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/docs"), ("GET", "/v2"), ("POST", "/v2/models/echo/infer_stream"), ("GET", "/nowhere")]
)
async def test_no_header_is_sent_twice(stack: Stack, method: str, path: str) -> None:
    body = oip.json_body({"x": np.ones(2, np.float32)}).content if method == "POST" else b""
    answer = await stack.client.request(method, path, content=body)
    names = [name.lower() for name, _ in answer.headers.multi_items()]
    assert sorted(names) == sorted(set(names))
    assert answer.headers["cache-control"] == "no-store"
