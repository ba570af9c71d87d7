"""Cancels requests whose clients have gone away."""

import asyncio
from types import TracebackType
from typing import Any

from starlette.types import Receive

from dyorc.errors import RequestCancelledError

_WATCH_AFTER_S = 0.1


class DisconnectWatch:
    """Listens for the end of connections, once their requests have taken a while.

    Listening costs a task, and a timer for each request would cost nearly as much. So one timer looks at all requests, and
    listens only for those that it sees a second time.
    """

    def __init__(self) -> None:
        self.waits: set[Wait] = set()
        self._is_ticking = False

    def watching(self, receive: Receive) -> "Wait":
        """A request that is about to be answered."""
        if not self._is_ticking:
            self._is_ticking = True
            asyncio.get_running_loop().call_later(_WATCH_AFTER_S, self._tick)
        return Wait(self, receive)

    def _tick(self) -> None:
        self._is_ticking = bool(self.waits)
        if not self._is_ticking:
            return
        for wait in self.waits:
            wait.seen()
        asyncio.get_running_loop().call_later(_WATCH_AFTER_S, self._tick)


class Wait:
    """One request, for as long as it is entered. Its `attach` takes the future of the answer.

    Raises (at the end):
        RequestCancelledError: If the client went away and the answer was given up.
    """

    __slots__ = ("_future", "_is_gone", "_num_ticks", "_receive", "_watch", "_watcher")

    def __init__(self, watch: DisconnectWatch, receive: Receive) -> None:
        self._watch = watch
        self._receive = receive
        self._future: asyncio.Future[Any] | None = None
        self._num_ticks = 0
        self._watcher: asyncio.Task[None] | None = None
        self._is_gone = False

    def __enter__(self) -> "Wait":
        self._watch.waits.add(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._watch.waits.discard(self)
        if self._watcher is not None:
            self._watcher.cancel()
        if self._is_gone and isinstance(error, asyncio.CancelledError):
            raise RequestCancelledError("the client went away") from None

    def attach(self, future: "asyncio.Future[Any]") -> None:
        """Says what to give up when the client goes."""
        self._future = future

    def seen(self) -> None:
        """A tick passed, and the request is still there."""
        self._num_ticks += 1
        if self._num_ticks > 1 and self._watcher is None:
            self._watcher = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._is_gone = True
        if self._future is not None:
            self._future.cancel()
