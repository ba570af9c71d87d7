"""Coroutines that wait for a request: for its answer, or for its parts one after the other. For the event loop's thread.

The orchestrator and a gateway's end of one serve them alike.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from dyorc.answering.local_answers import LocalAnswers, own_arrays
from dyorc.answering.part_stream import PartStream
from dyorc.core.arrays import Array
from dyorc.core.request import Receiver
from dyorc.models.submission import Submission

T = TypeVar("T")
OnStart: TypeAlias = Callable[[asyncio.Future[Any]], None]


class RequestRunner(Protocol):
    """Runs requests for receivers; see `Backend`."""

    def submit(self, submission: Submission, receiver: Receiver[Any], stream: PartStream | None = None) -> int:
        """Runs a workflow; `stream` gets its parts. Returns the request's number."""
        ...

    def cancel(self, request_id: int) -> bool:
        """Gives a request up. Returns whether its receiver will not be called again."""
        ...


class FutureReceiver(Generic[T]):
    """The receiver of a coroutine that waits for the answer.

    Args:
        future: Gets the answer or the error.
        take: `Receiver.take`.
    """

    def __init__(self, future: asyncio.Future[T], take: Callable[[list[Array]], T]) -> None:
        self.future = future
        self.take = take
        self._is_over = asyncio.Event()

    def done(self, taken: T) -> None:
        """Hands the answer over."""
        self._is_over.set()
        if not self.future.done():
            self.future.set_result(taken)

    def failed(self, error: Exception) -> None:
        """Hands the error over."""
        self._is_over.set()
        if not self.future.done():
            self.future.set_exception(error)

    async def end(self) -> None:
        """Waits until nothing uses the outputs, however often the caller is cancelled."""
        waiting = asyncio.ensure_future(self._is_over.wait())
        while not waiting.done():
            try:
                await asyncio.wait([waiting])
            except asyncio.CancelledError:
                continue


async def answer_of(
    runner: RequestRunner, submission: Submission, take: Callable[[list[Array]], T], started: OnStart | None
) -> T:
    """Runs a workflow and returns its answer.

    Cancelling this coroutine cancels the request; so does cancelling the future passed to `started`.

    Args:
        take: Turns the outputs into what is returned (`Receiver.take`).

    Raises:
        DyOrcError: See the tree in `dyorc.errors`.
    """
    receiver = FutureReceiver(asyncio.get_running_loop().create_future(), take)
    if started is not None:
        started(receiver.future)
    request_id = runner.submit(submission, receiver)
    try:
        return await receiver.future
    except asyncio.CancelledError:
        if not runner.cancel(request_id):
            await receiver.end()
        raise


async def parts_of(
    runner: RequestRunner,
    answers: LocalAnswers | None,
    submission: Submission,
    take: Callable[[list[Array]], T],
    started: OnStart | None,
) -> AsyncGenerator[list[T]]:
    """Runs a workflow and yields its parts in order: parts that are ready at the same time come together, in a list.

    A part counts as taken when the caller asks for more. Closing this generator, or cancelling the future passed to `started`,
    cancels the request. Arguments and errors are those of `answer_of`; parts that precede an error are yielded first.

    Args:
        answers: Brings in the parts; None if the workflow does not stream, and so has one part.
    """
    if answers is None:
        yield [await answer_of(runner, submission, take, started)]
        return
    end: FutureReceiver[list[Array]] = FutureReceiver(asyncio.get_running_loop().create_future(), own_arrays)
    stream = PartStream(end.future)
    if started is not None:
        started(end.future)
    request_id = runner.submit(submission, end, stream)
    try:
        while parts := await stream.next_parts():
            taken = await answers.take_parts(request_id, stream, parts, take)
            if taken:
                yield taken
            answers.release_parts(request_id, parts[: len(taken)])
    finally:
        runner.cancel(request_id)
        if end.future.done() and not end.future.cancelled():
            end.future.exception()  # it failed after the caller had left, as at a deadline of both: asyncio need not report it
