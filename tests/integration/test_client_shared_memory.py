"""The system shared memory extension, with clients that behave and clients that do not."""

import asyncio
import base64
import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from dyorc.config import GatewayConfig
from dyorc.gateway import client_memory
from dyorc.testing.leftovers import own_name
from tests import oip
from tests.conformance.models import mirror
from tests.deadlines import wait_until_async
from tests.integration.stack import Stack, running
from tests.shared_folders import shared_object
from tests.workflows import arithmetic, slow, tensors

TARGETS = [mirror, arithmetic.sums, slow.gated, tensors.echo]
ALLOWED = GatewayConfig(port=0, drain_timeout_s=1, allow_client_shm=True, max_request_bytes=2**20)
SHARED = Path("/dev/shm")
LARGE = 40_000
"""How many numbers make a tensor too large to travel inline."""


@pytest.fixture(scope="module")
async def stack(leaves_nothing: None) -> AsyncIterator[Stack]:
    """Starts one server for this module that lets clients share memory."""
    async with running(TARGETS, gateway=ALLOWED) as found:
        yield found


@contextlib.asynccontextmanager
async def region(stack: Stack, num_bytes: int = 4 * LARGE) -> AsyncIterator[Path]:
    """Makes an object that is registered under its own name."""
    with shared_object(bytes(num_bytes)) as path:
        answer = await register(stack.client, path.name, key=path.name, byte_size=num_bytes)
        assert (answer.status_code, answer.content) == (200, b"")
        try:
            yield path
        finally:
            await stack.client.post(f"/v2/systemsharedmemory/region/{path.name}/unregister")
    assert not is_open(path)


async def register(client: httpx.AsyncClient, name: str, **fields: Any) -> httpx.Response:
    """Registers a region."""
    return await client.post(f"/v2/systemsharedmemory/region/{name}/register", content=json.dumps(fields))


def is_open(path: Path) -> bool:
    """Returns whether this process, which the server is part of, still holds an object."""
    held: list[str] = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            held.append(os.readlink(f"/proc/self/fd/{number}").removesuffix(" (deleted)"))
    return str(path) in held or str(path) in Path("/proc/self/maps").read_text()


def place(region: str, byte_size: int, offset: int = 0) -> dict[str, Any]:
    """Returns the parameters of a tensor in shared memory."""
    place = {"shared_memory_region": region, "shared_memory_byte_size": byte_size}
    return place | ({"shared_memory_offset": offset} if offset else {})


def shared_input(name: str, array: oip.Array, path: Path, offset: int = 0) -> dict[str, Any]:
    """Puts an input into shared memory."""
    raw = oip.raw_bytes(array)
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(raw)
    header = {"name": name, "shape": list(array.shape), "datatype": oip.datatype_of(array)}
    return header | {"parameters": place(path.name, len(raw), offset)}


async def infer(stack: Stack, model: str, **content: Any) -> httpx.Response:
    """Sends one request without binary data."""
    return await stack.client.post(f"/v2/models/{model}/infer", content=json.dumps(content))


def array_in(path: Path, output: dict[str, Any]) -> oip.Array:
    """Returns an output that is in shared memory, from where the response says that it is."""
    parameters = output["parameters"]
    assert parameters["shared_memory_region"] == path.name
    assert "data" not in output
    start = parameters.get("shared_memory_offset", 0)
    raw = path.read_bytes()[start : start + parameters["shared_memory_byte_size"]]
    return oip.array_of(output["datatype"], output["shape"], raw)


def texts_of(*items: bytes) -> oip.Array:
    """Returns texts as a tensor."""
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


