"""Wrong requests: each gets a 4xx whose text names what was wrong, and the server goes on."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest

from dyorc.config import GatewayConfig
from tests import oip
from tests.deadlines import TIMEOUT_S
from tests.integration.stack import Stack, running
from tests.workflows import arithmetic, tensors

X = np.array([1.5, 2.5, 3.5, 4.5], np.float32)
INDEX = np.array([3, 0], np.int64)
_GOOD = {"x": X, "index": INDEX}
_MAX_BYTES = 1_000_000


@pytest.fixture(scope="module")
async def stack(leaves_nothing: None) -> AsyncIterator[Stack]:
    """Starts one server for all requests of this module: none of them may harm it."""
    gateway = GatewayConfig(port=0, drain_timeout_s=1, max_request_bytes=_MAX_BYTES)
    async with running([tensors.affine, arithmetic.quadruple], gateway=gateway) as found:
        yield found


@dataclass(frozen=True)
class Bad:
    """A wrong request.

    Attributes:
        says: What the error's text has to contain.
    """

    body: oip.Body
    says: list[str]
    status: int = 400
    path: str = "/v2/models/affine/infer"


def _edited(edit: Callable[[dict[str, Any]], None]) -> oip.Body:
    """Returns a good JSON request after `edit`."""
    content = json.loads(oip.json_body(_GOOD).content)
    edit(content)
    return oip.Body(json.dumps(content).encode(), {})


def _input(at: int, **fields: Any) -> oip.Body:
    """Returns a good JSON request with other fields in one input."""
    return _edited(lambda content: content["inputs"][at].update(fields))


def _binary(at: int, cut: int | None = None, **fields: Any) -> oip.Body:
    """Returns a good binary request with other fields in one input, and bytes cut off or added at the end."""
    content = json.loads((good := oip.binary_body(_GOOD)).content[: (length := int(good.headers[oip.LENGTH_HEADER]))])
    content["inputs"][at].update(fields)
    head = json.dumps(content).encode()
    raw = good.content[length:][:cut] if cut is None or cut < 0 else good.content[length:] + b"\0" * cut
    return oip.Body(head + raw, {oip.LENGTH_HEADER: str(len(head))})


def _text(text: str | bytes, **headers: str) -> oip.Body:
    return oip.Body(
        text if isinstance(text, bytes) else text.encode(), {name.replace("_", "-"): value for name, value in headers.items()}
    )


def _rename(content: dict[str, Any]) -> None:
    content["inputs"][0]["name"] = "image"


def _deep_data(depth: int) -> oip.Body:
    return _text(oip.json_body(_GOOD).content.replace(b"[1.5, 2.5, 3.5, 4.5]", b"[" * depth + b"1" + b"]" * depth))


def _parameters(**parameters: Any) -> oip.Body:
    return _edited(lambda content: content.update(parameters=parameters))


_DEEP = b"[" * 10_000 + b"]" * 10_000
_NAN = np.array([1, np.nan, 3, 4], np.float32)
_INFINITE = np.array([1, 2, 3, -np.inf], np.float32)
_GOOD_LENGTH = len(oip.json_body(_GOOD).content)

TABLE: dict[str, Bad] = {
    # names
    "wrong input name": Bad(_edited(_rename), ["'affine' has no input 'image'", "['x', 'index']"]),
    "missing input": Bad(_edited(lambda content: content["inputs"].pop()), ["'affine'", "'index' is missing"]),
    "no inputs": Bad(_text('{"inputs": []}'), ["'x' is missing"]),
    "duplicate input": Bad(_edited(lambda content: content["inputs"].append(content["inputs"][0])), ["'x' was given twice"]),
    "unknown input too many": Bad(_edited(lambda c: c["inputs"].append({**c["inputs"][0], "name": "y"})), ["'y'"]),
    "unknown output": Bad(_edited(lambda content: content.update(outputs=[{"name": "y"}])), ["no output 'y'", "output"]),
    "unknown parameter": Bad(_parameters(factr=2.0), ["no parameter 'factr'", "factor"]),
    "tensor as parameter": Bad(_edited(lambda c: c.update(inputs=c["inputs"][:1], parameters={"index": 1})), ["'index'"]),
    "static as tensor": Bad(
        _edited(lambda c: c["inputs"].append({"name": "factor", "shape": [1], "datatype": "FP32", "data": [2]})),
        ["'factor'", "'parameters'"],
    ),
    # types
    "wrong dtype": Bad(
        oip.json_body({"x": X.astype(np.float64), "index": INDEX}), ["'x' is FP64, expected FP32; in NumPy, .astype(np.float32)"]
    ),
    "wrong dtype, binary": Bad(oip.binary_body({"x": X, "index": INDEX.astype(np.int32)}), ["'index' is INT32, expected INT64"]),
    "unknown datatype": Bad(_input(0, datatype="FLOAT32"), ["'x' has datatype 'FLOAT32'", "FP32"]),
    "strings in FP32": Bad(_input(0, data=["1", "2", "3", "4"]), ["'x'", "numbers (FP32)"]),
    "booleans in FP32": Bad(_input(0, data=[True, False, True, True]), ["'x'", "numbers (FP32)"]),
    "fractions in INT64": Bad(_input(1, data=[1.5, 2]), ["'index'", "whole numbers (INT64)"]),
    "null in FP32": Bad(_input(0, data=[1, None, 3, 4]), ["'x'", "numbers (FP32)"]),
    "objects in FP32": Bad(_input(0, data=[{}, {}, {}, {}]), ["'x'", "numbers (FP32)"]),
    "data is a number": Bad(_input(0, data=3), ["'x'", "list"]),
    "data is a text": Bad(_input(0, data="AAAA"), ["'x'", "list"]),
    "int overflow": Bad(_input(1, data=[2**70, 0]), ["'index'", f"outside the range of INT64: 0 to {2**70}"]),
    "just past INT64": Bad(_input(1, data=[2**63, -1]), ["'index'", f"outside the range of INT64: -1 to {2**63}"]),
    "float overflow": Bad(_input(0, data=[1e39, 0, 0, 0]), ["'x'", "outside the range of FP32: 0.0 to 1e+39"]),
    "static of wrong type": Bad(_parameters(factor="2"), ["parameter 'factor' is str '2', expected float"]),
    "timeout of wrong type": Bad(_parameters(timeout="soon"), ["'timeout'", "microseconds"]),
    "timeout of 400 digits": Bad(_parameters(timeout=10**400), ["'timeout' is a number of 1329 bits"]),
    "static of 400 digits": Bad(_parameters(factor=10**400), ["'factor' is a number of 1329 bits"]),
    "one past 64 bits": Bad(_parameters(priority=2**63), ["'priority' is 9223372036854775808, expected a number from -", "807"]),
    "binary output that is no boolean": Bad(
        _parameters(binary_data_output="yes"), ["'binary_data_output' is 'yes', expected true or false"]
    ),
    "binary output that is no boolean, for generate": Bad(
        _text('{"x": [1, 2, 3, 4], "index": [0, 1], "binary_data_output": "yes"}'),
        ["'binary_data_output' is 'yes', expected true or false"],
        path="/v2/models/affine/generate",
    ),
    "binary data of an output that is no boolean": Bad(
        _edited(lambda content: content.update(outputs=[{"name": "output", "parameters": {"binary_data": 1}}])),
        ["'binary_data' of output 'output' is 1, expected true or false"],
    ),
    "a negative number of classes": Bad(
        _edited(lambda content: content.update(outputs=[{"name": "output", "parameters": {"classification": -1}}])),
        ["'classification' of output 'output' is -1, expected a number of classes"],
    ),
    "a sequence": Bad(_parameters(sequence_id=7), ["'sequence_id' is 7", "sequences are not supported"], 501),
    "a sequence with a text": Bad(_parameters(sequence_id="seven"), ["'sequence_id' is 'seven'"], 501),
    "the start of a sequence": Bad(_parameters(sequence_start=True), ["'sequence_start' is True"], 501),
    "the end of a sequence": Bad(_parameters(sequence_id=0, sequence_end=True), ["'sequence_end' is True"], 501),
    "timeout true": Bad(_parameters(timeout=True), ["'timeout' is True"]),
    "negative priority": Bad(_parameters(priority=-1), ["'priority' is -1"]),
    # shapes
    "wrong rank": Bad(_input(0, shape=[2, 2]), ["'x' has rank 2 (shape [2, 2])", "rank 1 [4]"]),
    "wrong dimension": Bad(_input(0, shape=[3], data=[1, 2, 3]), ["'x' has size 3 in dimension 0, expected 4"]),
    "too few elements": Bad(_input(0, data=[1, 2, 3]), ["'x' has 3 elements", "[4] has 4"]),
    "too many elements": Bad(_input(0, data=[1, 2, 3, 4, 5]), ["'x' has 5 elements", "[4] has 4"]),
    "ragged data": Bad(_input(0, data=[[1, 2], [3]]), ["'x'", "evenly nested"]),
    "negative size": Bad(_input(0, shape=[-4]), ["'x' has shape [-4]"]),
    "huge shape": Bad(_input(0, shape=[2**62, 2**62]), ["'x'", str(2**62), str(2**48)]),
    "shape is a text": Bad(_input(0, shape="4"), ["shape"]),
    "zero elements": Bad(_input(0, shape=[0], data=[]), ["'x' has size 0 in dimension 0, expected 4"]),
    # values
    "NaN, binary": Bad(oip.binary_body({"x": _NAN, "index": INDEX}), ["'x' holds nan at [1]", "finite"]),
    "infinity, binary": Bad(oip.binary_body({"x": _INFINITE, "index": INDEX}), ["'x' holds -inf at [3]", "finite"]),
    "NaN, JSON": Bad(_text(oip.json_body({"x": _NAN, "index": INDEX}).content), ["malformed"]),
    # binary data
    "byte count too small": Bad(_binary(1, parameters={"binary_data_size": 8}, cut=-8), ["'index' has 8 bytes", "[2] has 16"]),
    "byte count too large": Bad(_binary(1, parameters={"binary_data_size": 24}, cut=8), ["'index' has 24 bytes", "[2] has 16"]),
    "truncated body": Bad(_binary(1, cut=-1), ["'index' announces 16 bytes, 15 are left"]),
    "bytes left over": Bad(_binary(1, cut=3), ["32 bytes", "35"]),
    "negative byte count": Bad(_binary(0, parameters={"binary_data_size": -16}), ["'x' has binary_data_size -16"]),
    "byte count is a text": Bad(_binary(0, parameters={"binary_data_size": "16"}), ["'x' has binary_data_size '16'"]),
    "data and bytes": Bad(_binary(0, data=[1, 2, 3, 4]), ["'x' has both"]),
    "neither data nor bytes": Bad(_edited(lambda content: content["inputs"][0].pop("data")), ["'x' has neither"]),
    "header length larger than body": Bad(
        oip.Body(oip.json_body(_GOOD).content, {oip.LENGTH_HEADER: "999999"}), ["999999", f"{_GOOD_LENGTH} bytes"]
    ),
    "header length not a number": Bad(oip.Body(oip.json_body(_GOOD).content, {oip.LENGTH_HEADER: "all"}), ["'all'"]),
    "header length negative": Bad(oip.Body(oip.json_body(_GOOD).content, {oip.LENGTH_HEADER: "-1"}), ["'-1'"]),
    "header length of 5,000 digits": Bad(
        oip.Body(oip.json_body(_GOOD).content, {oip.LENGTH_HEADER: "9" * 5000}), [oip.LENGTH_HEADER]
    ),
    # JSON
    "empty body": Bad(_text(""), ["malformed"]),
    "malformed JSON": Bad(_text('{"inputs": [}'), ["malformed"]),
    "truncated JSON": Bad(_text(oip.json_body(_GOOD).content[:-1]), ["malformed"]),
    "not UTF-8": Bad(_text(b'{"id": "\xff\xfe", "inputs": []}'), ["malformed"]),
    "JSON is a list": Bad(_text("[]"), ["malformed", "object"]),
    "inputs is an object": Bad(_text('{"inputs": {}}'), ["inputs", "array"]),
    "id is a number": Bad(_text('{"id": 1, "inputs": []}'), ["id", "str"]),
    "10,000 deep in data": Bad(_deep_data(10_000), ["nested too deeply"]),
    "150 deep in data": Bad(_deep_data(150), ["nested"]),
    "10,000 deep in an unknown field": Bad(_text(b'{"x": ' + _DEEP + b', "inputs": []}'), ["unknown field `x`"]),
    "inputs as fields": Bad(_text(b'{"x": [1]}'), ["unknown field `x`", "'inputs'", "/v2/models/affine/generate"]),
    "unknown field": Bad(_edited(lambda content: content.update(output=[])), ["unknown field `output`"]),
    "field of a job": Bad(_edited(lambda content: content.update(ttl_s=5)), ["unknown field `ttl_s`"]),
    "unknown field of an input": Bad(_input(0, dtype="FP32"), ["unknown field `dtype`", "inputs"]),
    "unknown field of an output": Bad(
        _edited(lambda content: content.update(outputs=[{"name": "output", "binary_data": True}])),
        ["unknown field `binary_data`", "outputs"],
    ),
    "10,000 deep in parameters": Bad(_text(b'{"parameters": {"a": ' + _DEEP + b'}, "inputs": []}'), ["nested too deeply"]),
    "compressed": Bad(oip.Body(b"\x1f\x8b", {"Content-Encoding": "gzip"}), ["ends in the middle of its gzip stream"]),
    "compressed in an unknown way": Bad(oip.Body(b"", {"Content-Encoding": "br"}), ["Content-Encoding is 'br', expected gzip"]),
    "timeout that is not a number": Bad(
        oip.Body(b"{}", {"Request-Timeout": "1e3"}), ["Request-Timeout is '1e3', expected seconds"]
    ),
    # models
    "unknown model": Bad(oip.json_body(_GOOD), ["unknown model 'afine'", "affine"], 404, "/v2/models/afine/infer"),
    "unknown version": Bad(oip.json_body(_GOOD), ["'affine' has no version '2'"], 404, "/v2/models/affine/versions/2/infer"),
}


@pytest.mark.parametrize("bad", TABLE.values(), ids=TABLE.keys())
async def test_the_error_of_a_wrong_request_says_what_is_wrong_and_the_next_is_served(stack: Stack, bad: Bad) -> None:
    response = await stack.client.post(bad.path, content=bad.body.content, headers=bad.body.headers)
    text = oip.error_text(response)
    print(f"\n{response.status_code} {text[:300]}")
    assert response.status_code == bad.status, text
    assert [word for word in bad.says if word not in text] == [], text
    assert len(text) < 1000
    await _expect_good(stack.client)


async def _expect_good(client: httpx.AsyncClient) -> None:
    for body in (oip.json_body(_GOOD, parameters={"factor": 2}), oip.binary_body(_GOOD, parameters={"factor": 2.0})):
        answer = await client.post("/v2/models/affine/infer", content=body.content, headers=body.headers)
        np.testing.assert_array_equal(oip.read(answer).outputs["output"], np.array([9, 3], np.float32))


@pytest.mark.parametrize("has_length", [True, False], ids=["announced", "chunked"])
@pytest.mark.parametrize("num_bytes", [_MAX_BYTES + 1, 3 * _MAX_BYTES])
async def test_a_body_that_is_too_large_is_refused_with_both_sizes(stack: Stack, num_bytes: int, has_length: bool) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for at in range(0, num_bytes, 65536):
            yield b" " * min(65536, num_bytes - at)

    content = b" " * num_bytes if has_length else chunks()
    response = await stack.client.post("/v2/models/affine/infer", content=content)
    assert response.status_code == 413
    assert oip.error_text(response) == f"the request's body has {num_bytes} bytes, the limit is {_MAX_BYTES}"
    await _expect_good(stack.client)


async def test_a_body_of_100_mb_is_refused_and_not_kept(stack: Stack) -> None:
    try:
        response = await stack.client.post("/v2/models/affine/infer", content=b" " * 100_000_000)
        assert response.status_code == 413
        assert str(_MAX_BYTES) in oip.error_text(response)
    except httpx.NetworkError:
        pass  # the server hung up in the middle, as it may
    await _expect_good(stack.client)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("POST", "/v2/models/affine", 405),
        ("DELETE", "/v2", 405),
        ("POST", "/v2/health/live", 405),
        ("GET", "/v2/models/affine/infer", 405),
        ("PUT", "/v2/models/affine/infer", 405),
        ("GET", "/v2/models/afine", 404),
        ("GET", "/v2/models/afine/ready", 404),
        ("GET", "/v2/models/affine/versions/2", 404),
        ("POST", "/v2/models/affine/versions/1/regenerate", 404),
        ("POST", "/v2/models//infer", 404),
        ("POST", "/v2/models/a/b/infer", 404),
    ],
)
async def test_every_wrong_route_answers_in_json(stack: Stack, method: str, path: str, status: int) -> None:
    response = await stack.client.request(method, path)
    print(f"\n{response.status_code} {response.text[:200]}")
    assert oip.error_text(response)
    assert response.status_code == status


async def test_a_request_that_is_not_http_does_no_harm(stack: Stack) -> None:
    url = stack.client.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"\x16\x03\x01\x00garbage\r\n\r\n")
    await writer.drain()
    assert (await asyncio.wait_for(reader.read(), TIMEOUT_S)).startswith(b"HTTP/1.1 400")
    writer.close()
    await writer.wait_closed()
    await _expect_good(stack.client)
