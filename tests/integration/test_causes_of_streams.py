"""The cause of a slow request whose programs read streams, as a real server names it."""

import time
from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest
from jaxtyping import Int

import dyorc
from dyorc.config import RecordsConfig
from dyorc.telemetry.record_store import RecordStore
from dyorc.telemetry.recording import Recording
from tests import oip
from tests.deadlines import wait_until_async
from tests.integration.stack import running

pytestmark = pytest.mark.anyio

Number = Int[np.ndarray, ""]


@dyorc.program(batched=False)
def heavy(x: Number) -> Number:
    time.sleep(0.05)
    return x * x


@dyorc.workflow
async def squares(n: Number) -> AsyncIterator[Number]:
    for _ in range(10):
        yield heavy(n)


@dyorc.program(batched=False)
def passthrough(numbers: Iterator[Number]) -> Iterator[Number]:
    yield from numbers


@dyorc.workflow
async def plain(n: Number) -> AsyncIterator[Number]:
    async for number in passthrough(squares(n)):
        yield number


async def test_the_program_that_makes_the_parts_is_the_cause() -> None:
    recording, records = Recording(RecordsConfig()), RecordStore(RecordsConfig())
    recording.add(records)
    async with running([plain], recorder=recording, records=records) as stack:
        content = oip.json_body({"n": np.array(1)}, id="slow").content
        (await stack.client.post("/v2/models/plain/infer_stream", content=content)).raise_for_status()
        await wait_until_async(lambda: records.find("slow", lambda record: True) is not None, "the request is remembered")
        found = (await stack.client.get("/requests/slow")).json()
    assert "'heavy'" in found["diagnosis"][0]
    infer_ms = dict.fromkeys(("heavy", "passthrough"), 0.0)
    for batch in found["batches"].values():
        infer_ms[batch["program"]] += batch["infer_ms"]
    assert infer_ms["passthrough"] < infer_ms["heavy"] / 2
