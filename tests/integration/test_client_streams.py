"""The Python client's streams and jobs against the real gateway."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxtyping import Float, Int

import dyorc
from dyorc.client import AsyncClient, Client, JobState
from dyorc.errors import DeadlineError, ProgramError, UnsupportedError
from dyorc.store.sqlite import SqliteStore
from tests.deadlines import wait_until_async
from tests.integration.stack import running
from tests.workflows import arithmetic, faulty, relayed

Number = Int[np.ndarray, ""]
X = np.array([1, 2, 3, 4], np.float32)
ENDLESS: dict[str, Any] = {"first": 1, "num_parts": 10**6, "pause_s": 0.05}


def _streaming() -> dyorc.Workflow:
    """Defines a streaming workflow."""

    @dyorc.workflow(name="powers")
    async def powers(x: Float[np.ndarray, "4"], num: int) -> AsyncIterator[Float[np.ndarray, "4"]]:
        for _ in range(num):
            x = arithmetic.double(x)
            yield x

    return powers


async def test_a_model_that_does_not_stream_has_one_part() -> None:
    async with running([arithmetic.quadruple]) as stack, AsyncClient(str(stack.client.base_url)) as client:
        assert [part.tolist() async for part in client.stream("quadruple", x=X)] == [(X * 4).tolist()]


async def test_a_stream_that_fails_raises_what_the_server_did() -> None:
    async with running([faulty.pick]) as stack, AsyncClient(str(stack.client.base_url)) as client:
        with pytest.raises(ProgramError, match="negative number"):
            await anext(client.stream("pick", x=-X))


async def test_parts_of_a_streaming_workflow_come_in_order() -> None:
    async with running([_streaming()]) as stack, AsyncClient(str(stack.client.base_url)) as client:
        found = [part[0] async for part in client.stream("powers", x=X, num=40)]
        assert found == [2.0**at for at in range(1, 41)]
        with pytest.raises(UnsupportedError):
            await client.infer("powers", x=X, num=2)


async def test_a_stream_may_be_left_early() -> None:
    async with running([_streaming()]) as stack, AsyncClient(str(stack.client.base_url)) as client:
        async with aclosing(client.stream("powers", x=X, num=10**6)) as parts:
            assert (await anext(parts)).tolist() == (X * 2).tolist()
        assert [part[0] async for part in client.stream("powers", x=X, num=1)] == [2.0]


@dyorc.workflow
async def counted(first: Number, num_parts: int, pause_s: float) -> AsyncIterator[Number]:
    async for part in relayed.doubled(relayed.numbers(first, num_parts, pause_s)):
        yield part


@dyorc.program(batched=False, max_ongoing=8)
def three(first: Number) -> Iterator[Number]:
    """Yields three numbers and fails."""
    for at in range(3):
        yield first + at
    raise ValueError("there are no more")


@dyorc.workflow
async def short(first: Number) -> AsyncIterator[Number]:
    async for part in three(first):
        yield part


def _noted(notes: Path) -> bool:
    return notes.exists() and sorted(notes.read_text().splitlines()) == ["doubled closed", "numbers from 1 closed"]


async def test_an_error_comes_after_the_parts_before_it() -> None:
    async with running([short]) as stack, AsyncClient(str(stack.client.base_url)) as client:
        found: list[int] = []
        with pytest.raises(ProgramError, match="there are no more"):
            await _take_all(client.stream("short", first=5), found)
        assert found == [5, 6, 7]


@pytest.mark.parametrize("is_blocking", [False, True])
async def test_closing_a_stream_ends_the_programs_that_yield_it(
    is_blocking: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = tmp_path / "notes"
    monkeypatch.setenv(relayed.NOTES, str(notes))
    async with running([counted]) as stack:
        url = str(stack.client.base_url)
        if is_blocking:
            await asyncio.to_thread(_read_one, url)
        else:
            async with AsyncClient(url) as client, aclosing(client.stream("counted", **ENDLESS)) as parts:
                assert await anext(parts) == 2
        await wait_until_async(lambda: _noted(notes), "both programs are closed")


def _read_one(url: str) -> None:
    with Client(url) as client, closing(client.stream("counted", **ENDLESS)) as parts:
        assert next(parts) == 2


@pytest.mark.parametrize("is_blocking", [False, True])
async def test_the_time_may_be_up_in_the_middle_of_a_stream(is_blocking: bool) -> None:
    async with running([counted]) as stack:
        url = str(stack.client.base_url)
        found = await asyncio.to_thread(_read_until_late, url) if is_blocking else await _read_until_late_async(url)
    assert found[:2] == [2, 4]
    assert len(found) < 100


def _read_until_late(url: str) -> list[int]:
    found: list[int] = []
    with Client(url) as client, pytest.raises(DeadlineError):
        found.extend(int(part) for part in client.stream("counted", timeout_s=1.0, **ENDLESS))
    return found


async def _take_all(parts: AsyncIterator[Any], found: list[int]) -> None:
    async for part in parts:
        found.append(int(part))


async def _read_until_late_async(url: str) -> list[int]:
    found: list[int] = []
    async with AsyncClient(url) as client:
        with pytest.raises(DeadlineError):
            await _take_all(client.stream("counted", timeout_s=1.0, **ENDLESS), found)
    return found


async def test_a_job_from_start_to_end(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.sqlite")
    async with (
        running([arithmetic.quadruple, faulty.pick], store=store) as stack,
        AsyncClient(str(stack.client.base_url)) as client,
    ):
        job = await client.submit("quadruple", x=X, idempotency_key="one")
        assert (await client.submit("quadruple", x=X, idempotency_key="one")).id == job.id
        assert (await job.wait(30)).state is JobState.SUCCEEDED
        assert (await job.result()).tolist() == (X * 4).tolist()
        assert [one.id for one in await client.jobs(state=JobState.SUCCEEDED)] == [job.id]
        failing = await client.submit("pick", x=-X)
        with pytest.raises(ProgramError, match="negative number"):
            await failing.result(30)
        await job.delete()
        assert [one.id for one in await client.jobs()] == [failing.id]
