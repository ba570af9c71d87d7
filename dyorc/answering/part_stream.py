"""Parts of one request on their way from the engine to its consumer: put in order, and handed over on demand.

Lives on the event loop.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dyorc.core.arrays import Array
from dyorc.core.tensor import TensorRef


@dataclass(frozen=True, slots=True)
class ReadPart:
    """A part whose bytes are here: its arrays may be views of memory that is kept until the part is taken."""

    index: int
    tensors: Sequence[TensorRef]
    arrays: list[Array]


class PartStream:
    """The parts that have come and were not handed over yet. The engine limits their number.

    Args:
        future: Done when the request has ended, well or not.
    """

    def __init__(self, future: "asyncio.Future[Any]") -> None:
        self._future = future
        self._future.add_done_callback(lambda _: self._wake.set())
        self._wake = asyncio.Event()
        self._parts: dict[int, ReadPart] = {}
        self._num_taken = 0

    @property
    def num_taken(self) -> int:
        """Parts that were handed over and used."""
        return self._num_taken

    @property
    def is_over(self) -> bool:
        """Whether the request has ended well."""
        return self._future.done() and not self._future.cancelled() and self._future.exception() is None

    def add(self, part: ReadPart) -> None:
        """Adds a part, which may come before others that are still being read, or again because it was lost."""
        if part.index >= self._num_taken:
            self._parts[part.index] = part
            self._wake.set()

    async def next_parts(self) -> list[ReadPart]:
        """Returns the parts that come next, in order, as many as there are; none if the request has ended.

        Raises:
            DyOrcError: The request failed with it. Parts that were not handed over are void.
            asyncio.CancelledError: If its future was cancelled.
        """
        while not self._future.done():
            if self._num_taken in self._parts:
                return self._next_in_order()
            self._wake.clear()
            await self._wake.wait()
        self._future.result()
        return []

    def _next_in_order(self) -> list[ReadPart]:
        parts: list[ReadPart] = []
        while (part := self._parts.get(self._num_taken + len(parts))) is not None:
            parts.append(part)
        return parts

    def take(self, part: ReadPart) -> None:
        """Removes the next part, which was used."""
        self._parts.pop(part.index, None)
        self._num_taken += 1

    def lose(self, part: ReadPart) -> None:
        """Removes the next part, which was lost and comes again."""
        self._parts.pop(part.index, None)

    def start_over(self) -> None:
        """Forgets parts that were not handed over: their sender is gone, and another one sends them again."""
        self._parts.clear()
