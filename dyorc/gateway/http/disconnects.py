"""Cancels requests whose clients have gone away, at once."""

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from dyorc.errors import RequestCancelledError


class Losable(Protocol):
    """A connection that reports its loss; ``scope["dyorc.connection"]``."""

    def on_lost(self, callback: Callable[[], None]) -> None:
        """Calls `callback` when the connection is lost, until `discard`; at once if it is lost already."""

    def discard(self, callback: Callable[[], None]) -> None:
        """Removes the callback."""


class CancelledWithClient:
    """Cancels a future when the client of a request goes away, while entered.

    Args:
        scope: The request's scope. If the server's connections do not report their loss, nothing is cancelled.
        future: Such as the calling task, which may wait for a part or for the client to read; `attach` sets one later.

    Raises (at the end):
        RequestCancelledError: If the client went away and the answer was abandoned.
    """

    __slots__ = ("_connection", "_future", "_is_gone")

    def __init__(self, scope: Mapping[str, Any], future: "asyncio.Future[Any] | None" = None) -> None:
        self._connection: Losable | None = scope.get("dyorc.connection")
        self._future = future
        self._is_gone = False

    def __enter__(self) -> Self:
        if self._connection is not None:
            self._connection.on_lost(self._on_lost)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._connection is not None:
            self._connection.discard(self._on_lost)
        if self._is_gone and isinstance(error, asyncio.CancelledError):
            raise RequestCancelledError("the client went away") from None

    def attach(self, future: "asyncio.Future[Any]") -> None:
        """Sets what to cancel when the client goes away."""
        self._future = future
        if self._is_gone:
            future.cancel()

    def _on_lost(self) -> None:
        self._is_gone = True
        if self._future is not None:
            self._future.cancel()
