"""Connections to one server: one per request in flight, up to a limit; the most recently used goes first."""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable
from typing import Self
from urllib.parse import urlsplit

from loadgen.targets.base import RequestFailedError, TargetSpec
from loadgen.targets.connection import Connection, Reply
from loadgen.targets.tls import ssl_context

_MAX_IDLE_NS = 1_500_000_000
"""Servers close connections that have been idle for some seconds, and a request that is on its way then would fail."""


class Connections:
    """Keeps connections alive, and opens more when all are busy.

    Args:
        spec: The server, the most connections (requests beyond that wait for one), and the certificates.

    Raises:
        ValueError: If the URL or a certificate is not valid.
    """

    def __init__(self, spec: TargetSpec) -> None:
        parts = urlsplit(spec.url)
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            raise ValueError(f"the URL is {spec.url!r}, expected http://host:port or https://host:port")
        self._host, self._port = parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
        self._ssl = ssl_context(spec)
        self._max_connections = spec.max_connections
        self._idle: list[Connection] = []
        self._all: set[Connection] = set()
        self._num_opening = 0
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._idle.append(await self._open())
        self._idle[0].idle_since_ns = time.monotonic_ns()
        return self

    async def __aexit__(self, *error: object) -> None:
        for connection in list(self._all):
            connection.close()
        while self._all:  # noqa: ASYNC110 (the transports tell in the loop's next turns)
            await asyncio.sleep(0)

    async def exchange(self, request: bytes, feed: Callable[[bytes], None] | None = None) -> Reply:
        """Sends a request and waits for its answer, after waiting for a connection if all are busy.

        Args:
            feed: Called with each piece of the answer's body as it comes, if the status is 200.

        Raises:
            RequestFailedError: If no connection can be made, if it closes, or if the answer is not HTTP.
        """
        connection = await self._acquire()
        answer: asyncio.Future[Reply] = self._loop.create_future()
        connection.send(request, answer, feed)
        try:
            reply = await answer
        except asyncio.CancelledError:
            connection.close()  # the answer to this request may still come
            raise
        if connection.is_open:
            self._give_back(connection)
        return reply

    async def _acquire(self) -> Connection:
        while True:
            if (connection := self._take()) is not None:
                return connection
            if len(self._all) + self._num_opening < self._max_connections:
                return await self._open()
            if (connection := await self._wait()) is not None:
                return connection

    def _take(self) -> Connection | None:
        idle = self._idle
        while idle:
            connection = idle.pop()
            if connection.is_open:
                if time.monotonic_ns() - connection.idle_since_ns < _MAX_IDLE_NS:
                    return connection
                connection.close()
        return None

    def _give_back(self, connection: Connection) -> None:
        if not self._hand_over(connection):
            connection.idle_since_ns = time.monotonic_ns()
            self._idle.append(connection)

    async def _wait(self) -> Connection | None:
        """Returns a free connection, after waiting for one if need be; None if there is room for a new one."""
        waiter: asyncio.Future[Connection | None] = self._loop.create_future()
        self._waiting.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():  # what this waiter was given goes to the next
                connection = waiter.result()
                self._hand_over(None) if connection is None else self._give_back(connection)
            raise

    def _hand_over(self, connection: Connection | None) -> bool:
        """Passes a connection, or the room for one, to the longest waiter. Returns whether there is one."""
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False

    async def _open(self) -> Connection:
        self._num_opening += 1
        try:
            _, connection = await self._loop.create_connection(
                lambda: Connection(self._lost), self._host, self._port, ssl=self._ssl
            )
        except OSError as error:
            self._hand_over(None)
            why = error.verify_message if isinstance(error, ssl.SSLCertVerificationError) else type(error).__name__
            raise RequestFailedError(f"no connection to {self._host}:{self._port}: {why}") from error
        finally:
            self._num_opening -= 1
        if not connection.is_open:
            raise RequestFailedError("the server closed the connection without an answer")
        self._all.add(connection)
        return connection

    def _lost(self, connection: Connection) -> None:
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._hand_over(None)
