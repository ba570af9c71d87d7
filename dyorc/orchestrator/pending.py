"""Requests in flight: what the orchestrator keeps of each until its receiver has the answer. For the event loop's thread."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from dyorc.arrays import Array
from dyorc.orchestrator.identity import InputsIdentity
from dyorc.orchestrator.part_stream import PartStream
from dyorc.orchestrator.recorded import Recorded
from dyorc.receiver import Receiver
from dyorc.tensor import TensorRef

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Pending:
    """A request in flight.

    Attributes:
        recorded: What is written down about it, if anything is.
        stream: Gets its parts, if it has any.
        stored: Outputs that the receiver is taking, if their bytes are stored.
        is_untaken: Whether the engine keeps those bytes until it is told that they have been taken.
        is_taking: Whether the receiver is taking large outputs on a thread; until that ends, their memory must stay.
    """

    receiver: Receiver[Any]
    identity: InputsIdentity
    recorded: Recorded | None = None
    stream: PartStream | None = None
    stored: Sequence[TensorRef] = ()
    is_untaken: bool = False
    is_taking: bool = False


class Awaited(Generic[T]):
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
        """Waits until nothing uses the outputs any more, however often the caller is cancelled."""
        waiting = asyncio.ensure_future(self._is_over.wait())
        while not waiting.done():
            try:
                await asyncio.wait([waiting])
            except asyncio.CancelledError:
                continue
