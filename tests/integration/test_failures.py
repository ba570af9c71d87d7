"""Programs, inputs and replicas that fail: which requests get which error, and which go on."""

import asyncio
import inspect
import pickle
from pathlib import Path

import httpx
import numpy as np
import pytest

from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.config import EngineConfig
from dyorc.errors import ProgramLoadError
from dyorc.replica.worker import Worker
from tests import oip
from tests.deadlines import wait_until_async
from tests.integration.stack import running
from tests.workflows import arithmetic, faulty, slow, tensors

X = np.array([1, 2, 3, 4], np.float32)


async def infer(client: httpx.AsyncClient, model: str, x: oip.Array = X, **parameters: object) -> httpx.Response:
    """Sends one request with input x."""
    body = oip.json_body({"x": x}, parameters=parameters)
    return await client.post(f"/v2/models/{model}/infer", content=body.content, headers=body.headers)


async def test_one_poisoned_input_among_31_good_ones_fails_alone() -> None:
    faulty.batches.clear()
    inputs = [np.full(4, number, np.float32) for number in range(32)]
    inputs[13] = np.full(4, -5, np.float32)
    async with running([faulty.pick], num_replicas=0) as stack:
        answering = [asyncio.create_task(infer(stack.client, "pick", x)) for x in inputs]
        await wait_until_async(lambda: stack.orchestrator.num_requests == 32, "32 requests wait for a replica")
        await stack.start_worker(faulty.picky)
        answers = await asyncio.gather(*answering)
    print(f"\nsizes of the batches: {faulty.batches}")
    assert faulty.batches[0] == 32, "they shared a batch first"
    assert [answer.status_code for answer in answers].count(200) == 31
    assert answers[13].status_code == 500
    assert oip.error_text(answers[13]) == "program 'picky' failed: ValueError: negative number -5.0 in a batch"
    for x, answer in zip(inputs, answers, strict=True):
        if answer is not answers[13]:
            np.testing.assert_array_equal(oip.read(answer).outputs["output"], x + 1)


async def test_a_program_that_cannot_load_fails_its_requests_with_its_own_error_and_no_others() -> None:
    engine = EngineConfig(max_load_failures=2)
    async with running([faulty.needs_weights, arithmetic.quadruple], engine=engine, num_replicas=0) as stack:
        waiting = asyncio.create_task(infer(stack.client, "needs_weights"))
        await stack.start_worker(arithmetic.double)
        for _ in range(2):
            await stack.start_worker(faulty.weightless)
        answer = await waiting
        assert answer.status_code == 500
        assert oip.error_text(answer) == "program 'weightless' failed: FileNotFoundError: no weights at model.safetensors"
        again = await infer(stack.client, "needs_weights")
        assert (again.status_code, oip.error_text(again)) == (500, oip.error_text(answer)), "later requests fail at once"
        good = await infer(stack.client, "quadruple")
        np.testing.assert_array_equal(oip.read(good).outputs["output"], X * 4)
        ready = await stack.client.get("/v2/models/needs_weights/ready")
        assert ready.status_code == 503
        assert "no weights at model.safetensors" in oip.error_text(ready)


async def test_a_replica_that_hangs_loses_its_calls_to_another_and_is_used_again_when_it_wakes(tmp_path: Path) -> None:
    async with running([slow.hanging], num_replicas=2) as stack:
        answers = await asyncio.gather(
            *(infer(stack.client, "hanging", np.full(4, number, np.float32), folder=str(tmp_path)) for number in range(8))
        )
        for number, answer in enumerate(answers):
            np.testing.assert_array_equal(oip.read(answer).outputs["output"], np.full(4, number + 1))
        assert (tmp_path / "hung").exists(), "one of them did hang"
        assert len(stack.status(slow.hanging_program).replica_pids) == 1
        await wait_until_async(lambda: sum(map(_is_hung, stack.workers.values())) == 1, "says so to Serve's health check")
        (tmp_path / "open").touch()
        await wait_until_async(lambda: len(stack.status(slow.hanging_program).replica_pids) == 2, "it is used again")
        again = await infer(stack.client, "hanging", folder=str(tmp_path))
        np.testing.assert_array_equal(oip.read(again).outputs["output"], X + 1)


def _is_hung(worker: Worker) -> bool:
    try:
        worker.check()
    except RuntimeError as error:
        return "has been running one batch for more than 1.5 s" in str(error)
    return False


