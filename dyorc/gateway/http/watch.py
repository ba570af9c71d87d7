"""How long a connection's client may take: which waiting room (`patience.py`) it is in, and what happens when its time is up."""

import asyncio
from enum import Enum
from typing import Protocol

from dyorc.config import GatewayConfig
from dyorc.gateway.http.flow import Flow, num_acknowledged
from dyorc.gateway.http.request_parser import Refusal
from dyorc.gateway.http.timeouts import TimeoutQueue, Timeouts


class Stage(Enum):
    """What a connection waits for."""

    IDLE = 0
    """The first byte of a request."""
    HEAD = 1
    BODY = 2
    ANSWER = 3
    """Not the client: all of the request is here, but its answer is not written yet."""
    REFUSED = 4
    """For the client, which has been refused, to notice that."""
    CLOSING = 5
    """For the client to read what was written."""
    LOST = 6


class Watched(Protocol):
    """A connection."""

    @property
    def transport(self) -> asyncio.Transport: ...

    @property
    def flow(self) -> Flow: ...

    @property
    def stage(self) -> Stage: ...

    @property
    def is_body_wanted(self) -> bool:
        """Whether anything waits for the rest of the body. What follows an early answer is discarded."""
        ...

    def refuse(self, refusal: Refusal) -> None:
        """Refuses the client."""


class Watch:
    """Watches one connection."""

    __slots__ = ("_connection", "_limits", "_num_acknowledged", "_num_received", "_patience", "_room", "_rooms")

    def __init__(self, connection: Watched, patience: Timeouts, limits: GatewayConfig) -> None:
        self._connection = connection
        self._patience = patience
        self._limits = limits
        self._room: TimeoutQueue | None = None
        self._num_received = 0  # in this stretch of the body
        self._num_acknowledged = 0  # when this stretch of writing began

    def settle(self, *, is_new: bool = False, is_answered: bool = False) -> None:
        """Enters the room for the connection's current stage. The wait there starts anew if a request is new or was answered."""
        room = self._fitting_room()
        if room is self._room and not is_new and not (is_answered and room is self._patience.idle):
            return
        if self._room is not None:
            self._room.leave(self)
        self._room = room
        if room is not None:
            self._num_received = 0
            room.enter(self, self._patience.clock_s())

    def on_received(self, num_bytes: int) -> None:
        """Notes that the client has sent bytes."""
        self._num_received += num_bytes

    def on_writing_paused(self) -> None:
        """Notes that the client reads more slowly than the server writes."""
        self._num_acknowledged = num_acknowledged(self._connection.transport)
        self._patience.writing.enter(self, self._patience.clock_s())

    def on_writing_resumed(self) -> None:
        """Notes that the client has caught up."""
        self._patience.writing.leave(self)

    def end(self) -> None:
        """Notes that the connection is gone."""
        self._patience.forget(self)

    def time_is_up(self, room: TimeoutQueue, now_s: float) -> None:
        """Handles that the client's time in `room` is up."""
        patience, connection = self._patience, self._connection
        if room is patience.head and connection.flow.is_reading_paused:
            room.enter(self, now_s)  # the rest may be here already, waiting until earlier requests are answered
        elif room is patience.head:
            connection.refuse(Refusal(408, "http", f"the request's head was not complete after {room.timeout_s:g} s"))
        elif room is patience.body and self._is_body_coming(room):
            self._num_received = 0
            room.enter(self, now_s)
        elif room is patience.body:
            text = f"the request's body brought {self._num_received} bytes in {room.timeout_s:g} s"
            connection.refuse(Refusal(408, "http", text))
        elif room is patience.writing and self._is_answer_read(room):
            room.enter(self, now_s)
        elif room is patience.idle and connection.stage is not Stage.IDLE:
            self.settle()
        elif room is patience.idle or room is patience.refused:
            connection.transport.close()
            self.settle()
        else:  # closing would wait for data that the client does not read
            room.leave(self)
            connection.transport.abort()

    def _fitting_room(self) -> TimeoutQueue | None:
        match self._connection.stage:
            case Stage.IDLE:
                return self._patience.idle
            case Stage.HEAD:
                return self._patience.head
            case Stage.BODY:
                return self._patience.body
            case Stage.REFUSED:
                return self._patience.refused
            case Stage.CLOSING:
                return self._patience.closing
            case Stage.ANSWER | Stage.LOST:
                return None

    def _is_body_coming(self, room: TimeoutQueue) -> bool:
        connection = self._connection
        return connection.is_body_wanted and (connection.flow.is_reading_paused or self._num_received >= self._least_bytes(room))

    def _is_answer_read(self, room: TimeoutQueue) -> bool:
        """Returns whether the client is still reading its answer, and begins another period."""
        before, self._num_acknowledged = self._num_acknowledged, num_acknowledged(self._connection.transport)
        return self._num_acknowledged - before >= self._least_bytes(room)

    def _least_bytes(self, room: TimeoutQueue) -> float:
        return self._limits.min_bytes_per_s * room.timeout_s
