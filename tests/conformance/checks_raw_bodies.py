"""3.2 and 3.3 by hand: bodies in every form, and with every kind of error."""

from __future__ import annotations

import gzip
import json
import socket
import zlib
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np

from tests.conformance.checks_raw_routes import check_error
from tests.conformance.rows import Table, expect
from tests.oip import LENGTH_HEADER, Body, binary_body, json_body, read

_X = np.arange(4, dtype=np.float32)
_INFER = "/v2/models/behave/infer"
_MIRROR = "/v2/models/mirror/infer"
_MAX_BODY_BYTES = 64 * 2**20  # as in Triton


def tensor(**changes: Any) -> dict[str, Any]:
    """Returns an input of `behave` as JSON; None takes a member out."""
    found = {"name": "x", "shape": [4], "datatype": "FP32", "data": [0, 1, 2, 3]} | changes
    return {key: value for key, value in found.items() if value is not None}


async def post(client: httpx.AsyncClient, path: str, content: bytes, headers: Mapping[str, str] = {}) -> httpx.Response:
    """Sends one request, its content as it is."""
    return await client.post(path, content=content, headers=dict(headers))


async def send(client: httpx.AsyncClient, body: Body, path: str = _INFER, **headers: str) -> httpx.Response:
    """Sends one request of the protocol."""
    return await post(
        client, path, body.content, {**body.headers, **{key.replace("_", "-"): value for key, value in headers.items()}}
    )


def good(response: httpx.Response, expected: np.ndarray = _X, name: str = "output") -> None:
    """Raises unless the answer is right."""
    found = read(response).outputs[name]
    expect(found.shape, expected.shape, "the shape")
    assert (found == expected).all(), found


# ------------------------------------------------------------------------------------------------------------------------ JSON


async def nested_and_flat(client: httpx.AsyncClient) -> None:
    image = np.arange(64, dtype=np.float32) / 64
    answers: list[Any] = []
    for data in (image.tolist(), image.reshape(1, 8, 8).tolist(), image.reshape(8, 8).tolist()):
        body = {"inputs": [{"name": "image", "shape": [1, 8, 8], "datatype": "FP32", "data": data}]}
        answers.append((await post(client, "/v2/models/classify/infer", json.dumps(body).encode())).json()["outputs"])
    assert answers[0] == answers[1] == answers[2], answers


async def ids(client: httpx.AsyncClient) -> None:
    expect((await send(client, json_body({"x": _X}, id="a b"))).json()["id"], "a b", "the id")
    assert not (await send(client, json_body({"x": _X}))).json().get("id"), "an id that nobody gave"


async def answer_in_json(client: httpx.AsyncClient) -> None:
    response = await send(client, json_body({"x": _X}))
    assert response.headers["content-type"].startswith("application/json"), response.headers
    assert LENGTH_HEADER not in response.headers, response.headers
    found = response.json()
    expect((found["model_name"], found["model_version"]), ("behave", "1"), "name and version")
    expect(found["outputs"][0] | {"data": None}, {"name": "output", "datatype": "FP32", "shape": [4], "data": None}, "the output")


async def half_precision(client: httpx.AsyncClient) -> None:
    for datatype, name in (("FP16", "fp16"), ("BF16", "bf16")):
        body = {"inputs": [{"name": name, "shape": [1, 1], "datatype": datatype, "data": [1]}]}
        error = check_error(await post(client, "/v2/models/every_type/infer", json.dumps(body).encode()), 400)
        assert datatype in error["error"], error