@pytest.mark.parametrize(
    ("workflow", "words", "line"),
    [
        (faulty.sleeper, ["workflow 'sleeper' awaits a Future", "may await Refs"], "await asyncio.sleep(0.01)"),
        (faulty.fickle, ["workflow 'fickle'", "'plus_one'"], "return plus_one(y)"),
        (faulty.reaches_too_far, ["program 'undeployed' is not deployed", "declare it"], "return _hidden()(plus_one(x))"),
        (faulty.divides_by_zero, ["ZeroDivisionError"], "return plus_one(x) if 1 // 0 else x"),
    ],
    ids=lambda value: value.name if isinstance(value, Workflow) else "",
)
async def test_the_error_of_a_workflow_that_breaks_a_rule_says_which_and_where(
    workflow: Workflow, words: list[str], line: str
) -> None:
    async with running([workflow]) as stack:
        answer = await infer(stack.client, workflow.name)
    text = oip.error_text(answer)
    print(f"\n{text}")
    assert answer.status_code == 500
    assert [word for word in words if word not in text] == []
    assert f"faulty.py, line {line_number(workflow, line)}" in text


def line_number(workflow: Workflow, line: str) -> int:
    """Returns the number of a line of a workflow's code in its file."""
    lines, first = inspect.getsourcelines(workflow.function)
    return next(first + at for at, text in enumerate(lines) if line in text)


@pytest.mark.parametrize("workflow", [tensors.shift_far, tensors.shift_strangely], ids=lambda workflow: workflow.name)
async def test_a_parameter_that_no_message_can_carry_fails_its_call_and_no_other(workflow: Workflow) -> None:
    async with running([workflow, tensors.shift]) as stack:
        bad, good = await asyncio.gather(infer(stack.client, workflow.name), infer(stack.client, "shift", by=3, label="three"))
        assert bad.status_code == 500
        assert "shift_program" in oip.error_text(bad)
        np.testing.assert_array_equal(oip.read(good).outputs["output"], X + 3)


async def test_an_error_text_that_no_message_can_carry_arrives_all_the_same() -> None:
    async with running([faulty.odd]) as stack:
        for _ in range(2):
            answer = await infer(stack.client, "odd")
            assert answer.status_code == 500
            assert oip.error_text(answer) == "program 'odd_program' failed: FileNotFoundError: weights-?.bin"
        assert len(stack.status(faulty.odd_program).replica_pids) == 1


async def test_whatever_a_program_raises_is_its_error_and_its_replica_goes_on() -> None:
    async with running([faulty.raising]) as stack:
        pids = dict(stack.status(faulty.raising_program).replica_pids)
        for what, told in faulty.TOLD.items():
            answer = await infer(stack.client, "raising", what=what)
            assert answer.status_code == 500
            assert oip.error_text(answer).startswith("program 'raising_program' failed: ")
            assert oip.error_text(answer).endswith(told)
            assert len(answer.content) < 10_000
        good = await infer(stack.client, "raising")
        np.testing.assert_array_equal(oip.read(good).outputs["output"], X + 1)
        assert stack.status(faulty.raising_program).replica_pids == pids
        stack.workers["raising_program-0"].check()


async def test_whatever_a_program_raises_while_it_loads_is_its_error() -> None:
    async with running([faulty.interrupted], engine=EngineConfig(max_load_failures=1), num_replicas=0) as stack:
        waiting = asyncio.create_task(infer(stack.client, "interrupted"))
        await stack.start_worker(faulty.never_loads)
        answer = await waiting
        assert answer.status_code == 500
        assert oip.error_text(answer) == "program 'never_loads' failed: KeyboardInterrupt: while it was loading"


async def test_whatever_a_module_raises_while_it_is_imported_is_its_programs_error() -> None:
    def leave() -> Program:
        raise SystemExit("no weights here")

    async with running([faulty.pick], engine=EngineConfig(max_load_failures=1), num_replicas=0) as stack:
        waiting = asyncio.create_task(infer(stack.client, "pick"))
        worker = Worker(leave, stack.identity("picky-0", "picky"), stack.uplink)
        with pytest.raises(ProgramLoadError, match="no weights here") as caught:
            await asyncio.to_thread(worker.start)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value), "Ray passes it on"
        assert oip.error_text(await waiting) == "program 'picky' failed: SystemExit: no weights here"


async def test_the_queued_calls_of_a_client_that_goes_away_are_dropped(tmp_path: Path) -> None:
    async with running([slow.gated]) as stack:
        first = asyncio.create_task(infer(stack.client, "gated", np.full(4, 1, np.float32), folder=str(tmp_path)))
        await wait_until_async((tmp_path / "started-1").exists, "the first call runs")
        second = asyncio.create_task(infer(stack.client, "gated", np.full(4, 2, np.float32), folder=str(tmp_path)))
        third = asyncio.create_task(infer(stack.client, "gated", np.full(4, 3, np.float32), folder=str(tmp_path)))
        fourth = asyncio.create_task(infer(stack.client, "gated", np.full(4, 4, np.float32), folder=str(tmp_path)))
        await wait_until_async(lambda: stack.orchestrator.num_requests == 4, "all of them have arrived")
        third.cancel()
        await asyncio.gather(third, return_exceptions=True)
        await wait_until_async(lambda: stack.orchestrator.num_requests == 3, "the server notices the client that left")
        (tmp_path / "open").touch()
        for task, number in ((first, 1), (second, 2), (fourth, 4)):
            np.testing.assert_array_equal(oip.read(await task).outputs["output"], np.full(4, number + 1))
        assert not (tmp_path / "started-3").exists(), "nobody ran what nobody waits for"