@pytest.mark.parametrize("num", [3, LARGE])
@pytest.mark.parametrize("length", [5, 30_000])
async def test_tensors_come_from_and_go_to_shared_memory(stack: Stack, num: int, length: int) -> None:
    x = np.arange(num, dtype=np.float32)
    texts = texts_of(b"a" * length + b"\x00\xff", b"", b"end")
    size = 4 * num + length + 64
    async with region(stack, 2 * size) as source, region(stack, 2 * size + 7) as target:
        inputs = [shared_input("x", x, source), shared_input("texts", texts, source, size)]
        outputs = [
            {"name": "reversed", "parameters": place(target.name, size, 4 * num + 7) | {"binary_data": False}},
            {"name": "raised", "parameters": place(target.name, 4 * num, 3)},
        ]
        answer = await infer(stack, "mirror", id="7", inputs=inputs, outputs=outputs)
        head = answer.json()
        assert answer.status_code == 200, head
        assert (head["id"], [output["name"] for output in head["outputs"]]) == ("7", ["reversed", "raised"])
        found = [array_in(target, output) for output in head["outputs"]]
        assert found[0].tolist() == [b"\xff\x00" + b"a" * length, b"", b"dne"]
        np.testing.assert_array_equal(found[1], x + 1)
        assert source.exists()
        assert target.exists()


async def test_outputs_without_dimensions_and_without_elements(stack: Stack) -> None:
    async with region(stack, 64) as path:
        wanted = [{"name": "total", "parameters": place(path.name, 8, 8)}, {"name": "num_calls"}]
        answer = await infer(stack, "sums", inputs=[shared_input("x", np.ones(2, np.float32), path)], outputs=wanted)
        total, num_calls = answer.json()["outputs"]
        assert (total["shape"], array_in(path, total).item()) == ([], 2)
        assert num_calls["data"] == [1]
        wanted = [{"name": "raised", "parameters": place(path.name, 0)}]
        empty = shared_input("x", np.ones(0, np.float32), path)
        answer = await infer(stack, "mirror", inputs=[empty, oip.json_tensor("texts", texts_of())], outputs=wanted)
        assert array_in(path, answer.json()["outputs"][0]).shape == (0,)


async def test_types_without_a_json_form_may_go_to_shared_memory(stack: Stack) -> None:
    inputs = {
        "flags": np.array([True]),
        "halves": np.array([1.5], np.float16),
        "brains": np.array([-3], oip.NUMPY["BF16"]),
        "texts": texts_of(b"ab"),
        "image": np.ones((1, 1), np.uint8),
    }
    async with region(stack, 64) as path:
        wanted = [{"name": name, "parameters": place(path.name, 2, at)} for name, at in (("halved", 0), ("doubled", 8))]
        body = oip.binary_body(inputs, outputs=wanted)
        answer = await stack.client.post("/v2/models/echo/infer", content=body.content, headers=body.headers)
        assert [array_in(path, output).tolist() for output in answer.json()["outputs"]] == [[0.75], [-6]]


async def test_large_inputs_are_copied_once(stack: Stack) -> None:
    x = np.ones(LARGE, np.float32)
    outbox = stack.orchestrator.tensors.exchange.outbox
    async with region(stack) as path:
        before = outbox.num_copied_bytes
        wanted = [{"name": "total"}]
        answer = await infer(stack, "sums", inputs=[shared_input("x", x, path)], outputs=wanted)
        assert answer.json()["outputs"][0]["data"] == [LARGE]
        assert outbox.num_copied_bytes == before, "it was read to where programs find it"
    await wait_until_async(lambda: not stack.orchestrator.tensors.report()["num_blocks"], "the input is freed")