MALFORMED: dict[str, bytes | dict[str, Any]] = {
    "no body": b"",
    "no JSON": b"{",
    "not an object": b"[1]",
    "no UTF-8": b'{"id": "\xff", "inputs": []}',
    "no inputs": b"{}",
    "inputs that are no list": {"inputs": 1},
    "an input without a name": {"inputs": [tensor(name=None)]},
    "an input without a shape": {"inputs": [tensor(shape=None)]},
    "an input without a type": {"inputs": [tensor(datatype=None)]},
    "an input without data": {"inputs": [tensor(data=None)]},
    "an unknown type": {"inputs": [tensor(datatype="FP8")]},
    "a negative size": {"inputs": [tensor(shape=[-4])]},
    "a size that is no whole number": {"inputs": [tensor(shape=[4.5])]},
    "a huge size": {"inputs": [tensor(shape=[2**62, 2**62])]},
    "too few elements": {"inputs": [tensor(data=[1])]},
    "too many elements": {"inputs": [tensor(data=[1] * 5)]},
    "uneven lists": {"inputs": [tensor(shape=[2, 2], data=[[1, 2], [3]])]},
    "texts for numbers": {"inputs": [tensor(data=["a"] * 4)]},
    "an input given twice": {"inputs": [tensor(), tensor()]},
    "an id that is no text": {"id": 7, "inputs": [tensor()]},
    "parameters that are no object": {"parameters": [1], "inputs": [tensor()]},
    "a timeout that is no number": {"parameters": {"timeout": "soon"}, "inputs": [tensor()]},
    "a priority below 0": {"parameters": {"priority": -1}, "inputs": [tensor()]},
    "an unknown output": {"inputs": [tensor()], "outputs": [{"name": "nothing"}]},
    "nested 1,000 deep": b'{"inputs": ' + b"[" * 1000 + b"]" * 1000 + b"}",
    "nested 100,000 deep": b'{"parameters": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b', "inputs": []}',
    "binary data that is not announced": {"inputs": [tensor(data=None, parameters={"binary_data_size": 16})]},
    "data and binary data": {"inputs": [tensor(parameters={"binary_data_size": 0})]},
    "data and shared memory": {
        "inputs": [tensor(parameters={"shared_memory_region": "r", "shared_memory_byte_size": 16})],
    },
    "shared memory without a size": {"inputs": [tensor(data=None, parameters={"shared_memory_region": "r"})]},
    "an output as binary data and in shared memory": {
        "inputs": [tensor()],
        "outputs": [{
            "name": "output",
            "parameters": {"binary_data": True, "shared_memory_region": "r", "shared_memory_byte_size": 16},
        }],
    },
}  # fmt: skip


async def malformed(client: httpx.AsyncClient, content: bytes | dict[str, Any]) -> None:
    """The answer is 400, and the connection goes on. Regions are looked up first, so the error may be about a missing one."""
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    statuses = (400, 404) if b'"r"' in raw else (400,)
    check_error(await post(client, _INFER, raw), *statuses)
    good(await send(client, json_body({"x": _X})))


# ---------------------------------------------------------------------------------------------------------------- binary data


async def answer_in_binary(client: httpx.AsyncClient) -> None:
    response = await send(client, binary_body({"x": _X}, parameters={"binary_data_output": True}))
    expect(response.headers["content-type"], "application/octet-stream", "the content type")
    head = json.loads(response.content[: int(response.headers[LENGTH_HEADER])])
    expect(head["outputs"][0]["parameters"]["binary_data_size"], 16, "binary_data_size")
    good(response)


async def content_types(client: httpx.AsyncClient) -> None:
    """Clients send none, or a wrong one."""
    for kind in ("", "text/plain", "application/json; charset=latin-1", "application/x-www-form-urlencoded", "nonsense"):
        good(await send(client, binary_body({"x": _X}), content_type=kind))


async def announced_length(client: httpx.AsyncClient) -> None:
    body = binary_body({"x": _X})
    for length in ("-1", "ten", "1.5", "", str(len(body.content) + 1), "9" * 40):
        check_error(await post(client, _INFER, body.content, {LENGTH_HEADER: length}), 400)
    good(await send(client, body))


async def too_few_or_many_bytes(client: httpx.AsyncClient) -> None:
    body = binary_body({"x": _X})
    for content in (body.content[:-1], body.content + b"\0"):
        check_error(await post(client, _INFER, content, body.headers), 400)
    for size in (-1, 15, 17, 2**40, "16", 1.5, True):
        head = json.dumps({"inputs": [tensor(data=None, parameters={"binary_data_size": size})]}).encode()
        check_error(await post(client, _INFER, head + _X.tobytes(), {LENGTH_HEADER: str(len(head))}), 400)
    texts = np.array([b"abc"], dtype=object)
    whole = binary_body({"x": _X, "texts": texts})
    broken = whole.content[:-7] + b"\xff\xff\xff\xff" + whole.content[-3:]
    check_error(await post(client, _MIRROR, broken, whole.headers), 400)


