"""The connections of a client: each is lent to one exchange at a time, and belongs to the process that opened it."""

import asyncio
import queue
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import httpx

from dyorc.client.http import KEEP_ALIVE_S


class Transport(Protocol):
    """One connection for code that waits."""

    def handle_request(self, request: httpx.Request) -> httpx.Response: ...

    def abort(self) -> None:
        """Closes its socket, in any state. Waits for no lock, since an interrupted exchange may hold it for ever."""
        ...


class AsyncTransport(Protocol):
    """One connection for an event loop."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response: ...

    async def abort(self) -> None:
        """Closes its socket, in any state."""
        ...


T = TypeVar("T")


class _Queue(Protocol):
    def put_nowait(self, item: "_Place", /) -> None: ...


class _Places:
    """The places of one process: as many as transports may be lent at a time, in a queue."""

    def __init__(self, free: _Queue, max_size: int) -> None:
        self.free = free
        for _ in range(max_size):
            free.put_nowait(_Place(weakref.ref(self)))


class _Place:
    """A right to hold one transport, which comes free when nothing refers to it any longer.

    So no place is lost if a signal handler raises between taking and giving back.
    """

    __slots__ = ("_places",)

    def __init__(self, places: "weakref.ref[_Places]") -> None:
        self._places = places

    def __del__(self) -> None:
        if (places := self._places()) is not None:
            places.free.put_nowait(type(self)(self._places))

    def is_of(self, places: _Places) -> bool:
        """Returns whether it is one of these, and not of the process that forked this one."""
        return self._places() is places


class Loan(Generic[T]):
    """A transport that belongs to one exchange until it is taken back."""

    __slots__ = ("_place", "transport")

    def __init__(self, place: _Place, transport: T) -> None:
        self._place: _Place | None = place
        self.transport = transport

    def end(self, places: _Places) -> bool:
        """Frees its place. Returns whether the transport belongs to this process."""
        place, self._place = self._place, None
        return place is not None and place.is_of(places)


@dataclass(frozen=True, slots=True)
class _Idle(Generic[T]):
    transport: T
    since_s: float


class _IdleTransports(Generic[T]):
    """Transports that are not lent. The last used is at the right, and is lent first."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._idle = deque[_Idle[T]]()

    def put(self, transport: T) -> None:
        self._idle.append(_Idle(transport, self._clock_s()))

    def take(self) -> T | None:
        try:
            return self._idle.pop().transport
        except IndexError:
            return None

    def take_old(self) -> Iterator[T]:
        """Takes the transports that were idle for as long as servers keep connections."""
        return self._take_until(self._clock_s() - KEEP_ALIVE_S)

    def take_all(self) -> Iterator[T]:
        return self._take_until(float("inf"))

    def _take_until(self, until_s: float) -> Iterator[T]:
        try:
            while self._idle[0].since_s < until_s:
                yield self._idle.popleft().transport
        except IndexError:
            pass


class TransportPool:
    """Lends each transport to one exchange at a time.

    httpx's own pool may mistake a live connection for one that the server has closed, and close it, if another thread sends its
    request and gets an answer while the pool checks it (httpcore 1.0: `has_expired` reads the state, then polls the socket). So
    threads do not share a pool of httpx's: each transport has one connection.

    There are no locks, because the garbage collector may end an abandoned stream, which returns its transport, at any moment in
    the same thread; methods here may be re-entered, by signal handlers too.

    In a forked process the pool is empty again (`http_transports`).

    Args:
        make: Makes a transport for one connection. Called once immediately, so that wrong settings are reported early.
        max_size: How many may be lent; further callers wait.
        clock_s: In seconds, from any origin.
    """

    def __init__(self, make: Callable[[], Transport], max_size: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._make = make
        self._max_size = max_size
        self._clock_s = clock_s
        self._is_closed = False
        self.renew()
        self._idle.put(make())
        _pools.add(self)

    def renew(self) -> None:
        """Forgets all transports, lent ones too."""
        self._free = queue.SimpleQueue[
            _Place
        ]()  # a new queue: a thread that does not exist in this process may hold the old one's lock
        self._places = _Places(self._free, self._max_size)
        self._idle = _IdleTransports[Transport](self._clock_s)

    def lend(self, timeout_s: float | None) -> Loan[Transport]:
        """Returns a transport that belongs to the caller until it is taken back or discarded.

        Args:
            timeout_s: How long to wait for one; None: without limit.

        Raises:
            httpx.PoolTimeout: If no transport came free in time.
        """
        try:
            place = self._free.get(timeout=timeout_s)
        except queue.Empty:
            raise httpx.PoolTimeout(f"no connection came free within {timeout_s} s") from None
        try:
            for old in self._idle.take_old():
                old.abort()
            return Loan(place, self._idle.take() or self._make())
        finally:
            del place  # which a traceback would hold

    def take_back(self, loan: Loan[Transport]) -> None:
        """Takes back what `lend` returned. Its answer must have been read to the end."""
        if loan.end(self._places):
            self._idle.put(loan.transport)
        if self._is_closed:
            self.close()

    def discard(self, loan: Loan[Transport]) -> None:
        """Closes what `lend` returned: what would come next on it is unknown."""
        loan.transport.abort()
        loan.end(self._places)

    def close(self) -> None:
        """Closes all connections; lent ones when they come back."""
        self._is_closed = True
        for transport in self._idle.take_all():
            transport.abort()


class AsyncTransportPool:
    """The same on an event loop."""

    def __init__(self, make: Callable[[], AsyncTransport], max_size: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._make = make
        self._max_size = max_size
        self._clock_s = clock_s
        self._is_closed = False
        self.renew()
        self._idle.put(make())
        _pools.add(self)

    def renew(self) -> None:
        """Forgets all transports, lent ones too."""
        self._free = asyncio.LifoQueue[_Place]()
        self._places = _Places(self._free, self._max_size)
        self._idle = _IdleTransports[AsyncTransport](self._clock_s)

    async def lend(self) -> Loan[AsyncTransport]:
        """Returns a transport that belongs to the caller until it is taken back or discarded."""
        place = await self._free.get()
        try:
            for old in self._idle.take_old():
                await old.abort()
            return Loan(place, self._idle.take() or self._make())
        finally:
            del place  # which a traceback would hold

    async def take_back(self, loan: Loan[AsyncTransport]) -> None:
        """Takes back what `lend` returned. Its answer must have been read to the end."""
        if loan.end(self._places):
            self._idle.put(loan.transport)
        if self._is_closed:
            await self.aclose()

    async def discard(self, loan: Loan[AsyncTransport]) -> None:
        """Closes what `lend` returned: what would come next on it is unknown."""
        try:
            await loan.transport.abort()
        finally:
            loan.end(self._places)

    async def aclose(self) -> None:
        """Closes all connections; lent ones when they come back."""
        self._is_closed = True
        for transport in self._idle.take_all():
            await transport.abort()


_pools: "weakref.WeakSet[TransportPool | AsyncTransportPool]" = weakref.WeakSet()


def renew_pools() -> None:
    """Empties all pools, in a process that was forked."""
    for pool in _pools:
        pool.renew()
