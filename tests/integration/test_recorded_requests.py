"""Every request leaves one record when it ends, whichever way it came and however it ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dyorc.config import JobsConfig
from dyorc.store.sqlite import SqliteStore
from dyorc.telemetry.record import Origin, RequestRecord
from tests import oip, oip_grpc
from tests.asking import submission
from tests.deadlines import wait_until_async
from tests.integration.stack import Stack, running, within
from tests.workflows import faulty, guarded, slow, streaming

X = np.array([1, 2, 3, 4], np.float32)


class Shelf:
    """Keeps all records."""

    def __init__(self) -> None:
        self.records: list[RequestRecord] = []
        self.num_asked = 0

    def wants(self) -> bool:
        self.num_asked += 1
        return True

    def ended(self, record: RequestRecord) -> None:
        self.records.append(record)

    def refused(self, outcome: str, record: Callable[[], RequestRecord]) -> None:
        self.records.append(record())
        assert self.records[-1].outcome == outcome

    async def only(self) -> RequestRecord:
        """Returns the only record there is, once there is one, and forgets it."""
        await wait_until_async(lambda: bool(self.records), "there is a record")
        (record,) = self.records
        assert self.num_asked <= 1
        self.records.clear()
        self.num_asked = 0
        return record


@pytest.fixture(scope="module")
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture(scope="module")
async def stack(leaves_nothing: None, shelf: Shelf, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    """Starts one server for this module."""
    store = SqliteStore(tmp_path_factory.mktemp("jobs") / "jobs.sqlite")
    targets = [guarded.guarded, slow.gated, streaming.count_up, faulty.pick]
    async with running(targets, store=store, jobs=JobsConfig(), grpc=True, recorder=shelf) as found:
        yield found


async def post(stack: Stack, model: str, action: str = "infer", x: oip.Array = X, request_id: str = "", **parameters: Any) -> Any:
    fields: dict[str, Any] = {"id": request_id} if request_id else {}
    body = oip.json_body({"x": x}, parameters=parameters, **fields)
    return await stack.client.post(f"/v2/models/{model}/{action}", content=body.content, headers=body.headers)


def check(record: RequestRecord, transport: str, workflow: str, outcome: str = "ok") -> None:
    """Checks what every record says, and that its times are in order."""
    origin, story = record.origin, record.story
    assert (origin.transport, record.workflow, record.outcome) == (transport, workflow, outcome)
    assert story is not None
    assert story.number == record.number
    assert 0 < origin.arrived_ns <= origin.read_ns <= record.started_ns == story.started_ns <= story.ended_ns <= record.ended_ns
    assert story.is_answered == (outcome == "ok")
    assert origin.num_bytes > 0
    for call in story.calls:
        assert story.started_ns <= call.asked_ns <= call.ended_ns
        for batch in call.batches:
            assert call.queued_ns <= batch.sent_ns <= batch.started_ns


@pytest.mark.parametrize("request_id", ["", "r-1"])
async def test_a_small_request(stack: Stack, shelf: Shelf, request_id: str) -> None:
    answer = await post(stack, "guarded", request_id=request_id)
    assert answer.status_code == 200
    record = await shelf.only()
    check(record, "http", "guarded")
    assert record.origin.written_ns >= record.started_ns
    assert record.origin.request_id == request_id or (not request_id and record.origin.request_id)
    assert answer.json().get("id", "") == request_id
    assert record.story is not None
    look, work = record.story.calls
    (decision,) = record.story.decisions
    assert (look.program, look.sources, look.decision, look.outcome) == ("look", (), -1, "done")
    assert (work.program, work.sources, work.decision, work.branch, work.outcome) == ("work", (), 0, "True", "done")
    assert (decision.sources, decision.outcome) == ((look.call_id,), "True")
    (batch,) = look.batches
    assert (batch.requests, batch.size, batch.outcome) == ((record.number,), 1, "done")
    assert batch.infer_s >= 0.03


async def test_ids_that_are_made_up_differ(stack: Stack, shelf: Shelf) -> None:
    ids: set[str] = set()
    for _ in range(2):
        await post(stack, "guarded")
        ids.add((await shelf.only()).origin.request_id)
    assert len(ids) == 2


async def test_a_request_by_the_asgi_route(stack: Stack, shelf: Shelf) -> None:
    answer = await stack.client.post("/v2/models/guarded/generate", json={"x": X.tolist(), "id": "r-2"})
    assert answer.status_code == 200
    record = await shelf.only()
    check(record, "http", "guarded")
    assert record.origin.request_id == "r-2"
    await wait_until_async(lambda: record.origin.written_ns >= record.ended_ns, "it is noted that the answer is written")


async def test_a_request_by_grpc(stack: Stack, shelf: Shelf) -> None:
    async with oip_grpc.connected(stack.grpc_address) as stub:
        await stub.ModelInfer(oip_grpc.request("guarded", {"x": X}, request_id="r-3"))
    record = await shelf.only()
    check(record, "grpc", "guarded")
    assert record.origin.request_id == "r-3"


async def test_a_stream(stack: Stack, shelf: Shelf) -> None:
    answer = await post(stack, "count_up", "infer_stream", np.array([20, 21], np.float32), num_parts=3)
    assert answer.status_code == 200
    record = await shelf.only()
    check(record, "http", "count_up")
    assert record.story is not None
    assert [part.index for part in record.story.parts] == [0, 1, 2]
    assert all(0 < part.sent_ns <= part.taken_ns for part in record.story.parts)


async def test_a_stream_tells_each_step_with_the_next_part(stack: Stack, shelf: Shelf) -> None:
    answer = await post(stack, "count_up", "infer_stream", np.array([20, 21], np.float32), num_parts=3, explain=True)
    await shelf.only()
    assert answer.text.count('"event":"dispatched"') == 3


async def test_a_job(stack: Stack, shelf: Shelf) -> None:
    body = oip.json_body({"x": X}, model_name="guarded")
    answer = await stack.client.post("/v1/jobs", content=body.content, headers=body.headers)
    record = await shelf.only()
    check(record, "job", "guarded")
    assert record.origin.request_id == answer.json()["id"]


async def test_a_request_that_fails(stack: Stack, shelf: Shelf) -> None:
    answer = await post(stack, "pick", x=-X)
    record = await shelf.only()
    check(record, "http", "pick", outcome=answer.json()["code"])
    assert record.error == answer.json()["error"]
    assert record.story is not None
    assert [call.outcome for call in record.story.calls] == ["failed"]


async def test_a_request_whose_time_is_up(stack: Stack, shelf: Shelf, tmp_path: Path) -> None:
    answer = await post(stack, "gated", folder=str(tmp_path), timeout=200_000)
    (tmp_path / "open").touch()
    record = await shelf.only()
    check(record, "http", "gated", outcome="deadline")
    assert answer.status_code == 504
    assert record.story is not None
    assert [call.outcome for call in record.story.calls] == ["withdrawn"]


async def test_a_request_that_its_client_gives_up(stack: Stack, shelf: Shelf, tmp_path: Path) -> None:
    asking = asyncio.create_task(post(stack, "gated", folder=str(tmp_path)))
    await wait_until_async((tmp_path / "started-1").exists, "the program runs")
    asking.cancel()
    record = await shelf.only()
    (tmp_path / "open").touch()
    check(record, "http", "gated", outcome="cancelled")
    assert record.story is not None
    assert [call.outcome for call in record.story.calls] == ["withdrawn"]


def check_refused(record: RequestRecord, transport: str, workflow: str, outcome: str) -> None:
    """Checks what every record of a request says that was refused before the orchestrator had it."""
    origin = record.origin
    assert (origin.transport, record.workflow, record.outcome, record.story) == (transport, workflow, outcome, None)
    assert record.error
    assert record.number < 0
    assert 0 < origin.arrived_ns <= origin.read_ns <= record.started_ns == record.ended_ns


@pytest.mark.parametrize(
    ("model", "action", "outcome"),
    [("guarded", "infer", "invalid_input"), ("guarded", "generate", "invalid_input"), ("nix", "infer", "unknown_model")],
)
async def test_a_request_that_is_refused(stack: Stack, shelf: Shelf, model: str, action: str, outcome: str) -> None:
    answer = await stack.client.post(f"/v2/models/{model}/{action}", json={"inputs": []})
    record = await shelf.only()
    check_refused(record, "http", model, outcome)
    assert (record.origin.request_id, record.error) == (answer.json()["request_id"], answer.json()["error"])


async def test_a_request_by_grpc_that_is_refused(stack: Stack, shelf: Shelf) -> None:
    async with oip_grpc.connected(stack.grpc_address) as stub:
        await oip_grpc.refused(stub.ModelInfer(oip_grpc.request("nix", {"x": X}, request_id="r-5")))
        record = await shelf.only()
        check_refused(record, "grpc", "nix", "unknown_model")
        assert record.origin.request_id == "r-5"


async def test_a_request_for_which_there_is_no_room(stack: Stack, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack.service.admission, "_max_requests", 0)
    assert (await post(stack, "guarded")).status_code == 503
    check_refused(await shelf.only(), "http", "guarded", "capacity")
    async with oip_grpc.connected(stack.grpc_address) as stub:
        await oip_grpc.refused(stub.ModelInfer(oip_grpc.request("guarded", {"x": X})))
    check_refused(await shelf.only(), "grpc", "guarded", "capacity")


async def test_a_job_that_is_refused(stack: Stack, shelf: Shelf) -> None:
    body = oip.json_body({"x": X}, model_name="nix")
    assert (await stack.client.post("/v1/jobs", content=body.content, headers=body.headers)).status_code == 404
    check_refused(await shelf.only(), "job", "", "unknown_model")


async def test_a_batch_says_how_its_inputs_came(stack: Stack, shelf: Shelf) -> None:
    await post(stack, "count_up", "infer_stream", np.array([20, 21], np.float32), num_parts=1)
    record = await shelf.only()
    assert record.story is not None
    (move,) = record.story.calls[0].batches[0].moves
    assert (move.tier, move.num_bytes) == ("message", 8)


async def test_without_an_origin_nothing_is_recorded(stack: Stack, shelf: Shelf) -> None:
    asked = submission(guarded.guarded, [X], terms=within(30), recorder=shelf)
    await stack.orchestrator.infer(asked)
    assert not shelf.records


async def test_without_a_recorder_the_story_can_be_read(stack: Stack) -> None:
    origin = Origin(request_id="r-4", transport="http")
    await stack.orchestrator.infer(submission(guarded.guarded, [X], origin=origin))
    assert origin.story is not None
    assert origin.story.steps()[-1]["event"] == "answered"
