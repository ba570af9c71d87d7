"""How long to wait for clients: what each connection waits for and since when, and one timer that finds those whose time is up.

Every connection is in at most one timeout queue for reading, and perhaps in the one for writing. All connections in a queue may
wait for the same time, so their times run out in the order in which they came: the timer checks them in that order and stops at
the first with time left. Ten thousand idle connections cost it nothing, and a request costs each queue two operations on a dict.
There is no task or timer per connection.

For the event loop's thread only.
"""

import asyncio
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Protocol

import structlog

from dyorc.config import GatewayConfig
from dyorc.gateway.http.flow import Flow, num_acknowledged
from dyorc.gateway.http.request_parser import HttpRefusal
from dyorc.system.log_throttle import LogThrottle

_log = structlog.get_logger("dyorc.gateway")
_MIN_SWEEP_S = 0.02
_MAX_SWEEP_S = 1.0
_SWEEPS_PER_TIMEOUT = 8
_LINGER_S = 1.0


class Waiter(Protocol):
    """A connection in timeout queues."""

    def time_is_up(self, queue: "TimeoutQueue", now_s: float) -> None:
        """Handles that the connection has been in a queue for its `timeout_s`. It must leave the queue or enter it again."""


class TimeoutQueue:
    """Connections that wait for the same event.

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
        waiters: list[Waiter] = []
        for waiter, since_s in self._since_s.items():
            if now_s - since_s < self.timeout_s:
                break
            waiters.append(waiter)
        return waiters


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
        cut_off: Logs clients that read nothing.
        refused: ... for the client to notice that it was refused; what it still sends is discarded. If the server closed at once,
            the client's kernel would report a reset instead, and drop the answer.
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
        self.cut_off = LogThrottle(_log, "client_cut_off")

    def start(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._tick)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def sweep(self) -> None:
        """Notifies all connections whose time is up."""
        now_s = self.clock_s()
        for queue in self._queues():
            for waiter in queue.overdue(now_s):
                waiter.time_is_up(queue, now_s)

    def forget(self, waiter: Waiter) -> None:
        for queue in self._queues():
            queue.leave(waiter)

    def _tick(self) -> None:
        self.sweep()
        self.start()

    def _queues(self) -> Iterable[TimeoutQueue]:
        return self.idle, self.head, self.body, self.writing, self.closing, self.refused


class ConnectionStage(Enum):
    """What a connection waits for."""

    IDLE = 0
    """The first byte of a request."""
    HEAD = 1
    BODY = 2
    ANSWER = 3
    """Nothing from the client: all of the request is here, but its answer is not written yet."""
    REFUSED = 4
    """The refused client to notice that."""
    CLOSING = 5
    """The client to read what was written."""
    LOST = 6


class TimedConnection(Protocol):
    """A connection."""

    @property
    def transport(self) -> asyncio.Transport: ...

    @property
    def flow(self) -> Flow: ...

    @property
    def stage(self) -> ConnectionStage: ...

    @property
    def is_body_wanted(self) -> bool:
        """Whether the rest of the body is still needed. It is discarded after an early answer."""
        ...

    def refuse(self, refusal: HttpRefusal) -> None:
        """Refuses the client."""


class ConnectionTimeouts:
    """How long one connection's client may take: the queue that it waits in, and what happens when its time is up."""

    __slots__ = ("_connection", "_limits", "_num_acknowledged", "_num_received", "_queue", "_queues", "_timeouts")

    def __init__(self, connection: TimedConnection, timeouts: Timeouts, limits: GatewayConfig) -> None:
        self._connection = connection
        self._timeouts = timeouts
        self._limits = limits
        self._queue: TimeoutQueue | None = None
        self._num_received = 0  # in this stretch of the body
        self._num_acknowledged = 0  # when this stretch of writing began

    def settle(self, *, is_new: bool = False, is_answered: bool = False) -> None:
        """Enters the queue for the connection's current stage. The wait there starts anew if a request is new or was answered."""
        queue = self._fitting_queue()
        if queue is self._queue and not is_new and not (is_answered and queue is self._timeouts.idle):
            return
        if self._queue is not None:
            self._queue.leave(self)
        self._queue = queue
        if queue is not None:
            self._num_received = 0
            queue.enter(self, self._timeouts.clock_s())

    def on_received(self, num_bytes: int) -> None:
        """Notes that the client has sent bytes."""
        self._num_received += num_bytes

    def on_writing_paused(self) -> None:
        """Notes that the client reads more slowly than the server writes."""
        self._num_acknowledged = num_acknowledged(self._connection.transport)
        self._timeouts.writing.enter(self, self._timeouts.clock_s())

    def on_writing_resumed(self) -> None:
        self._timeouts.writing.leave(self)

    def end(self) -> None:
        self._timeouts.forget(self)

    def time_is_up(self, queue: TimeoutQueue, now_s: float) -> None:
        timeouts, connection = self._timeouts, self._connection
        if queue is timeouts.head and connection.flow.is_reading_paused:
            queue.enter(self, now_s)  # the rest may be here already, waiting until earlier requests are answered
        elif queue is timeouts.head:
            connection.refuse(HttpRefusal(408, "http", f"the request's head was not complete after {queue.timeout_s:g} s"))
        elif queue is timeouts.body and self._is_body_coming(queue):
            self._num_received = 0
            queue.enter(self, now_s)
        elif queue is timeouts.body:
            text = f"the request's body brought {self._num_received} bytes in {queue.timeout_s:g} s"
            connection.refuse(HttpRefusal(408, "http", text))
        elif queue is timeouts.writing and self._is_answer_read(queue):
            queue.enter(self, now_s)
        elif queue is timeouts.idle and connection.stage is not ConnectionStage.IDLE:
            self.settle()
        elif queue is timeouts.idle or queue is timeouts.refused:
            connection.transport.close()
            self.settle()
        else:  # closing would wait for data that the client does not read
            queue.leave(self)
            timeouts.cut_off.report(
                peer=_shown(connection.transport.get_extra_info("peername")),
                cause=f"it read too little of its answer for {queue.timeout_s:g} s (gateway.write_timeout_s)",
            )
            connection.transport.abort()

    def _fitting_queue(self) -> TimeoutQueue | None:
        match self._connection.stage:
            case ConnectionStage.IDLE:
                return self._timeouts.idle
            case ConnectionStage.HEAD:
                return self._timeouts.head
            case ConnectionStage.BODY:
                return self._timeouts.body
            case ConnectionStage.REFUSED:
                return self._timeouts.refused
            case ConnectionStage.CLOSING:
                return self._timeouts.closing
            case ConnectionStage.ANSWER | ConnectionStage.LOST:
                return None

    def _is_body_coming(self, queue: TimeoutQueue) -> bool:
        connection = self._connection
        return connection.is_body_wanted and (connection.flow.is_reading_paused or self._num_received >= self._least_bytes(queue))

    def _is_answer_read(self, queue: TimeoutQueue) -> bool:
        """Returns whether the client is still reading its answer, and begins another period."""
        before, self._num_acknowledged = self._num_acknowledged, num_acknowledged(self._connection.transport)
        return self._num_acknowledged - before >= self._least_bytes(queue)

    def _least_bytes(self, queue: TimeoutQueue) -> float:
        return self._limits.min_bytes_per_s * queue.timeout_s


def _shown(address: object) -> str:
    """Returns the address of a client; empty for a Unix socket's."""
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else ""  # pyright: ignore[reportUnknownMemberType]
