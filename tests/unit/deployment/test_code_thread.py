"""Users' code that runs on a thread of its own, and may never end there."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from dyorc.deployment.code_thread import run_on_own_thread
from dyorc.errors import ModuleImportError
from tests.deadlines import TIMEOUT_S, wait_until_async

pytestmark = pytest.mark.anyio


class _Job:
    """Runs users' code, and knows its thread."""

    def __init__(self, code: Callable[[], object]) -> None:
        self._code = code
        self.thread: threading.Thread | None = None

    def __call__(self) -> object:
        self.thread = threading.current_thread()
        return self._code()

    def is_running(self) -> bool:
        return self.thread is not None and self.thread.is_alive()

    def has_ended(self) -> bool:
        return self.thread is not None and not self.thread.is_alive()


def _compute_for_ever() -> None:
    while True:
        pass


async def test_the_result_comes_back_and_the_thread_ends() -> None:
    job = _Job(lambda: 7)
    assert await run_on_own_thread(job, TIMEOUT_S, "it") == 7
    await wait_until_async(job.has_ended, "its thread has ended")


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), TimeoutError("slow"), asyncio.CancelledError()])
async def test_what_the_code_raises_is_raised(error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as caught:
        await run_on_own_thread(fail, TIMEOUT_S, "it")
    assert caught.value is error


async def test_a_loop_in_python_is_interrupted() -> None:
    job = _Job(_compute_for_ever)
    with pytest.raises(ModuleImportError, match=r"^importing app\.py has taken more than 0\.2 s$"):
        await run_on_own_thread(job, 0.2, "importing app.py")
    await wait_until_async(job.has_ended, "it was interrupted")


async def test_nobody_waits_for_a_thread_that_cannot_be_interrupted() -> None:
    gate = threading.Event()
    job = _Job(gate.wait)
    try:
        with pytest.raises(ModuleImportError, match="has taken more than"):
            await run_on_own_thread(job, 0.2, "it")
        assert job.is_running()
        assert job.thread is not None
        assert job.thread.daemon, "Python's end waits for others"
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.get_running_loop().shutdown_default_executor()
        assert job.is_running()
    finally:
        gate.set()
    await wait_until_async(job.has_ended, "it goes when it can")


async def test_code_for_which_nobody_waits_is_interrupted() -> None:
    job = _Job(_compute_for_ever)
    running = asyncio.create_task(run_on_own_thread(job, TIMEOUT_S, "it"))
    await wait_until_async(job.is_running, "it runs")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await wait_until_async(job.has_ended, "it was interrupted")
