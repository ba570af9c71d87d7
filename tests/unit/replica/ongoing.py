"""Calls of a test's own program on a loop, and what becomes of them."""

import contextlib
import threading
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from dyorc.authoring.program import Program
from dyorc.core.arrays import Array
from dyorc.replica.batch_results import BatchError
from dyorc.replica.ongoing_calls import OngoingCalls, load_on
from dyorc.replica.program_loop import ProgramLoop
from dyorc.transport.column_codec import Rows

TIMEOUT_S = 30.0


class Received:
    """What a call has sent.

    Args:
        num_full: How many times there is no room first.
    """

    reserve = None

    def __init__(self, num_full: int = 0) -> None:
        self.parts: list[Any] = []
        self.digests: list[bytes] = []
        self.num_taken: dict[int, int] = {}
        self.result: Any = None
        self.error: BatchError | None = None
        self.num_full = num_full
        self.thread: threading.Thread | None = None
        self._changed = threading.Condition()
        self._is_over = False

    def part(self, index: int, outputs: Sequence[Rows], digest: bytes) -> bool:
        if self._is_full():
            return False
        assert index == len(self.parts)
        with self._changed:
            self.thread = threading.current_thread()
            self.parts.append([np.array(array) for (array,) in outputs])
            self.digests.append(digest)
            self._changed.notify_all()
        return True

    def taken(self, stream: int, num_taken: int) -> None:
        with self._changed:
            self.num_taken[stream] = num_taken
            self._changed.notify_all()

    def done(self, outputs: Sequence[Rows], execute_s: float) -> bool:
        if self._is_full():
            return False
        assert execute_s >= 0
        self.result = [np.array(array) for (array,) in outputs]
        self._end()
        return True

    def failed(self, error: BaseException) -> None:
        self.error = BatchError.of(error)
        self._end()

    def _is_full(self) -> bool:
        self.num_full -= 1
        return self.num_full >= 0

    def _end(self) -> None:
        with self._changed:
            assert not self._is_over
            self._is_over = True
            self._changed.notify_all()

    # The test's side

    @property
    def is_over(self) -> bool:
        return self._is_over

    @property
    def values(self) -> list[Any]:
        """The parts of a program with one output of rank 0."""
        return [part[0].item() for part in self.parts]

    def until_parts(self, num_parts: int) -> None:
        """Waits for so many parts."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.parts) >= num_parts, TIMEOUT_S), self.error

    def until_taken(self, num_taken: int, stream: int = 0) -> None:
        """Waits until the program has taken so many parts of a stream."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.num_taken.get(stream, 0) >= num_taken, TIMEOUT_S), self.error

    def until_over(self) -> "Received":
        """Waits for the end."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._is_over, TIMEOUT_S)
        return self

    @property
    def value(self) -> Any:
        """The result of a program with one output of rank 0."""
        self.until_over()
        assert self.error is None, self.error
        return self.result[0].item()


class Hosted:
    """A loaded program."""

    def __init__(self, program: Program, loop: ProgramLoop) -> None:
        self.loop = loop
        self.executor = load_on(loop, program).result(TIMEOUT_S)
        self.calls = OngoingCalls(self.executor, loop)
        self._num_started = 0

    def start(self, *tensors: Any, statics: Sequence[Any] = (), max_parts: int = 1000, num_full: int = 0) -> tuple[int, Received]:
        """Starts a call, and returns its number, and what becomes of it."""
        self._num_started += 1
        received = Received(num_full)
        columns = [[np.asarray(tensor)] for tensor in tensors]
        self.calls.start(self._num_started, lambda: self.executor.arguments(columns, statics), received, max_parts=max_parts)
        return self._num_started, received

    def feed(self, call_id: int, *parts: Any, stream: int = 0) -> None:
        """Feeds parts of one tensor."""
        for part in parts:
            array: Array = np.asarray(part)
            self.calls.feed(call_id, stream, lambda array=array: [array])


@contextlib.contextmanager
def hosted(program: Program) -> Generator[Hosted]:
    """Loads a program on a loop of its own."""
    loop = ProgramLoop(program.name)
    try:
        yield Hosted(program, loop)
    finally:
        loop.stop()
        loop.join(TIMEOUT_S)
        assert not loop.is_alive
