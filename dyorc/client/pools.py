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

    httpx's own pool takes a connection for one that the server has closed, and closes it, if another thread sends its request
    and is answered while the pool looks at it (httpcore 1.0: `has_expired` reads the state, then polls the socket). So
    threads do not share a pool of httpx's: each transport has one connection.

    There are no locks, because the collector may end an abandoned stream, which gives its transport back, at any moment of the
    same thread; what is used here may be entered twice.

    Args:
        make: A transport for one connection. Called once at once, so that what is wrong with its settings is told early.
        max_size: How many may be lent; who needs one more waits.
        clock_s: In seconds, of any origin.
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
        """A transport that is this caller's until it is taken back.

        Args:
            timeout_s: How long to wait for one; None for as long as it takes.

        Raises:
            httpx.PoolTimeout: If none came free in time.
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
        """Ends what `lend` began. The answer has to be read or closed."""
        self._idle.append(_Idle(transport, self._clock_s()))
        if self._is_closed:
            self._close_idle()
        self._places.put(None)

    def close(self) -> None:
        """Closes all connections: those that are lent, when they come back."""
        self._is_closed = True
        self._close_idle()

    def _take_idle(self) -> httpx.BaseTransport | None:
        try:
            return self._idle.pop().transport
        except IndexError:
            return None

    def _close_idle(self, until_s: float = float("inf")) -> None:
        """Closes those that were last used before a moment."""
        try:
            while self._idle[0].since_s < until_s:
                self._idle.popleft().transport.close()
        except IndexError:
            pass