async def raw_binary(client: httpx.AsyncClient) -> None:
    """A body may be nothing but the one input's bytes; all outputs come in binary."""
    response = await post(client, _INFER, _X.tobytes(), {LENGTH_HEADER: "0"})
    good(response)
    assert read(response).binary == {"output"}, "the output is not binary"
    image = np.zeros((1, 8, 8), np.float32)
    found = read(await post(client, "/v2/models/classify/infer", image.tobytes(), {LENGTH_HEADER: "0"}))
    expect(found.binary, {"probabilities", "took_large"}, "the binary outputs")


async def raw_binary_errors(client: httpx.AsyncClient) -> None:
    """The body is refused if it is not whole elements, not the size of the shape, or if there is more than one input."""
    check_error(await post(client, _INFER, _X.tobytes()[:-1], {LENGTH_HEADER: "0"}), 400)
    check_error(await post(client, _MIRROR, _X.tobytes(), {LENGTH_HEADER: "0"}), 400)
    check_error(await post(client, "/v2/models/classify/infer", _X.tobytes(), {LENGTH_HEADER: "0"}), 400)


# ---------------------------------------------------------------------------------------------------------------- compression

PACKED = {"gzip": gzip.compress, "deflate": zlib.compress}


async def packed_requests(client: httpx.AsyncClient, encoding: str) -> None:
    """The length of the JSON counts after unpacking. The answer is compressed only on request."""
    for body in (json_body({"x": _X}), binary_body({"x": _X})):
        content = PACKED[encoding](body.content)
        headers = {**body.headers, "Content-Encoding": encoding, "Accept-Encoding": "identity"}
        response = await post(client, _INFER, content, headers)
        assert "content-encoding" not in response.headers, response.headers
        good(response)


async def packed_answers(client: httpx.AsyncClient, encoding: str) -> None:
    x = np.zeros(5000, np.float32)
    for accepted in (encoding, f"br, {encoding};q=0.5, identity;q=0.1"):
        body = binary_body({"x": x}, parameters={"binary_data_output": True})
        response = await send(client, body, accept_encoding=accepted)
        expect(response.headers.get("content-encoding"), encoding, f"the encoding for {accepted!r}")
        assert int(response.headers["content-length"]) < x.nbytes, "not smaller"
        good(response, x)


async def unwanted_compression(client: httpx.AsyncClient) -> None:
    x = np.zeros(5000, np.float32)
    for accepted in ("identity", "gzip;q=0", "br", ""):
        response = await send(client, binary_body({"x": x}, parameters={"binary_data_output": True}), accept_encoding=accepted)
        assert "content-encoding" not in response.headers, (accepted, response.headers)
        good(response, x)


async def broken_compression(client: httpx.AsyncClient) -> None:
    body = binary_body({"x": _X})
    for encoding, pack in PACKED.items():
        for content in (pack(body.content)[:-4], b"nonsense", b""):
            check_error(await post(client, _INFER, content, {**body.headers, "Content-Encoding": encoding}), 400)
    check_error(await post(client, _INFER, body.content, {**body.headers, "Content-Encoding": "br"}), 400, 415)
    good(await send(client, body))


async def compression_bomb(client: httpx.AsyncClient) -> None:
    """A body of 1 MB that would become 1 GB is refused."""
    packer = zlib.compressobj(9, wbits=31)
    zeros = bytes(2**20)
    content = b"".join(packer.compress(zeros) for _ in range(1024)) + packer.flush()
    check_error(await post(client, _INFER, content, {"Content-Encoding": "gzip", LENGTH_HEADER: "10"}), 400, 413)
    good(await send(client, json_body({"x": _X})))


# ------------------------------------------------------------------------------------------------------------------- statuses


async def too_large(client: httpx.AsyncClient) -> None:
    content = bytes(_MAX_BODY_BYTES + 1)
    check_error(await post(client, _INFER, content, {LENGTH_HEADER: "10"}), 413)
    good(await send(client, json_body({"x": _X})))


