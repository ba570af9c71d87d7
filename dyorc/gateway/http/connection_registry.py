"""What all connections of one HTTP server share. Used in the event loop's thread only."""

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple, Protocol

from starlette.types import ASGIApp

from dyorc.config import GatewayConfig
from dyorc.gateway.http.answer_writer import CommonHeaders
from dyorc.gateway.http.cors import Cors
from dyorc.gateway.http.direct import DirectInference, Route
from dyorc.gateway.http.request_parser import ParsedHead
from dyorc.gateway.http.timeouts import Timeouts
from dyorc.gateway.known_heads import KnownHeads
from dyorc.gateway.shedding import Shedding
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.readings import Readings

_LINGER_S = 1.0
"""How long connections without a request stay open when the server stops."""


class RegisteredConnection(Protocol):
    """A connection, for the server."""

    def shut_down(self) -> None:
        """Ends the connection with its next answer, because the server stops."""

    def close_unless_answering(self) -> None:
        """Ends the connection unless a request of it is being answered."""

    def refuse_unanswered(self, text: str) -> None:
        """Answers a request whose answer has not begun with an error of this text, and ends the connection."""

    def abort(self) -> None:
        """Ends the connection at once."""


class ConnectionRegistry:
    """The connections of one server, and the requests being answered.

    Args:
        app: Answers requests.
        limits: How large a head and how slow a client may be.
        max_connections: How many connections there may be at a time.
        shedding: Refuses what cannot be answered in time; if None, nothing is refused for that.
        direct: Answers small inference requests; if None, the application answers all.

    Attributes:
        known_heads: Heads of direct requests.
    """

    def __init__(
        self, app: ASGIApp, limits: GatewayConfig, max_connections: int, shedding: Shedding | None, direct: DirectInference | None
    ) -> None:
        self.app = app
        self.limits = limits
        self.max_connections = max_connections
        self.timeouts = Timeouts(limits)
        self.shedding = shedding
        self.direct = direct
        self.known_heads = KnownHeads[bytes, KnownHead]()
        self.common_headers = CommonHeaders(Cors.of(limits))
        self.connections: dict[RegisteredConnection, None] = {}
        """In the order in which they came, and end: that of a set would follow from addresses, and no simulation repeat it."""
        self._num_entered = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_empty = asyncio.Event()
        self._is_stopping = self._is_lingering = False

    def enter(self, connection: RegisteredConnection) -> bool:
        """Adds a connection. Returns whether there is room for it."""
        self.connections[connection] = None
        self._num_entered += 1
        if self._is_stopping:  # it was accepted just before; `empty` has not seen it
            connection.shut_down()
            if not self._is_lingering:
                connection.close_unless_answering()
        return len(self.connections) <= self.max_connections

    def leave(self, connection: RegisteredConnection) -> None:
        self.connections.pop(connection, None)
        self._look()

    def measure(self, readings: Readings) -> None:
        readings.add(catalogue.CONNECTIONS, len(self.connections))
        readings.add(catalogue.CONNECTIONS_ACCEPTED, self._num_entered)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Answers a request."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    async def empty(self, timeout_s: float) -> None:
        """Ends all connections once their requests are answered, or after `timeout_s`.

        One without a request stays open for up to `_LINGER_S`: its client may be sending the next request at this moment, which
        would be lost. It is answered, and the answer says that the connection ends.
        """
        self._is_stopping = self._is_lingering = True
        for connection in list(self.connections):
            connection.shut_down()
        linger_s = min(_LINGER_S, timeout_s / 2)
        is_empty = await self._is_empty_within(linger_s)
        self._is_lingering = False
        if not is_empty:
            for connection in list(self.connections):
                connection.close_unless_answering()
            if not await self._is_empty_within(timeout_s - linger_s):
                text = f"the server stops, and has waited {timeout_s:g} s for this request"
                for connection in list(self.connections):
                    connection.refuse_unanswered(text)
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in list(self.connections):
            connection.abort()

    async def _is_empty_within(self, timeout_s: float) -> bool:
        self._look()
        try:
            async with asyncio.timeout(timeout_s):
                await self._is_empty.wait()
        except TimeoutError:
            return False
        return True

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._look()

    def _look(self) -> None:
        if self.connections or self._tasks:
            self._is_empty.clear()
        else:
            self._is_empty.set()


MAX_HEAD_BYTES = 2048


class KnownHead(NamedTuple):
    """A head that was parsed before.

    Attributes:
        num_bytes: Of the whole request, with its body.
    """

    head: ParsedHead
    route: Route
    num_bytes: int
