"""Answers in parts over HTTP: in order, at once, no faster than they are read, and no longer than the client wants them."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import ml_dtypes
import numpy as np
import pytest

import dyorc
from dyorc.authoring.workflow import Workflow
from dyorc.config import GatewayConfig
from dyorc.errors import InvalidInputError, ProgramError
from dyorc.gateway.http.app import Gateway
from dyorc.gateway.http.http_server import HttpServer
from dyorc.gateway.service import InferenceService
from dyorc.models.registry import ModelRegistry
from tests import oip
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.fake_backend import FakeBackend
from tests.integration.scripted import Script, part
from tests.workflows import arithmetic, scripted, tensors

FRAMES = {"Accept": "application/vnd.dyorc.stream"}
COUNT = {"inputs": [{"name": "num", "shape": [], "datatype": "INT64", "data": [3]}]}


@dataclass
class Stack:
    """A gateway over a fake. The next request of a streaming model follows `script`; the other models really run."""

    client: httpx.AsyncClient
    backend: FakeBackend
    script: Script


def run_here(workflow: Workflow, inputs: Sequence[oip.Array]) -> list[list[oip.Array]]:
    """Computes the only part of a model that does not stream."""
    return [workflow.signature.outputs.flatten(dyorc.run(workflow, *inputs), workflow.name)]


@pytest.fixture(scope="module")
async def stack(leaves_nothing: None) -> AsyncIterator[Stack]:
    """Starts one server for this module."""
    repertoire = ModelRegistry.of([scripted.count, scripted.fill, arithmetic.sums, tensors.echo])
    backend = FakeBackend(repertoire, run_here, lambda workflow, inputs: found.script.play(workflow, inputs))
    config = GatewayConfig(port=0, drain_timeout_s=1)
    with contextlib.closing(InferenceService(backend, config)) as service:
        async with (
            HttpServer(Gateway(service), config, service.shedding) as server,
            httpx.AsyncClient(base_url=server.url, timeout=TIMEOUT_S, trust_env=False) as client,
        ):
            found = Stack(client, backend, Script())
            yield found


@pytest.fixture
def script(stack: Stack) -> Script:
    """Returns a new script, which the next request of a streaming model follows."""
    stack.script = Script()
    return stack.script


def events_of(text: str) -> list[dict[str, Any]]:
    """Returns the data of server-sent events."""
    *events, rest = text.split("\n\n")
    assert rest == ""
    assert all(event.startswith("data: ") and "\n" not in event for event in events), text
    return [json.loads(event.removeprefix("data: ")) for event in events]


class Connection:
    """A client that reads when the test tells it to."""

    @classmethod
    async def post(cls, stack: Stack, path: str, body: Any) -> "Connection":
        """Sends a request."""
        self = cls()
        url = stack.client.base_url
        self.reader, self.writer = await asyncio.open_connection(url.host, url.port)
        content = json.dumps(body).encode()
        self.writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
        return self

    async def head(self) -> str:
        """Returns the status line and the headers."""
        return (await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), TIMEOUT_S)).decode().lower()

    async def chunk(self) -> bytes:
        """Returns the next chunk; empty at the end."""
        size = int(await asyncio.wait_for(self.reader.readline(), TIMEOUT_S), 16)
        return (await asyncio.wait_for(self.reader.readexactly(size + 2), TIMEOUT_S))[:-2]

    async def close(self) -> None:
        """Goes away."""
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


async def test_a_model_that_does_not_stream_has_one_part(stack: Stack) -> None:
    body = oip.json_body({"x": np.ones(5, np.float32)}, id="7")
    response = await stack.client.post("/v2/models/sums/infer_stream", content=body.content)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    (event,) = events_of(response.text)
    assert (event["id"], event["model_name"], event["model_version"]) == ("7", "sums", "1")
    assert [(one["name"], one["data"]) for one in event["outputs"]] == [("total", [5.0]), ("num_calls", [1])]


async def test_events_carry_json_whatever_form_was_requested(stack: Stack) -> None:
    body = oip.binary_body({"x": np.ones(5, np.float32)}, parameters={"binary_data_output": True})
    response = await stack.client.post("/v2/models/sums/infer_stream", content=body.content, headers=body.headers)
    assert events_of(response.text)[0]["outputs"][0]["data"] == [5.0]


async def test_frames_carry_what_json_cannot(stack: Stack) -> None:
    texts = np.empty(1, dtype=object)
    texts[0] = b"\xff\x00"
    inputs = {
        "flags": np.array([True]), "halves": np.array([3], np.float16), "brains": np.array([2], ml_dtypes.bfloat16),
        "texts": texts, "image": np.zeros((1, 2), np.uint8),
    }  # fmt: skip
    body = oip.binary_body(inputs)
    response = await stack.client.post("/v2/models/echo/infer_stream", content=body.content, headers={**body.headers, **FRAMES})
    assert response.headers["content-type"] == "application/vnd.dyorc.stream"
    ((head, rest),) = oip.frames(response.content)
    sizes = [output["parameters"]["binary_data_size"] for output in head["outputs"]]
    assert sizes == [1, 2, 2, 6, 2]
    assert rest == b"\x00" + np.float16(1.5).tobytes() + ml_dtypes.bfloat16(4).tobytes() + b"\x02\0\0\0\x00\xff" + b"\0\0"
    refused = await stack.client.post("/v2/models/echo/infer_stream", content=body.content, headers=body.headers)
    assert refused.status_code == 400
    assert "JSON cannot carry" in oip.error_text(refused)


async def test_parts_come_when_they_are_ready(stack: Stack, script: Script) -> None:
    client = await Connection.post(stack, "/v2/models/count/infer_stream", COUNT)
    script.put(part("one", 1))
    assert "http/1.1 200" in await client.head()
    (event,) = events_of((await client.chunk()).decode())
    assert [output["data"] for output in event["outputs"]] == [["one"], [1]]
    script.put(part("two", 2), part("three", 3))
    events = events_of((await client.chunk()).decode())
    assert [event["outputs"][1]["data"] for event in events] == [[2], [3]], "in one chunk what was ready at once"
    script.end()
    assert await client.chunk() == b""
    await client.close()


async def test_a_stream_may_be_empty(stack: Stack, script: Script) -> None:
    script.end()
    response = await stack.client.post("/v2/models/count/infer_stream", json=COUNT)
    assert (response.status_code, response.content) == (200, b"")


@pytest.mark.parametrize(("error", "status"), [(ProgramError("p", "ValueError", "no"), 500), (InvalidInputError("no"), 400)])
@pytest.mark.parametrize("path", ["infer_stream", "generate_stream"])
async def test_an_error_before_the_first_part_is_an_ordinary_one(
    stack: Stack, script: Script, path: str, error: Exception, status: int
) -> None:
    script.fail(error)
    body = COUNT if path == "infer_stream" else {"num": 3}
    response = await stack.client.post(f"/v2/models/count/{path}", json=body)
    assert response.status_code == status
    assert "no" in oip.error_text(response)


@pytest.mark.parametrize("error", [ProgramError("p", "ValueError", "no"), ZeroDivisionError("secret")])
async def test_an_error_after_the_first_part_is_the_last_part(stack: Stack, script: Script, error: Exception) -> None:
    expected = {"error": "program 'p' failed: ValueError: no", "code": "program", "retryable": False}
    if isinstance(error, ZeroDivisionError):
        expected = {"error": "internal error", "code": "internal", "retryable": False}
    script.put(part("one", 1))
    script.fail(error)
    response = await stack.client.post("/v2/models/count/infer_stream", json=COUNT, headers={"X-Request-Id": "mine"})
    assert (response.status_code, response.headers["X-Request-Id"]) == (200, "mine")
    first, last = events_of(response.text)
    assert first["model_name"] == "count"
    assert last == expected | {"request_id": "mine"}
    stack.script = again = Script()
    again.put(part("one", 1))
    again.fail(error)
    response = await stack.client.post("/v2/models/count/infer_stream", json=COUNT, headers=FRAMES | {"X-Request-Id": "mine"})
    assert [head for head, _ in oip.frames(response.content)][1:] == [expected | {"request_id": "mine"}]


async def test_a_slow_client_slows_the_workflow_down(stack: Stack, script: Script) -> None:
    large = [np.zeros(1_000_000, np.float32)]
    for _ in range(200):
        script.put(large)
    client = await Connection.post(stack, "/v2/models/fill/infer_stream", COUNT)
    await client.head()
    await wait_until_async(lambda: script.num_asked >= 2, "the second part is asked for")
    await wait_until_async(_steady(script), "no more is asked for")
    assert script.num_asked < 20, "some parts are in the sockets' buffers, the others wait"
    seen = script.num_asked
    for _ in range(1_000):
        if script.num_asked > seen:
            break
        assert await client.chunk()
    assert script.num_asked > seen, "more is asked for once it was read"
    assert not script.closed.is_set()
    await client.close()
    await asyncio.wait_for(script.closed.wait(), TIMEOUT_S)


def _steady(script: Script, num_looks: int = 30) -> Callable[[], bool]:
    """Returns whether nothing was requested over this many consecutive checks."""
    seen = [-1]

    def is_steady() -> bool:
        seen.append(script.num_asked)
        return len(seen) > num_looks and len(set(seen[-num_looks:])) == 1

    return is_steady


@pytest.mark.parametrize("path", ["infer_stream", "generate_stream", "generate"])
@pytest.mark.parametrize("num_parts", [0, 1])
async def test_a_client_that_goes_away_ends_the_workflow(stack: Stack, script: Script, path: str, num_parts: int) -> None:
    client = await Connection.post(stack, f"/v2/models/count/{path}", COUNT if path == "infer_stream" else {"num": 3})
    if num_parts:
        script.put(part("one", 1))
        if path != "generate":
            await client.head()
    await wait_until_async(lambda: script.num_asked > num_parts, "it waits for a part")
    await client.close()
    await asyncio.wait_for(script.closed.wait(), TIMEOUT_S)


async def test_generate_takes_fields_by_the_names_of_inputs(stack: Stack, script: Script) -> None:
    script.put(part("hello", 7))
    script.end()
    response = await stack.client.post("/v2/models/count/generate", json={"num": 3, "id": "a"})
    assert response.json() == {"text": "hello", "index": 7, "model_name": "count", "model_version": "1", "id": "a"}
    assert script.inputs[0].tolist() == 3


@pytest.mark.parametrize("num_parts", [0, 2, 3])
async def test_generate_wants_exactly_one_part(stack: Stack, script: Script, num_parts: int) -> None:
    for at in range(num_parts):
        script.put(part("x", at))
    if num_parts < 3:
        script.end()
    response = await stack.client.post("/v2/models/count/generate", json={"num": 3})
    assert response.status_code == 501  # as of `infer`
    assert "/v2/models/count/generate_stream" in oip.error_text(response)
    await asyncio.wait_for(script.closed.wait(), TIMEOUT_S)
    assert script.num_asked <= 2, "the rest is not computed"


async def test_generate_stream_sends_an_event_for_each_part(stack: Stack, script: Script) -> None:
    script.put(part("one", 1), part("two", 2))
    script.put(part("three", 3))
    script.end()
    response = await stack.client.post("/v2/models/count/generate_stream", json={"parameters": {"num": 3}})
    assert [(event["text"], event["index"]) for event in events_of(response.text)] == [("one", 1), ("two", 2), ("three", 3)]


async def test_infer_of_a_streaming_model_says_what_to_use(stack: Stack) -> None:
    response = await stack.client.post("/v2/models/count/infer", json=COUNT)
    assert response.status_code == 501
    assert "infer_stream" in oip.error_text(response)


async def test_the_request_timeout_reaches_the_backend(stack: Stack, script: Script) -> None:
    script.end()
    sent_ns = time.monotonic_ns()
    await stack.client.post("/v2/models/count/infer_stream", json=COUNT, headers={"Request-Timeout": "2.5"})
    deadline_ns = stack.backend.seen[-1].deadline_ns
    assert deadline_ns is not None
    assert sent_ns < deadline_ns <= time.monotonic_ns() + 2_500_000_000