async def as_large_as_allowed(client: httpx.AsyncClient) -> None:
    x = np.zeros((_MAX_BODY_BYTES - 1024) // 4, np.float32)
    good(await send(client, binary_body({"x": x}, parameters={"binary_data_output": True})), x)


async def deadline(client: httpx.AsyncClient) -> None:
    body = json_body({"x": _X}, parameters={"rest_s": 0.5, "timeout": 50_000})
    error = check_error(await send(client, body), 504)
    assert "timeout" in error["error"] or "deadline" in error["error"] or "time" in error["error"], error


async def deadline_in_a_header(client: httpx.AsyncClient) -> None:
    """Beyond the protocol: the smaller of the header and the parameter applies."""
    body = json_body({"x": _X}, parameters={"rest_s": 0.5, "timeout": 10_000_000})
    check_error(await send(client, body, request_timeout="0.05"), 504)
    for value in ("soon", "-1", "nan"):
        check_error(await send(client, json_body({"x": _X}), request_timeout=value), 400)


async def failure(client: httpx.AsyncClient) -> None:
    error = check_error(await send(client, json_body({"x": _X}, parameters={"fails": True})), 500)
    assert "asked to fail" in error["error"], error


# ----------------------------------------------------------------------------------------------------------------- connections


async def chunked(client: httpx.AsyncClient) -> None:
    """A body may have no length."""
    body = binary_body({"x": _X})

    async def parts() -> AsyncIterator[bytes]:
        for at in range(0, len(body.content), 10):
            yield body.content[at : at + 10]

    good(await client.post(_INFER, content=parts(), headers=dict(body.headers)))


async def pipelined(client: httpx.AsyncClient) -> None:
    """Several requests are sent before the first answer; the answers come in their order."""
    url = urlsplit(str(client.base_url))
    requests = b""
    for at in range(5):
        body = json_body({"x": _X}, id=f"request-{at}")
        head = f"POST {_INFER} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Length: {len(body.content)}\r\n\r\n"
        requests += head.encode() + body.content
    with socket.create_connection((url.hostname or "", url.port or 80), timeout=20) as opened:
        opened.sendall(requests)
        found = b""
        while found.count(b'"request-') < 5:
            part = opened.recv(65536)
            assert part, f"the server closed the connection after {found!r}"
            found += part
    places = [found.index(f'"request-{at}"'.encode()) for at in range(5)]
    expect(places, sorted(places), "the places of the answers")


CHECKS: dict[str, tuple[str, Any]] = {
    "data nested and flat": ("3.2 inference", nested_and_flat),
    "the id comes back, and only if there is one": ("3.2 inference", ids),
    "an answer in JSON": ("3.2 inference", answer_in_json),
    "FP16 and BF16 have no JSON form": ("3.2 inference", half_precision),
    "an answer in binary": ("3.3 binary tensors", answer_in_binary),
    "any content type": ("3.3 binary tensors", content_types),
    "a wrong Inference-Header-Content-Length": ("3.3 binary tensors", announced_length),
    "too few or too many bytes": ("3.3 binary tensors", too_few_or_many_bytes),
    "a raw binary request": ("3.3 raw binary", raw_binary),
    "raw binary requests that do not fit": ("3.3 raw binary", raw_binary_errors),
    "answers are compressed only on request": ("3.3 compression", unwanted_compression),
    "broken and unknown compression": ("3.3 compression", broken_compression),
    "a compression bomb": ("3.3 compression", compression_bomb),
    "a body above 64 MiB: 413": ("3.2 statuses", too_large),
    "a body of just 64 MiB": ("3.2 statuses", as_large_as_allowed),
    "timeout: 504": ("3.2 statuses", deadline),
    "Request-Timeout": ("beyond the protocol", deadline_in_a_header),
    "a failing program: 500 with its error": ("3.2 statuses", failure),
    "a body in chunks": ("3.2 inference", chunked),
    "pipelined requests": ("3.2 inference", pipelined),
}


def add(table: Table, url: str) -> None:
    """Adds all checks."""

    async def run(check: Any) -> None:
        headers = {"Accept-Encoding": "identity"}  # httpx asks for compression by itself
        async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, headers=headers) as client:
            await check(client)

    for name, (section, check) in CHECKS.items():
        table.add(section, "http by hand", name, partial(run, check))
    for encoding in PACKED:
        for name, check in (("request", packed_requests), ("answer", packed_answers)):
            called = partial(check, encoding=encoding)
            table.add("3.3 compression", "http by hand", f"{encoding} {name}", partial(run, called))
    for name, content in MALFORMED.items():
        table.add("3.2 statuses", "http by hand", f"malformed: {name}", partial(run, partial(malformed, content=content)))