@pytest.mark.parametrize("num", [3, LARGE])
async def test_shared_binary_and_json_tensors_mix(stack: Stack, num: int) -> None:
    x = np.arange(num, dtype=np.float32)
    texts = texts_of(b"x" * num, b"yz")
    async with region(stack) as path:
        header, raw = oip.binary_tensor("texts", texts)
        outputs = [
            {"name": "raised", "parameters": place(path.name, 4 * num)},
            {"name": "reversed", "parameters": {"binary_data": True}},
        ]
        head = json.dumps({"inputs": [shared_input("x", x, path), header], "outputs": outputs}).encode()
        answer = await stack.client.post(
            "/v2/models/mirror/infer", content=head + raw, headers={oip.LENGTH_HEADER: str(len(head))}
        )
        assert answer.status_code == 200, answer.text
        length = int(answer.headers[oip.LENGTH_HEADER])
        raised, reversed_texts = json.loads(answer.content[:length])["outputs"]
        np.testing.assert_array_equal(array_in(path, raised), x + 1)
        assert oip.array_of("BYTES", reversed_texts["shape"], answer.content[length:]).tolist() == [b"x" * num, b"zy"]


async def test_two_requests_at_once_in_one_region(stack: Stack) -> None:
    rows = np.arange(8 * 100, dtype=np.float32).reshape(8, 100)
    async with region(stack, 2 * rows.nbytes) as path:

        async def one(at: int) -> oip.Array:
            offset = at * rows[0].nbytes
            wanted = [{"name": "raised", "parameters": place(path.name, rows[0].nbytes, rows.nbytes + offset)}]
            inputs = [shared_input("x", rows[at], path, offset), oip.json_tensor("texts", texts_of())]
            return array_in(path, (await infer(stack, "mirror", inputs=inputs, outputs=wanted)).json()["outputs"][0])

        np.testing.assert_array_equal(await asyncio.gather(*map(one, range(8))), rows + 1)


async def test_the_status_shows_what_is_registered(stack: Stack) -> None:
    with shared_object(bytes(64)) as path:
        for name, key, offset in (("b", f"/{path.name}", 8), ("a b", path.name, 0)):
            assert (await register(stack.client, name, key=key, offset=offset, byte_size=16)).status_code == 200
        second = {"name": "b", "key": f"/{path.name}", "offset": 8, "byte_size": 16}
        first = {"name": "a b", "key": path.name, "offset": 0, "byte_size": 16}
        assert (await stack.client.get("/v2/systemsharedmemory/status")).json() == [first, second]
        assert (await stack.client.get("/v2/systemsharedmemory/region/b/status")).json() == [second]
        assert (await stack.client.post("/v2/systemsharedmemory/region/b/unregister")).status_code == 200
        assert (await stack.client.get("/v2/systemsharedmemory/status")).json() == [first]
        assert (await stack.client.post("/v2/systemsharedmemory/unregister")).status_code == 200
        assert (await stack.client.get("/v2/systemsharedmemory/status")).json() == []
        assert not is_open(path)
        assert path.exists()


async def test_an_offset_counts_from_the_start_of_the_region(stack: Stack) -> None:
    with shared_object(bytes(64)) as path:
        path.write_bytes(np.arange(16, dtype=np.float32).tobytes())
        await register(stack.client, path.name, key=path.name, offset=16, byte_size=32)
        x = {"name": "x", "datatype": "FP32", "shape": [2], "parameters": place(path.name, 8, 8)}
        wanted = [{"name": "total", "parameters": place(path.name, 4, 28)}]
        answer = await infer(stack, "sums", inputs=[x], outputs=wanted)
        assert answer.status_code == 200, answer.text
        numbers = np.frombuffer(path.read_bytes(), np.float32)
        assert numbers.tolist() == [*range(11), 6 + 7, *range(12, 16)], "nothing else was written"
        await stack.client.post(f"/v2/systemsharedmemory/region/{path.name}/unregister")


UNABLE = "Unable to open shared memory region: "
CANNOT = "cannot register shared memory region 'new'"

