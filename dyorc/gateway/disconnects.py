"""Cancels requests whose clients have gone away."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.types import Receive

from dyorc.errors import RequestCancelledError

_WATCH_AFTER_S = 0.1

T = TypeVar("T")


@dataclass(slots=True)
class _Wait:
    """A request that is being answered. `num_ticks` counts how often the watch saw it."""

    task: "asyncio.Task[Any] | None"
    receive: Receive
    num_ticks: int = 0
    watcher: "asyncio.Task[None] | None" = None
    is_gone: bool = False


class DisconnectWatch:
    """Listens for the end of connections, once their requests have taken a while.

    Listening costs a task, and a timer for each request would cost nearly as much. So one timer looks at all requests, and
    listens only for those that it sees a second time.
    """

    def __init__(self) -> None:
        self._waits: dict[int, _Wait] = {}
        self._is_ticking = False

    async def until_done_or_gone(self, inference: Coroutine[Any, Any, T], receive: Receive) -> T:
        """The result of `inference`, which is cancelled if the client goes away first.

        Raises:
            RequestCancelledError: If it does.
        """
        wait = _Wait(asyncio.current_task(), receive)
        self._waits[id(wait)] = wait
        if not self._is_ticking:
            self._is_ticking = True
            asyncio.get_running_loop().call_later(_WATCH_AFTER_S, self._tick)
        try:
            return await inference
        except asyncio.CancelledError:
            if wait.is_gone:
                raise RequestCancelledError("the client went away") from None
            raise
        finally:
            del self._waits[id(wait)]
            if wait.watcher is not None:
                wait.watcher.cancel()

    def _tick(self) -> None:
        self._is_ticking = bool(self._waits)
        if not self._is_ticking:
            return
        for wait in self._waits.values():
            wait.num_ticks += 1
            if wait.num_ticks > 1 and wait.watcher is None:
                wait.watcher = asyncio.create_task(_listen(wait))
        asyncio.get_running_loop().call_later(_WATCH_AFTER_S, self._tick)


async def _listen(wait: _Wait) -> None:
    while (await wait.receive())["type"] != "http.disconnect":
        pass
    wait.is_gone = True
    if wait.task is not None:
        wait.task.cancel()
