"""Ray is started a second time if the first attempt fails; after that there is one line of error."""

import asyncio
import gc
import threading
from collections.abc import Iterator

import pytest

from dyorc.errors import LaunchError
from dyorc.ray_serve.ray_connection import start_with_retry


class Scripted:
    """A step that fails a given number of times."""

    def __init__(self, *errors: Exception) -> None:
        self._errors: Iterator[Exception] = iter(errors)
        self.calls: list[str] = []

    def step(self) -> None:
        """Makes one attempt."""
        self.calls.append("step")
        for error in self._errors:
            raise error

    def undo(self) -> None:
        """Notes that a failed attempt was reverted."""
        self.calls.append("undo")


TIMED_OUT = RuntimeError("The current node timed out during startup.\nLast 20 lines of raylet.out:\n" + "  line of a log\n" * 70)


def test_a_step_that_fails_once_is_reverted_and_tried_again() -> None:
    ray = Scripted(TIMED_OUT)
    asyncio.run(start_with_retry("Ray", ray.step, ray.undo))
    assert ray.calls == ["step", "undo", "step"]


def test_the_error_of_a_step_that_fails_twice_is_one_line() -> None:
    ray = Scripted(TIMED_OUT, TIMED_OUT)
    with pytest.raises(LaunchError) as caught:
        asyncio.run(start_with_retry("Ray", ray.step, ray.undo))
    assert ray.calls == ["step", "undo", "step", "undo"]
    text = str(caught.value)
    assert text.startswith(
        "Ray could not be started, tried 2 times: RuntimeError: The current node timed out during startup. Last"
    )
    assert "\n" not in text
    assert len(text) < 500
    assert caught.value.__cause__ is TIMED_OUT


def test_a_step_that_must_not_be_repeated_is_tried_once() -> None:
    cluster = Scripted(ConnectionError("nobody there"))
    with pytest.raises(LaunchError, match=r"^a cluster could not be started: ConnectionError: nobody there$"):
        asyncio.run(start_with_retry("a cluster", cluster.step, cluster.undo, max_attempts=1))
    assert cluster.calls == ["step", "undo"]


def test_an_attempt_that_fails_after_its_start_was_given_up_is_reverted_and_not_logged_as_lost() -> None:
    lost: list[dict[str, object]] = []
    ray = Scripted(TIMED_OUT)
    has_begun, may_end = threading.Event(), threading.Event()

    def fail() -> None:
        has_begun.set()
        may_end.wait()
        ray.step()

    async def give_up() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))
        starting = asyncio.create_task(start_with_retry("Ray", fail, ray.undo))
        await asyncio.to_thread(has_begun.wait)
        starting.cancel()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        del starting
        gc.collect()

    asyncio.run(give_up())
    assert lost == []
    assert ray.calls == ["step", "undo"]
