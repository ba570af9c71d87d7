"""The connections of a client that several threads use."""

import queue
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import httpx

from dyorc.client.http import KEEP_ALIVE_S


@dataclass(frozen=True, slots=True)
class _Idle:
    transport: httpx.BaseTransport
    since_s: float


class TransportPool:
    """Lends each transport to one exchange at a time.

    httpx's own pool may mistake a live connection for one that the server has closed, and close it, if another thread sends its
    request and gets an answer while the pool checks it (httpcore 1.0: `has_expired` reads the state, then polls the socket). So
    threads do not share a pool of httpx's: each transport has one connection.

    There are no locks, because the garbage collector may end an abandoned stream, which returns its transport, at any moment in
    the same thread; methods here may be re-entered.

    Args:
        make: Makes a transport for one connection. Called once immediately, so that wrong settings are reported early.
        max_size: How many may be lent; further callers wait.
        clock_s: In seconds, from any origin.
    """

    def __init__(
        self, make: Callable[[], httpx.BaseTransport], max_size: int, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = make
        self._clock_s = clock_s
        self._places = queue.SimpleQueue[None]()
        for _ in range(max_size):
            self._places.put(None)
        self._idle = deque([_Idle(make(), clock_s())])  # the last used is at the right, and is lent first
        self._is_closed = False

    def lend(self, timeout_s: float | None) -> httpx.BaseTransport:
        """Returns a transport that is this caller's until it is taken back.

        Args:
            timeout_s: How long to wait for one; None for as long as it takes.

        Raises:
            httpx.PoolTimeout: If none was returned in time.
        """
        try:
            self._places.get(timeout=timeout_s)
        except queue.Empty:
            raise httpx.PoolTimeout(f"no connection came free within {timeout_s} s") from None
        try:
            self._close_idle(until_s=self._clock_s() - KEEP_ALIVE_S)
            return self._take_idle() or self._make()
        except BaseException:
            self._places.put(None)
            raise

    def take_back(self, transport: httpx.BaseTransport) -> None:
        """Takes back what `lend` returned. Its answer must have been read or closed."""
        self._idle.append(_Idle(transport, self._clock_s()))
        if self._is_closed:
            self._close_idle()
        self._places.put(None)

    def close(self) -> None:
        """Closes all connections; lent ones when they come back."""
        self._is_closed = True
        self._close_idle()

    def _take_idle(self) -> httpx.BaseTransport | None:
        try:
            return self._idle.pop().transport
        except IndexError:
            return None

    def _close_idle(self, until_s: float = float("inf")) -> None:
        """Closes connections that were last used before a given time."""
        try:
            while self._idle[0].since_s < until_s:
                self._idle.popleft().transport.close()
        except IndexError:
            pass
