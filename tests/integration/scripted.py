"""Streams whose parts, and when they come, are up to the test."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import numpy as np

from dyorc.authoring.workflow import Workflow
from dyorc.core.arrays import Array

Parts = list[list[Array]]


class Script:
    """A request's course: the test puts lists of parts, an error, or the end."""

    def __init__(self) -> None:
        self.ready: asyncio.Queue[Parts | Exception | None] = asyncio.Queue()
        self.num_asked = 0
        self.closed = asyncio.Event()
        self.inputs: Sequence[Array] = ()

    def put(self, *parts: list[Array]) -> None:
        """Adds parts that are ready at once."""
        self.ready.put_nowait(list(parts))

    def fail(self, error: Exception) -> None:
        """Makes the request fail."""
        self.ready.put_nowait(error)

    def end(self) -> None:
        """Ends the parts."""
        self.ready.put_nowait(None)

    async def play(self, workflow: Workflow, inputs: Sequence[Array]) -> AsyncGenerator[Parts]:
        """Plays the request, as the script says."""
        self.inputs = inputs
        try:
            while True:
                self.num_asked += 1
                match await self.ready.get():
                    case None:
                        return
                    case Exception() as error:
                        raise error
                    case parts:
                        yield parts
        finally:
            self.closed.set()


def part(text: str, index: int) -> list[Array]:
    """Returns a part of `scripted.count`."""
    return [np.array(text.encode(), dtype=object), np.array(index)]
