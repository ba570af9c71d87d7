"""A server whose streaming models give the parts that a test says, when it says so."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import numpy as np

from dyorc.arrays import Array
from dyorc.gateway.admission import Ticket
from dyorc.gateway.catalog import Model
from dyorc.gateway.requests import InferRequest
from dyorc.gateway.service import InferenceService

Parts = list[list[Array]]


class Script:
    """What becomes of one request: the test puts lists of parts, an error, or the end."""

    def __init__(self) -> None:
        self.ready: asyncio.Queue[Parts | Exception | None] = asyncio.Queue()
        self.num_asked = 0
        self.closed = asyncio.Event()
        self.request: InferRequest | None = None
        self.options: dict[str, Any] = {}

    def put(self, *parts: list[Array]) -> None:
        """Parts that are ready at once."""
        self.ready.put_nowait(list(parts))

    def fail(self, error: Exception) -> None:
        """The request fails."""
        self.ready.put_nowait(error)

    def end(self) -> None:
        """There are no more parts."""
        self.ready.put_nowait(None)


class ScriptedService(InferenceService):
    """Streaming models follow the newest of `scripts`; the others are served as ever."""

    scripts: list[Script]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.scripts = scripts

    def stream(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        ticket: Ticket,
        model: Model,
        request: InferRequest,
        memory: Any,
        *,
        take: Callable[[list[Array]], Any],
        **options: Any,
    ) -> AsyncGenerator[list[Any]]:
        """As the script says."""
        if not model.is_streaming:
            return super().stream(ticket, model, request, memory, take=take, **options)
        script = self.scripts[-1]
        script.request, script.options = request, options
        return _play(script, take)


scripts: list[Script] = []


async def _play(script: Script, take: Callable[[list[Array]], Any]) -> AsyncGenerator[list[Any]]:
    try:
        while True:
            script.num_asked += 1
            match await script.ready.get():
                case None:
                    return
                case Exception() as error:
                    raise error
                case parts:
                    yield [take(part) for part in parts]
    finally:
        script.closed.set()


def part(text: str, index: int) -> list[Array]:
    """A part of `scripted.count`."""
    return [np.array(text.encode(), dtype=object), np.array(index)]