async def test_a_missed_deadline_is_answered_with_504_and_its_call_is_not_run(tmp_path: Path) -> None:
    async with running([slow.gated]) as stack:
        first = asyncio.create_task(infer(stack.client, "gated", np.full(4, 1, np.float32), folder=str(tmp_path)))
        await wait_until_async((tmp_path / "started-1").exists, "the first call runs")
        others: list[asyncio.Task[httpx.Response]] = []
        for number in (2, 3):  # one after another: the replica takes the second ahead
            task = infer(stack.client, "gated", np.full(4, number, np.float32), folder=str(tmp_path), timeout=2_000_000)
            others.append(asyncio.create_task(task))
            await wait_until_async(lambda number=number: stack.orchestrator.num_requests == number, f"{number} are in flight")
        for answer in await asyncio.gather(*others):
            assert answer.status_code == 504
            assert "deadline" in oip.error_text(answer)
        (tmp_path / "open").touch()
        assert (await first).status_code == 200
        last = await infer(stack.client, "gated", np.full(4, 9, np.float32), folder=str(tmp_path))
        assert last.status_code == 200
        assert not (tmp_path / "started-3").exists()


async def test_too_many_requests_are_turned_away_with_a_retry_after(tmp_path: Path) -> None:
    async with running([slow.narrow], engine=EngineConfig(max_requests=3)) as stack:
        waiting = [asyncio.create_task(infer(stack.client, "narrow", folder=str(tmp_path))) for _ in range(3)]
        await wait_until_async(lambda: stack.orchestrator.num_requests == 3, "three are in flight")
        refused = await infer(stack.client, "narrow", folder=str(tmp_path))
        assert refused.status_code == 503
        assert int(refused.headers["Retry-After"]) >= 1
        assert oip.error_text(refused) == "3 requests are in flight, the limit is 3"
        (tmp_path / "open").touch()
        assert [answer.status_code for answer in await asyncio.gather(*waiting)] == [200] * 3
        assert (await infer(stack.client, "narrow", folder=str(tmp_path))).status_code == 200


async def test_a_full_queue_turns_away_only_requests_that_need_its_program(tmp_path: Path) -> None:
    async with running([slow.narrow, arithmetic.quadruple]) as stack:
        waiting: list[asyncio.Task[httpx.Response]] = []
        for number in range(6):  # one runs, one travels, four wait
            waiting.append(
                asyncio.create_task(infer(stack.client, "narrow", np.full(4, number, np.float32), folder=str(tmp_path)))
            )
            await wait_until_async(lambda: stack.orchestrator.num_requests == len(waiting), "it arrives")
        refused = await infer(stack.client, "narrow", folder=str(tmp_path))
        assert refused.status_code == 503
        assert "calls of program 'narrow_program' are waiting, the limit is 4" in oip.error_text(refused)
        assert int(refused.headers["Retry-After"]) >= 1
        assert (await infer(stack.client, "quadruple")).status_code == 200
        (tmp_path / "open").touch()
        assert [answer.status_code for answer in await asyncio.gather(*waiting)] == [200] * 6


async def test_a_bug_in_the_engine_fails_what_is_in_flight_and_nothing_after(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    async with running([arithmetic.quadruple]) as stack:
        with monkeypatch.context() as broken:
            broken.setattr("dyorc.engine.engine.Engine.handle", crash)
            failed = await infer(stack.client, "quadruple")
        assert failed.status_code == 500
        assert oip.error_text(failed) == "the scheduler failed while the request was in flight"
        assert (await infer(stack.client, "quadruple")).status_code == 200


async def test_a_program_that_reuses_its_buffer_answers_each_request_with_its_own_result() -> None:
    async with running([tensors.reused_buffer]) as stack:
        inputs = [np.full(40_000, number, np.float32) for number in range(24)]
        answers = await asyncio.gather(*(infer(stack.client, "reused_buffer", x) for x in inputs))
    for x, answer in zip(inputs, answers, strict=True):
        np.testing.assert_array_equal(oip.read(answer).outputs["output"], x + 1)