ROUTES: list[tuple[str, str, Any, int, str]] = [
    ("GET", "systemsharedmemory/region/none/status", None, 404, "Unable to find system shared memory region: 'none'"),
    ("POST", "systemsharedmemory/register", {}, 400, "'region name' is necessary to register system shared memory region"),
    ("POST", "systemsharedmemory/region/new/register", {"byte_size": 1}, 400, "register request has no 'key' field"),
    ("POST", "systemsharedmemory/region/new/register", {"key": "KEY"}, 400, "register request has no 'byte_size' field"),
    ("POST", "systemsharedmemory/region/new/register", {"key": 7, "byte_size": 1}, 400, "JSON is malformed: Expected `str"),
    ("POST", "systemsharedmemory/region/new/register", [1], 400, "the request's JSON is malformed"),
    ("POST", "systemsharedmemory/region/old/register", {"key": "KEY", "byte_size": 1}, 400, "'old' already in manager"),
    ("POST", "systemsharedmemory/region/new/register", {"key": "KEY", "byte_size": 65}, 400, "'new': invalid args"),
    ("POST", "systemsharedmemory/region/new/register", {"key": "KEY", "byte_size": 1, "offset": 64}, 400, "invalid args"),
    ("POST", "systemsharedmemory/region/new/register", {"key": "KEY", "byte_size": 1, "offset": -1}, 400, "invalid args"),
    ("POST", "systemsharedmemory/region/new/register", {"key": "KEY", "byte_size": 0}, 400, "invalid args"),
    ("POST", "systemsharedmemory/region/new/register", {"key": "KEY", "byte_size": 2**70}, 400, ""),
    ("POST", "systemsharedmemory/region/new/register", {"key": "no-such", "byte_size": 1}, 500, f"{UNABLE}'no-such'"),
    ("POST", "systemsharedmemory/region/new/register", {"key": "LINK", "byte_size": 1}, 500, UNABLE),
    ("POST", "systemsharedmemory/region/new/register", {"key": "FOLDER", "byte_size": 1}, 500, UNABLE),
    ("POST", "systemsharedmemory/region/new/register", {"key": "PIPE", "byte_size": 1}, 400, "invalid args"),
    ("POST", "systemsharedmemory/region/new/register", {"key": "x" * 300, "byte_size": 1}, 500, UNABLE),
    ("POST", "systemsharedmemory/region/new/register", {"key": "x" * 2**17, "byte_size": 1}, 413, "longer than 65536 bytes"),
    *(
        ("POST", "systemsharedmemory/region/new/register", {"key": key, "byte_size": 1}, 400, f"{CANNOT} - invalid shm key")
        for key in ("", "/", "//KEY", "..", "/..", ".", "../dev/shm/KEY", "a/b", "a\0b")
    ),
    *(
        ("POST", "systemsharedmemory/region/new/register", {"key": key, "byte_size": 1}, 400, "the reserved prefix 'dyorc-'")
        for key in ("dyorc-arena-0000000000000000", "/dyorc-anything", "ARENA")
    ),
    ("POST", "systemsharedmemory/region/none/unregister", None, 200, ""),
    ("GET", "systemsharedmemory/region/old/unregister", None, 405, "Method Not Allowed"),
    ("POST", "systemsharedmemory/status", None, 405, "Method Not Allowed"),
    ("GET", "systemsharedmemory/region/a/b/status", None, 404, "Not Found"),
    ("GET", "cudasharedmemory/status", None, 200, "[]"),
    ("GET", "cudasharedmemory/region/old/status", None, 404, "Unable to find cuda shared memory region: 'old'"),
    ("POST", "cudasharedmemory/register", {}, 400, "'region name' is necessary to register cuda shared memory region"),
    ("POST", "cudasharedmemory/region/x/register", {}, 400, "Shared memory register request has no 'raw_handle' field"),
    (
        "POST",
        "cudasharedmemory/region/x/register",
        {"raw_handle": {"b64": base64.b64encode(bytes(64)).decode()}, "device_id": 999, "byte_size": 1},
        400,
        "register CUDA shared memory region: 'x', GPUs not supported: there is no device cuda:999",
    ),
    ("POST", "cudasharedmemory/unregister", None, 200, ""),
    ("POST", "cudasharedmemory/region/x/unregister", None, 200, ""),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "text"), ROUTES)
