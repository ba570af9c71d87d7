"""Sends requests when they are due: at planned times, or as clients become free."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from loadgen.alarm import Alarm
from loadgen.recording import Recorder
from loadgen.schedule import MAX_REQUESTS
from loadgen.targets.base import RawAnswer, RequestFailedError, StreamingTarget, Target

_PAUSE_S = 0.01
"""The pause of a closed loop's client after an error; otherwise a server that is gone would be asked without a break."""


class Sender(Protocol):
    """A way of sending requests."""

    @property
    def num_in_flight(self) -> int:
        """Requests without an answer so far."""
        ...

    async def send_all(self) -> None:
        """Sends everything; returns when everything is answered. When cancelled, what is in flight stays unanswered."""
        ...


class Exchange(Protocol):
    """Sends the pool's request `index` as the recorder's request `number`, and returns the answer."""

    async def __call__(self, index: int, number: int, /) -> RawAnswer: ...


def exchange_of(target: Target, recorder: Recorder, *, is_streamed: bool) -> Exchange:
    """Returns how requests are sent and parts recorded.

    Raises:
        ValueError: If the target cannot stream but must.
    """
    if not is_streamed:

        async def infer(index: int, number: int) -> RawAnswer:
            return await target.infer(index)

        return infer
    if not isinstance(target, StreamingTarget):
        raise ValueError(f"{type(target).__name__} has no method stream, expected one: answers are asked for in parts")

    async def stream(index: int, number: int) -> RawAnswer:
        return await target.stream(index, lambda: recorder.mark_part(number, time.monotonic_ns()))

    return stream


async def _send_one(exchange: Exchange, recorder: Recorder, number: int) -> bool:
    """Sends one request. Returns whether an answer came."""
    recorder.mark_sent(number, time.monotonic_ns())
    try:
        answer = await exchange(recorder.index[number], number)
    except RequestFailedError as error:
        recorder.mark_failed(number, time.monotonic_ns(), str(error))
        return False
    except Exception as error:  # the target may be a user's: the error is counted, so that other requests go on
        recorder.mark_failed(number, time.monotonic_ns(), f"{type(error).__name__}: {error}"[:200])
        return False
    recorder.mark_answered(number, time.monotonic_ns(), answer)
    return True


class OpenLoop:
    """Sends the recorder's planned requests when they are due, whatever happened to earlier ones."""

    def __init__(self, exchange: Exchange, recorder: Recorder) -> None:
        self._exchange = exchange
        self._recorder = recorder
        self._next = 0
        self._tasks: set[asyncio.Task[bool]] = set()
        self._is_done = asyncio.Event()

    @property
    def num_in_flight(self) -> int:
        return len(self._tasks)

    async def send_all(self) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.closing(Alarm(loop, self._send_due)) as self._alarm:
            self._loop = loop
            self._send_due()
            try:
                await self._is_done.wait()
            finally:
                tasks = list(self._tasks)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def _send_due(self) -> None:
        planned_ns = self._recorder.planned_ns
        create_task, tasks, finished = self._loop.create_task, self._tasks, self._end_task
        number, now_ns = self._next, time.monotonic_ns()
        while number < len(planned_ns) and planned_ns[number] <= now_ns:
            task = create_task(_send_one(self._exchange, self._recorder, number))
            tasks.add(task)
            task.add_done_callback(finished)
            number += 1
        self._next = number
        if number < len(planned_ns):
            self._alarm.set(planned_ns[number])
        elif not tasks:
            self._is_done.set()

    def _end_task(self, task: "asyncio.Task[bool]") -> None:
        self._tasks.discard(task)
        if not self._tasks and self._next == len(self._recorder.planned_ns):
            self._is_done.set()


class Window(NamedTuple):
    """From when until when."""

    start_ns: int
    end_ns: int


class ClosedLoop:
    """Simulates clients that send their next request when they have their answer. A request is planned for when its client became
    free.

    Args:
        turns: The order in which the pool's requests are sent.
        window: No request is sent outside of it.
    """

    def __init__(self, exchange: Exchange, recorder: Recorder, num_clients: int, turns: Sequence[int], window: Window) -> None:
        self._exchange = exchange
        self._recorder = recorder
        self._num_clients = num_clients
        self._turns = turns
        self._window = window
        self.num_in_flight = 0

    async def send_all(self) -> None:
        await asyncio.sleep((self._window.start_ns - time.monotonic_ns()) / 1e9)
        async with asyncio.TaskGroup() as clients:
            for _ in range(self._num_clients):
                clients.create_task(self._client())

    async def _client(self) -> None:
        recorder = self._recorder
        while (now_ns := time.monotonic_ns()) < self._window.end_ns and len(recorder.index) < MAX_REQUESTS:
            number = recorder.add(self._turns[len(recorder.index) % len(self._turns)], now_ns)
            self.num_in_flight += 1
            try:
                is_answered = await _send_one(self._exchange, recorder, number)
            finally:
                self.num_in_flight -= 1
            if not is_answered:
                await asyncio.sleep(_PAUSE_S)
