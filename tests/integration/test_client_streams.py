"""The Python client's streams and jobs against the real gateway."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.client import AsyncClient, JobState
from dyorc.errors import ProgramError, UnsupportedError
from dyorc.store.sqlite import SqliteStore
from tests.integration.stack import running
from tests.workflows import arithmetic, faulty

X = np.array([1, 2, 3, 4], np.float32)


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
