"""Large tensors go from replica to replica; the orchestrator sees references."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import httpx
import numpy as np
import pytest

from dyorc.config import TransportConfig
from tests import oip
from tests.deadlines import wait_until_async
from tests.integration.stack import FAST_TRANSPORT, Stack, running
from tests.workflows import large

NUM_BYTES = 4 * large.NUM_VALUES
END = np.float32(large.NUM_VALUES - 1)


async def infer(client: httpx.AsyncClient, model: str, seed: float, **parameters: object) -> httpx.Response:
    """Sends one request; outputs come as raw bytes."""
    body = oip.binary_body({"seed": np.array([seed], np.float32)}, parameters={"binary_data_output": True, **parameters})
    return await client.post(f"/v2/models/{model}/infer", content=body.content, headers=body.headers)


def ends_of(response: httpx.Response) -> Sequence[float]:
    """Returns the answer of a chain."""
    assert response.status_code == 200, response.text
    return oip.read(response).outputs["output"].tolist()


async def wait_until_empty(stack: Stack) -> None:
    """Waits until nobody holds a tensor any more."""
    arenas = [*(worker.exchange.arena for worker in stack.workers.values()), stack.orchestrator.tensors.exchange.arena]
    await wait_until_async(lambda: not sum(arena.num_blocks for arena in arenas), "all blocks are free", 5)


def link_bytes(stack: Stack) -> int:
    """Returns how many bytes have gone between orchestrator and replicas."""
    return sum(stack.orchestrator.report()["link"].values())


async def test_a_chain_is_right_and_its_bytes_bypass_the_orchestrator() -> None:
    async with running([large.chain], transport=TransportConfig(arena_bytes=2**28)) as stack:
        before = link_bytes(stack)
        answers = await asyncio.gather(*(infer(stack.client, "chain", seed) for seed in range(8)))
        for seed, answer in enumerate(answers):
            np.testing.assert_allclose(ends_of(answer), [seed + 2, END + seed + 2])
        num_calls = 8 * 7
        per_call = (link_bytes(stack) - before) / num_calls
        print(f"\n{per_call:.0f} bytes per call of {NUM_BYTES}")
        assert per_call < 10_000
        await wait_until_empty(stack)


async def test_a_large_answer_comes_from_the_arena_it_was_made_in() -> None:
    async with running([large.whole]) as stack:
        for seed in (1.0, 5.0):
            response = await infer(stack.client, "whole", seed)
            expected = np.arange(large.NUM_VALUES, dtype=np.float32) + np.float32(seed) + 1
            np.testing.assert_array_equal(oip.read(response).outputs["output"], expected)
        assert link_bytes(stack) < 20_000
        await wait_until_empty(stack)


@pytest.mark.parametrize("is_binary", [True, False])
async def test_a_large_input_lies_in_the_arena(is_binary: bool) -> None:
    x = np.random.default_rng(0).integers(0, 255, 100_000, np.uint8)
    make_body = oip.binary_body if is_binary else oip.json_body
    async with running([large.summed]) as stack:
        body = make_body({"x": x})
        response = await stack.client.post("/v2/models/summed/infer", content=body.content, headers=body.headers)
        assert oip.read(response).outputs["output"] == x.sum()
        assert link_bytes(stack) < 5_000
        await wait_until_empty(stack)


@pytest.mark.parametrize("cut", ["json", "tensor", "name"])
async def test_a_bad_request_with_a_large_body_leaves_nothing_in_the_arena(cut: str) -> None:
    x = np.zeros(100_000, np.uint8)
    async with running([large.summed]) as stack:
        body = oip.binary_body({"y" if cut == "name" else "x": x})
        content = {"json": b"?" + body.content[1:], "tensor": body.content[:-10], "name": body.content}[cut]
        response = await stack.client.post("/v2/models/summed/infer", content=content, headers=body.headers)
        assert response.status_code == 400
        await wait_until_empty(stack)


async def test_a_full_arena_makes_batches_wait_and_then_answers_503(tmp_path: Path) -> None:
    transport = FAST_TRANSPORT.model_copy(update={"arena_bytes": 20 * 2**20, "arena_wait_s": 0.2})
    async with running([large.chain_when_open], transport=transport) as stack:
        waiting = [asyncio.create_task(infer(stack.client, "chain_when_open", n, folder=str(tmp_path))) for n in range(12)]
        await wait_until_async(lambda: any(task.done() for task in waiting), "the first is turned away")
        (tmp_path / "open").touch()
        answers = await asyncio.gather(*waiting)
        refused = [answer for answer in answers if answer.status_code == 503]
        print(f"\n{len(refused)} of 12 were turned away: {oip.error_text(refused[0])}")
        assert all(float(answer.headers["retry-after"]) > 0 for answer in refused)
        assert "no room for" in oip.error_text(refused[0])
        assert {answer.status_code for answer in answers} == {200, 503}
        for seed, answer in enumerate(answers):
            if answer.status_code == 200:
                np.testing.assert_allclose(ends_of(answer), [seed, END + seed])
        await wait_until_empty(stack)
        np.testing.assert_allclose(ends_of(await infer(stack.client, "chain_when_open", 7, folder=str(tmp_path))), [7, END + 7])


@pytest.mark.parametrize("is_binary", [True, False])
async def test_an_input_that_never_fits_is_refused_for_good(is_binary: bool) -> None:
    x = np.zeros(2**21, np.uint8)
    body = (oip.binary_body if is_binary else oip.json_body)({"x": x})
    async with running([large.summed], transport=FAST_TRANSPORT.model_copy(update={"arena_bytes": 2**20})) as stack:
        answer = await stack.client.post("/v2/models/summed/infer", content=body.content, headers=body.headers)
        assert (answer.status_code, answer.json()["code"], answer.json()["retryable"]) == (413, "payload_too_large", False)
        assert "retry-after" not in answer.headers
        assert "the server has" in oip.error_text(answer)
        await wait_until_empty(stack)


async def test_the_error_of_a_result_that_never_fits_says_what_to_do() -> None:
    transport = FAST_TRANSPORT.model_copy(update={"arena_bytes": 2**20})
    async with running([large.whole], transport=transport) as stack:
        answer = await infer(stack.client, "whole", 1)
        assert answer.status_code == 500
        assert "DYORC_TRANSPORT__ARENA_BYTES" in oip.error_text(answer)
        assert str(NUM_BYTES) in oip.error_text(answer)
        await wait_until_empty(stack)


async def test_tensors_of_a_replica_that_dies_are_computed_again(tmp_path: Path) -> None:
    async with running([large.chain_when_open], num_replicas=0) as stack:
        target = f"{large.__file__}:chain_when_open"
        victim = await stack.start_process(target, large.ramp, "victim")
        answering = asyncio.create_task(infer(stack.client, "chain_when_open", 3, folder=str(tmp_path)))
        await wait_until_async(lambda: stack.orchestrator.report()["programs"]["ramp"]["batch_base_ms"], "the first program ran")
        holder = stack.orchestrator.tensors.holder("victim")
        assert holder is not None
        victim.kill()
        await wait_until_async(lambda: "victim" not in stack.status(large.ramp).replica_pids, "its loss is noticed")
        (tmp_path / "open").touch()
        await stack.start_worker(large.total_when_open)
        await stack.start_worker(large.ramp)
        np.testing.assert_allclose(ends_of(await answering), [3, END + 3])
        await wait_until_empty(stack)
        arena = Path(stack.transport.arena_folder) / holder.arena
        await wait_until_async(lambda: not arena.exists(), "the dead one's arena is removed", 5)


async def test_a_long_loop_needs_room_for_only_a_few_turns() -> None:
    transport = FAST_TRANSPORT.model_copy(update={"arena_bytes": 10 * NUM_BYTES})
    async with running([large.loop], transport=transport) as stack:
        np.testing.assert_allclose(ends_of(await infer(stack.client, "loop", 3, num_turns=60)), [63, END + 63])
        await wait_until_empty(stack)
