"""The cause of a slow request, as a real server names it. What makes a request slow here is made by the test, step by step."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.config import RecordsConfig
from dyorc.telemetry.diagnosis import diagnose
from dyorc.telemetry.record_store import RecordStore
from dyorc.telemetry.recording import Recording
from tests import oip
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.integration.stack import Stack, running
from tests.workflows import streaming
from tests.workflows.large import NUM_VALUES, ramp

Vector = Float[np.ndarray, "4"]
Vectors = Float[np.ndarray, "batch 4"]

SLOW_S = 1.0
"""How long a test makes a request wait: much longer than all else that happens to it."""


class Gate:
    """Where calls wait that a test holds up."""

    def __init__(self) -> None:
        self.has_come = threading.Event()
        self.is_open = threading.Event()

    def pass_through(self) -> None:
        """Waits, if the gate is closed."""
        self.has_come.set()
        assert self.is_open.wait(TIMEOUT_S)


LOOK, WORK = Gate(), Gate()


@dyorc.program(max_batch_size=1)
def look(x: Vectors) -> Vectors:
    LOOK.pass_through()
    time.sleep(0.03)
    return x


@dyorc.program(max_batch_size=1)
def work(x: Vectors) -> Vectors:
    """Negative numbers wait."""
    if x[0, 0] < 0:
        WORK.pass_through()
    time.sleep(0.03)
    return 2 * x


@dyorc.workflow
async def guarded(x: Vector) -> Vector:
    """Returns twice x, unless it is negative."""
    if await dyorc.when(look(x), lambda seen: seen[0] >= 0, likely=True):
        return work(x)
    return x


@dyorc.workflow
async def twice(x: Vector) -> Vector:
    """Calls a program twice at once, which takes one call at a time."""
    first, second = await dyorc.gather(work(x), work(x))
    return first + second


GOOD, BAD = np.array([1, 2, 3, 4], np.float32), np.array([-1, 2, 3, 4], np.float32)


@pytest.fixture
def gates() -> Iterator[None]:
    """Opens all gates, in the end too, so that no replica stays behind one."""
    for gate in (LOOK, WORK):
        gate.is_open.set()
    yield
    for gate in (LOOK, WORK):
        gate.is_open.set()


@pytest.fixture
async def stack(leaves_nothing: None, gates: None) -> AsyncIterator[Stack]:
    """Starts a server without replicas, which keeps records."""
    recording, records = Recording(RecordsConfig()), RecordStore(RecordsConfig())
    recording.add(records)
    targets = [guarded, twice, work, ramp, streaming.ramps]
    async with running(targets, num_replicas=0, recorder=recording, records=records) as found:
        yield found


async def infer(stack: Stack, model: str, request_id: str, x: Any) -> None:
    content = oip.json_body({"x": x}, id=request_id).content
    (await stack.client.post(f"/v2/models/{model}/infer", content=content)).raise_for_status()


async def explained(stack: Stack, request_id: str, cause: str) -> dict[str, Any]:
    """Returns what is known of a request, once it has this cause; its answer may be read before all is known."""
    records = stack.records
    assert records is not None

    def is_known() -> bool:
        found = records.find(request_id, lambda record: True)
        return found is not None and diagnose(found, records.wrong_guesses).cause == cause

    await wait_until_async(is_known, f"the cause of {request_id} is {cause}")
    found = (await stack.client.get(f"/requests/{request_id}")).json()
    assert found["cause"] == cause
    assert sum(found["stages"].values()) == pytest.approx(found["duration_ms"], rel=0.05)
    assert found["stages"][f"{cause}_ms"] >= 0.9 * SLOW_S * 1e3
    return found


async def queued(stack: Stack, program: str) -> None:
    """Waits until a call waits for a program."""
    await wait_until_async(
        lambda: stack.orchestrator.report()["programs"][program]["num_queued"] > 0, f"a call of {program} waits"
    )


async def test_a_cold_program(stack: Stack) -> None:
    request = asyncio.create_task(infer(stack, "work", "cold", GOOD))
    await queued(stack, "work")
    await asyncio.sleep(SLOW_S)
    await stack.start_worker(work)
    await request
    found = await explained(stack, "cold", "cold")
    assert "the call of 'work' waited because the program was cold" in found["diagnosis"][0]


async def test_a_full_queue(stack: Stack) -> None:
    await stack.start_worker(work)
    WORK.is_open.clear()
    first = asyncio.create_task(infer(stack, "work", "first", BAD))
    await wait_until_async(WORK.has_come.is_set, "the first request runs")
    names = ["second", "third", "fourth"]
    others = [asyncio.create_task(infer(stack, "work", name, GOOD)) for name in names]
    await wait_until_async(lambda: stack.orchestrator.num_requests == 1 + len(names), "all are in flight")
    await asyncio.sleep(SLOW_S)
    WORK.is_open.set()
    await asyncio.gather(first, *others)
    await explained(stack, "first", "compute")
    found = [await explained(stack, name, "queue") for name in names]
    assert all("the call of 'work' waited in the queue" in one["diagnosis"][0] for one in found)
    assert sorted(one["calls"][0]["num_waiting"] for one in found) == [0, 1, 2]
    assert sum("waited in the queue, 2 calls before it, until" in one["diagnosis"][0] for one in found) == 1


async def test_a_busy_event_loop_is_no_queue(stack: Stack) -> None:
    """Both calls are done long before the loop looks."""
    await stack.start_worker(work)
    await infer(stack, "twice", "", GOOD)
    WORK.is_open.clear()
    WORK.has_come.clear()
    held_up = asyncio.create_task(infer(stack, "twice", "held-up", BAD))
    await wait_until_async(WORK.has_come.is_set, "its first call runs")
    WORK.is_open.set()
    time.sleep(SLOW_S)  # noqa: ASYNC251  as a workflow does that computes
    await held_up
    found = await explained(stack, "held-up", "engine")
    assert "DyOrc itself" in found["diagnosis"][0]


async def test_a_wrong_guess_of_another_request(stack: Stack) -> None:
    await stack.start_worker(work)
    await stack.start_worker(look)
    for _ in range(3):
        await infer(stack, "guarded", "", GOOD)  # now it is known how long both take
    for gate in (LOOK, WORK):
        gate.is_open.clear()
        gate.has_come.clear()
    wrong = asyncio.create_task(infer(stack, "guarded", "wrong", BAD))
    await wait_until_async(WORK.has_come.is_set, "the guess runs")
    LOOK.is_open.set()
    await wrong
    held_up = asyncio.create_task(infer(stack, "work", "held-up", GOOD))
    await asyncio.sleep(2 * SLOW_S)
    WORK.is_open.set()
    await held_up
    found = await explained(stack, "held-up", "wrong_guess")
    assert "the call of 'work' waited for a replica that was running wrong guesses" in found["diagnosis"][0]


async def test_a_client_that_sends_slowly(stack: Stack) -> None:
    await stack.start_worker(work)
    content = oip.json_body({"x": GOOD}, id="sends").content
    head = f"POST /v2/models/work/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n".encode()
    reader, writer = await asyncio.open_connection(stack.client.base_url.host, stack.client.base_url.port)
    writer.write(head + content[:10])
    await asyncio.sleep(SLOW_S)
    writer.write(content[10:])
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
    await writer.wait_closed()
    found = await explained(stack, "sends", "reading")
    assert "the client was sending the request" in found["diagnosis"][0]


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_server_that_is_behind_does_not_blame_the_client(stack: Stack, is_known: bool) -> None:
    """All of the request was there, but the event loop was busy. A head that came before is answered on another way."""
    await stack.start_worker(work)
    reader, writer = await asyncio.open_connection(stack.client.base_url.host, stack.client.base_url.port)
    for request_id in ("before", "behind") if is_known else ("behind",):
        content = oip.json_body({"x": GOOD}, id=request_id).content
        writer.write(
            f"POST /v2/models/work/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content
        )
        if request_id == "behind":
            time.sleep(SLOW_S)  # noqa: ASYNC251, the whole loop is to stand still
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        await reader.readexactly(int(head.partition("content-length: ")[2].partition("\r")[0]))
    writer.close()
    await writer.wait_closed()
    found = await explained(stack, "behind", "admission")
    sentence = "the server read the request, decoded it and checked it, or its event loop was busy with other work"
    assert sentence in found["diagnosis"][0]


async def test_a_client_that_reads_slowly(stack: Stack) -> None:
    await stack.start_worker(ramp)
    await _read_slowly(stack, "ramp", "infer", "reads")
    found = await explained(stack, "reads", "writing")
    assert "the client was slow in reading the answer" in found["diagnosis"][0]


async def test_a_client_that_takes_parts_slowly(stack: Stack) -> None:
    for program in streaming.ramps.programs:
        await stack.start_worker(program)
    await _read_slowly(stack, "ramps", "infer_stream", "takes", num_parts=8)
    found = await explained(stack, "takes", "taking")
    assert "the client was slow in taking parts of the answer" in found["diagnosis"][0]


async def _read_slowly(stack: Stack, model: str, action: str, request_id: str, **parameters: Any) -> None:
    """Reads an answer of many megabytes, but not at once."""
    body = oip.json_body({"seed": np.zeros(1, np.float32)}, id=request_id, parameters=parameters | {"binary_data_output": True})
    head = (
        f"POST /v2/models/{model}/{action} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAccept: application/vnd.dyorc.stream\r\n"
        f"Content-Length: {len(body.content)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection(stack.client.base_url.host, stack.client.base_url.port, limit=2**16)
    writer.write(head.encode() + body.content)
    await reader.readexactly(100)
    await asyncio.sleep(2 * SLOW_S)
    assert len(await reader.read(-1)) > NUM_VALUES
    writer.close()
    await writer.wait_closed()