async def test_the_routes_of_the_extension_answer(
    stack: Stack, method: str, path: str, body: Any, status: int, text: str
) -> None:
    with shared_object(bytes(64)) as found, contextlib.ExitStack() as made:
        keys = {"KEY": found.name, "ARENA": stack.orchestrator.tensors.exchange.arena.name}
        for word, make in (("LINK", lambda at: at.symlink_to(found)), ("FOLDER", Path.mkdir), ("PIPE", os.mkfifo)):
            at = SHARED / own_name()
            make(at)
            made.callback(at.rmdir if word == "FOLDER" else at.unlink)
            keys[word] = at.name
        if isinstance(body, dict) and isinstance(body.get("key"), str):
            for word, key in keys.items():
                body = body | {"key": body["key"].replace(word, key)}
        assert (await register(stack.client, "old", key=found.name, byte_size=64)).status_code == 200
        answer = await stack.client.request(method, f"/v2/{path}", content=b"" if body is None else json.dumps(body))
        assert answer.status_code == status, answer.text
        assert text in (answer.text if status == 200 else oip.error_text(answer))
        assert [one["name"] for one in (await stack.client.get("/v2/systemsharedmemory/status")).json()] == ["old"]
        await stack.client.post("/v2/systemsharedmemory/unregister")
        assert not any(is_open(SHARED / key) for word, key in keys.items() if word != "ARENA")


ONLY_ONE = "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region'"
INVALID_RANGE = "Invalid offset + byte size for shared memory region:"
SIZE = {"shared_memory_byte_size": 8}
REGION = {"shared_memory_region": "r"}

INPUTS: list[tuple[dict[str, Any], int, str]] = [
    ({"parameters": REGION | SIZE, "data": [1, 2]}, 400, f"{ONLY_ONE} in 'parameters'. But set 'data' 'shared_memory_region'"),
    ({"parameters": REGION | SIZE | {"binary_data_size": 8}}, 400, "But set 'binary_data_size' 'shared_memory_region'"),
    ({"parameters": REGION}, 400, "input 'x' has shared_memory_region, but no shared_memory_byte_size"),
    ({"parameters": SIZE}, 400, "input 'x' has shared_memory_byte_size, but no shared_memory_region"),
    ({"parameters": SIZE | {"shared_memory_region": 7}}, 400, "Unable to parse 'shared_memory_region'"),
    ({"parameters": REGION | {"shared_memory_byte_size": -8}}, 400, "Unable to parse 'shared_memory_byte_size'"),
    ({"parameters": REGION | {"shared_memory_byte_size": True}}, 400, "Unable to parse 'shared_memory_byte_size'"),
    ({"parameters": REGION | SIZE | {"shared_memory_offset": 1.5}}, 400, "Unable to parse 'shared_memory_offset'"),
    ({"parameters": SIZE | {"shared_memory_region": "none"}}, 404, "Unable to find shared memory region: 'none'"),
    ({"parameters": REGION | SIZE | {"shared_memory_offset": 64}}, 400, "Invalid offset for shared memory region: 'r'"),
    (
        {"parameters": REGION | SIZE | {"shared_memory_offset": 57}},
        400,
        f"{INVALID_RANGE} 'r'",
    ),
    (
        {"parameters": REGION | {"shared_memory_byte_size": 2**70}},
        400,
        f"{INVALID_RANGE} 'r'",
    ),
    ({"parameters": REGION | {"shared_memory_byte_size": 4}}, 400, "input 'x' has 4 bytes, FP32[2] has 8"),
    ({"parameters": REGION | SIZE, "datatype": "BYTES"}, 400, "input 'x': 2 elements came, shape [3] has 3"),
    ({"parameters": REGION | SIZE, "name": "y"}, 400, "has no input 'y'"),
]


