"""How long to wait for clients: what each connection waits for and since when, and one timer that finds those whose time is up.

Every connection is in at most one timeout queue for reading, and perhaps in the one for writing. All connections in a queue may
wait for the same time, so their times run out in the order in which they came: the timer checks them in that order and stops at
the first with time left. Ten thousand idle connections cost it nothing, and a request costs each queue two operations on a dict.
There is no task or timer per connection.

For the event loop's thread only.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from dyorc.config import GatewayConfig

_MIN_SWEEP_S = 0.02
_MAX_SWEEP_S = 1.0
_SWEEPS_PER_TIMEOUT = 8
_LINGER_S = 1.0


class Waiter(Protocol):
    """A connection, as far as waiting for it is concerned."""

    def time_is_up(self, queue: "TimeoutQueue", now_s: float) -> None:
        """Handles that the connection has been in a queue for its `timeout_s`. It must leave the queue or enter it again."""


class TimeoutQueue:
    """Connections that wait for the same thing.

    Attributes:
        timeout_s: How long they may wait.
    """

    __slots__ = ("_since_s", "timeout_s")

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._since_s: dict[Waiter, float] = {}

    def __len__(self) -> int:
        return len(self._since_s)

    def enter(self, waiter: Waiter, now_s: float) -> None:
        """Starts a connection's wait, anew if it is waiting already."""
        self._since_s.pop(waiter, None)  # overwriting would keep the old place in the dict
        self._since_s[waiter] = now_s

    def leave(self, waiter: Waiter) -> None:
        """Ends a connection's wait, if it is waiting."""
        self._since_s.pop(waiter, None)

    def overdue(self, now_s: float) -> list[Waiter]:
        """Returns the connections whose time is up, the longest waiting first."""
        found: list[Waiter] = []
        for waiter, since_s in self._since_s.items():
            if now_s - since_s < self.timeout_s:
                break
            found.append(waiter)
        return found


class Timeouts:
    """The queues of one server.

    Args:
        config: The limits.
        clock_s: A monotonic clock; the event loop's by default.

    Attributes:
        idle: Waits for the first byte of a request.
        head: ... for the rest of its head.
        body: ... for more of its body.
        writing: ... for the client to read what has been sent.
        closing: ... for the same, after which the connection ends.
        refused: ... for the client to notice that it was refused; what it still sends is discarded. If the server closed at once,
            the client's kernel would report that instead, and drop the answer.
    """

    def __init__(self, config: GatewayConfig, clock_s: Callable[[], float] | None = None) -> None:
        self.clock_s = clock_s or asyncio.get_running_loop().time
        self.idle = TimeoutQueue(config.idle_timeout_s)
        self.head = TimeoutQueue(config.header_timeout_s)
        self.body = TimeoutQueue(config.body_timeout_s)
        self.writing = TimeoutQueue(config.write_timeout_s)
        self.closing = TimeoutQueue(config.write_timeout_s)
        self.refused = TimeoutQueue(min(_LINGER_S, config.write_timeout_s))
        shortest_s = min(queue.timeout_s for queue in self._queues())
        self._interval_s = min(_MAX_SWEEP_S, max(_MIN_SWEEP_S, shortest_s / _SWEEPS_PER_TIMEOUT))
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Starts checking the queues."""
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._tick)

    def stop(self) -> None:
        """Stops checking the queues."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def sweep(self) -> None:
        """Tells all connections whose time is up."""
        now_s = self.clock_s()
        for queue in self._queues():
            for waiter in queue.overdue(now_s):
                waiter.time_is_up(queue, now_s)

    def forget(self, waiter: Waiter) -> None:
        """Removes a connection that is gone."""
        for queue in self._queues():
            queue.leave(waiter)

    def _tick(self) -> None:
        self.sweep()
        self.start()

    def _queues(self) -> Iterable[TimeoutQueue]:
        return self.idle, self.head, self.body, self.writing, self.closing, self.refused
