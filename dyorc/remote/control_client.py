"""The gateway's end of changes to what is deployed, and to the number of replicas: orders them, and says when nothing of before
is asked for any more."""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any, TypeAlias

from dyorc.errors import NotReadyError
from dyorc.remote import errors
from dyorc.remote.messages import Change, ChangeDone, ChangeRefused, DrainQuery, DrainReply, FromGateway, Scale

_POLL_S = 0.05

BeginEra: TypeAlias = Callable[[], Callable[[], bool]]
"""Returns a function that says whether all requests have ended that had begun by this moment."""


class GroupControl:
    """What a gateway wants changed by the orchestrator of a group. For the event loop's thread.

    Args:
        send: Sends the orchestrator a message.
        is_connected: Whether one is there.

    Attributes:
        deployed: The versions of all models, by name, as the orchestrator has said last.
        begin_era: See `BeginEra`.
    """

    def __init__(self, group: str, send: Callable[[FromGateway], None], is_connected: Callable[[], bool]) -> None:
        self.deployed: dict[str, Any] = {}
        self.begin_era: BeginEra = lambda: lambda: True
        self._group = group
        self._send = send
        self._is_connected = is_connected
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._settling: set[asyncio.Task[None]] = set()

    async def place(self, action: str, values: dict[str, Any]) -> dict[str, Any]:
        """Has something changed, and returns the model's versions after that.

        Raises:
            NotReadyError: If there is no orchestrator, or it is lost meanwhile.
            DyOrcError: If it refuses; nothing has changed then.
        """
        return await self._done(Change(next(self._numbers), action, values), "deployed")

    async def scale(self, program: str, num_warm: int | None, num_parked: int | None) -> None:
        """Has the number of a program's replicas changed; see `Backend.scale`. Errors are those of `place`."""
        await self._done(Scale(next(self._numbers), program, num_warm, num_parked), "scaled")

    async def _done(self, order: Change | Scale, participle: str) -> dict[str, Any]:
        if not self._is_connected():
            raise NotReadyError(f"group {self._group!r} has no leader now, so nothing can be {participle}")
        waiting = self._waiting[order.number] = asyncio.get_running_loop().create_future()
        try:
            self._send(order)
            return await waiting
        finally:
            self._waiting.pop(order.number, None)

    def received(self, message: ChangeDone | ChangeRefused | DrainQuery) -> None:
        """Takes in what the orchestrator says of it."""
        match message:
            case ChangeDone(number=number, line=line):
                if (waiting := self._waiting.get(number)) is not None and not waiting.done():
                    waiting.set_result(line)
            case ChangeRefused(number=number):
                if (waiting := self._waiting.get(number)) is not None and not waiting.done():
                    waiting.set_exception(errors.unpack_error(message.code, message.text, message.facts))
            case DrainQuery(number=number, with_requests=False):
                self._send(DrainReply(number))
            case DrainQuery(number=number):
                task = asyncio.create_task(self._settle(number))
                self._settling.add(task)
                task.add_done_callback(self._settling.discard)

    async def _settle(self, number: int) -> None:
        is_over = self.begin_era()
        while not is_over():  # noqa: ASYNC110 (an event would cost each request)
            await asyncio.sleep(_POLL_S)
        self._send(DrainReply(number))

    def lost(self) -> None:
        """Notes that the orchestrator is gone."""
        for task in self._settling:
            task.cancel()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(
                    NotReadyError(
                        f"the orchestrator of group {self._group!r} was lost meanwhile; look at what has changed before you "
                        "try again"
                    )
                )