@pytest.mark.parametrize(("fields", "status", "text"), INPUTS)
async def test_impossible_inputs_are_refused(stack: Stack, fields: dict[str, Any], status: int, text: str) -> None:
    with shared_object(bytes(64)) as path:
        await register(stack.client, "r", key=path.name, byte_size=64)
        shape = [3] if fields.get("datatype") == "BYTES" else [2]
        answer = await infer(stack, "sums", inputs=[{"name": "x", "datatype": "FP32", "shape": shape} | fields])
        assert (answer.status_code, text in oip.error_text(answer)) == (status, True), answer.text
        await stack.client.post("/v2/systemsharedmemory/unregister")
        assert not is_open(path), "a request that was refused holds nothing"


OUTPUTS: list[tuple[dict[str, Any], int, str]] = [
    (REGION | SIZE | {"binary_data": True}, 400, "Output can't set both 'shared_memory_region' and 'binary_data'"),
    (REGION | SIZE | {"classification": 2}, 400, "Output can't set both 'shared_memory_region' and 'classification'"),
    (REGION, 400, "output 'raised' has shared_memory_region, but no shared_memory_byte_size"),
    (SIZE | {"shared_memory_region": "none"}, 404, "Unable to find shared memory region: 'none'"),
    (REGION | SIZE | {"shared_memory_offset": 57}, 400, f"{INVALID_RANGE} 'r'"),
    (
        REGION | {"shared_memory_byte_size": 7},
        500,
        "shared memory size specified with the request for output 'raised' (7 bytes) should be at least 8 bytes to hold the "
        "results",
    ),
]


@pytest.mark.parametrize(("parameters", "status", "text"), OUTPUTS)
async def test_impossible_outputs_are_refused(stack: Stack, parameters: dict[str, Any], status: int, text: str) -> None:
    with shared_object(bytes(64)) as path:
        await register(stack.client, "r", key=path.name, byte_size=64)
        inputs = [oip.json_tensor("x", np.ones(2, np.float32)), oip.json_tensor("texts", texts_of())]
        answer = await infer(stack, "mirror", inputs=inputs, outputs=[{"name": "raised", "parameters": parameters}])
        assert (answer.status_code, text in oip.error_text(answer)) == (status, True), answer.text
        assert path.read_bytes() == bytes(64), "nothing was written"
        await stack.client.post("/v2/systemsharedmemory/unregister")
        assert not is_open(path)


@pytest.mark.parametrize("num", [3, LARGE])
async def test_an_object_that_was_cut_short_is_an_error(stack: Stack, num: int) -> None:
    x = np.arange(num, dtype=np.float32)
    async with region(stack, x.nbytes) as path:
        header = shared_input("x", x, path)
        os.truncate(path, x.nbytes - 1)
        answer = await infer(stack, "sums", inputs=[header])
        assert (answer.status_code, INVALID_RANGE in oip.error_text(answer)) == (400, True)
        inputs = [oip.json_tensor("x", x[:2]), oip.json_tensor("texts", texts_of())]
        wanted = [{"name": "raised", "parameters": place(path.name, 8, x.nbytes - 8)}]
        answer = await infer(stack, "mirror", inputs=inputs, outputs=wanted)
        assert (answer.status_code, INVALID_RANGE in oip.error_text(answer)) == (400, True)
        assert path.stat().st_size == x.nbytes - 1, "it was not made longer again"
        os.truncate(path, 0)
        assert (await infer(stack, "sums", inputs=[header])).status_code == 400
    assert (await infer(stack, "sums", inputs=[oip.json_tensor("x", x[:2])])).status_code == 200


