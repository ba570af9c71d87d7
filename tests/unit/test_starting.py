"""Starting Ray: once more if it fails, and then one line."""

import asyncio
from collections.abc import Iterator

import pytest

from dyorc.errors import LaunchError
from dyorc.launcher.starting import start


class Scripted:
    """A step that fails a given number of times."""

    def __init__(self, *errors: Exception) -> None:
        self._errors: Iterator[Exception] = iter(errors)
        self.calls: list[str] = []

    def step(self) -> None:
        """One attempt."""
        self.calls.append("step")
        for error in self._errors:
            raise error

    def undo(self) -> None:
        """After an attempt that failed."""
        self.calls.append("undo")


TIMED_OUT = RuntimeError("The current node timed out during startup.\nLast 20 lines of raylet.out:\n" + "  line of a log\n" * 70)


def test_what_fails_once_is_taken_back_and_tried_again() -> None:
    ray = Scripted(TIMED_OUT)
    asyncio.run(start("Ray", ray.step, ray.undo))
    assert ray.calls == ["step", "undo", "step"]


def test_what_fails_twice_is_one_line() -> None:
    ray = Scripted(TIMED_OUT, TIMED_OUT)
    with pytest.raises(LaunchError) as caught:
        asyncio.run(start("Ray", ray.step, ray.undo))
    assert ray.calls == ["step", "undo", "step", "undo"]
    text = str(caught.value)
    assert text.startswith(
        "Ray could not be started, tried 2 times: RuntimeError: The current node timed out during startup. Last"
    )
    assert "\n" not in text
    assert len(text) < 500
    assert caught.value.__cause__ is TIMED_OUT


def test_what_must_not_be_repeated_is_tried_once() -> None:
    cluster = Scripted(ConnectionError("nobody there"))
    with pytest.raises(LaunchError, match=r"^a cluster could not be started: ConnectionError: nobody there$"):
        asyncio.run(start("a cluster", cluster.step, cluster.undo, max_attempts=1))
    assert cluster.calls == ["step", "undo"]
