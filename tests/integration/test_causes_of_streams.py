"""The cause of a slow request whose programs read streams, as a real server names it."""

import numpy as np
import pytest

from dyorc.config import RecordsConfig
from dyorc.telemetry.record_store import RecordStore
from dyorc.telemetry.recording import Recording
from tests import oip
from tests.deadlines import wait_until_async
from tests.integration.stack import running
from tests.workflows.slow_producer import plain

pytestmark = pytest.mark.anyio


async def test_the_program_that_makes_the_parts_is_the_cause() -> None:
    recording, records = Recording(RecordsConfig()), RecordStore(RecordsConfig())
    recording.add(records)
    async with running([plain], recorder=recording, records=records) as stack:
        content = oip.json_body({"n": np.array(1)}, id="slow").content
        (await stack.client.post("/v2/models/plain/infer_stream", content=content)).raise_for_status()
        await wait_until_async(lambda: records.find("slow", lambda _: True) is not None, "the request is remembered")
        record = (await stack.client.get("/requests/slow")).json()
    assert "'heavy'" in record["diagnosis"][0]
    infer_ms = dict.fromkeys(("heavy", "reader"), 0.0)
    for batch in record["batches"].values():
        infer_ms[batch["program"]] += batch["infer_ms"]
    assert infer_ms["reader"] < infer_ms["heavy"] / 2