async def test_a_request_in_flight_keeps_its_region(stack: Stack, tmp_path: Path) -> None:
    with shared_object(bytes(32)) as path:
        await register(stack.client, "r", key=path.name, byte_size=32)
        wanted = [{"name": "output", "parameters": place("r", 16, 16)}]
        inputs = [shared_input("x", np.arange(4, dtype=np.float32), path)]
        inputs[0]["parameters"]["shared_memory_region"] = "r"
        running_one = asyncio.create_task(
            infer(stack, "gated", inputs=inputs, outputs=wanted, parameters={"folder": str(tmp_path)})
        )
        await wait_until_async((tmp_path / "started-0").exists, "the program runs")
        assert (await stack.client.post("/v2/systemsharedmemory/region/r/unregister")).status_code == 200
        assert is_open(path)
        assert (await infer(stack, "sums", inputs=[inputs[0]])).status_code == 404
        with shared_object(bytes(32)) as other:
            assert (await register(stack.client, "r", key=other.name, byte_size=32)).status_code == 200, "the name is free"
            (tmp_path / "open").touch()
            answer = await running_one
            assert answer.status_code == 200, answer.text
            assert other.read_bytes() == bytes(32)
            await stack.client.post("/v2/systemsharedmemory/unregister")
        assert np.frombuffer(path.read_bytes(), np.float32).tolist() == [0, 1, 2, 3, 1, 2, 3, 4]
        assert not is_open(path)


async def test_inputs_in_shared_memory_have_the_same_limit_as_bodies(stack: Stack) -> None:
    limit = ALLOWED.max_request_bytes
    async with region(stack, limit + 4) as path:
        x = {"name": "x", "datatype": "FP32", "shape": [limit // 4 + 1], "parameters": place(path.name, limit + 4)}
        answer = await infer(stack, "sums", inputs=[x])
        assert answer.status_code == 413
        assert oip.error_text(answer) == f"the request's inputs in shared memory have {limit + 4} bytes, the limit is {limit}"
        x |= {"shape": [limit // 4], "parameters": place(path.name, limit)}
        assert (await infer(stack, "sums", inputs=[x])).status_code == 200


async def test_the_number_of_regions_is_limited(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_memory, "_MAX_REGIONS", 2)
    with shared_object(bytes(8)) as path:
        answers = [await register(stack.client, name, key=path.name, byte_size=8) for name in "abc"]
        assert [answer.status_code for answer in answers] == [200, 200, 503]
        await stack.client.post("/v2/systemsharedmemory/unregister")


async def test_the_extension_is_announced(stack: Stack) -> None:
    assert (await stack.client.get("/v2")).json()["extensions"][-1] == "system_shared_memory"


async def test_regions_are_closed_when_the_server_stops() -> None:
    with shared_object(bytes(8)) as path:
        async with running([], gateway=ALLOWED) as stack:
            await register(stack.client, "r", key=path.name, byte_size=8)
            assert is_open(path)
        assert not is_open(path)
        assert path.exists()


async def test_it_is_off_by_default() -> None:
    disabled = (
        "Client shared memory is disabled. Start the server with '--allow-client-shm' or DYORC_GATEWAY__ALLOW_CLIENT_SHM=true "
        "to enable."
    )
    assert not GatewayConfig().allow_client_shm
    async with running([arithmetic.sums]) as stack:
        answers = [
            await stack.client.request(
                "GET" if action == "status" else "POST", f"/v2/{kind}sharedmemory{name}/{action}", content=b"{}"
            )
            for kind in ("system", "cuda")
            for name in ("", "/region/r")
            for action in ("status", "register", "unregister")
        ]
        for parameters in (REGION, REGION | SIZE):
            shared = {"name": "x", "datatype": "FP32", "shape": [2], "parameters": parameters}
            answers.append(await infer(stack, "sums", inputs=[shared]))
            plain = oip.json_tensor("x", np.ones(2, np.float32))
            answers.append(await infer(stack, "sums", inputs=[plain], outputs=[{"name": "total", "parameters": parameters}]))
        assert [(answer.status_code, oip.error_text(answer)) for answer in answers] == [(501, disabled)] * 16
        assert "system_shared_memory" not in (await stack.client.get("/v2")).json()["extensions"]
