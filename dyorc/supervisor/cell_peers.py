"""A cell's side of the exchange with the other cells, by way of the supervisor."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any

import structlog

from dyorc.errors import DyOrcError
from dyorc.gateway.peer_processes import PeerReplies, TenantCounts
from dyorc.models.status import StatusBoard
from dyorc.system.json_lines import JsonLineStream, Message

_log = structlog.get_logger("dyorc.cells")

_ANSWER_TIMEOUT_S = 2.0
"""Longer than the supervisor waits itself: only reached if it hangs."""
_LOOK_AGAIN_S = 5.0


class CellPeers:
    """The other cells. Used on the event loop.

    Args:
        number: This cell's number.
        num_cells: How many cells there are, with this one.
        channel: The connection to the supervisor.
        tenant_counts: What tenants have in flight in the other cells.
        shares_backend: Whether the cells are gateways to the same orchestrators.
    """

    def __init__(
        self,
        number: int,
        num_cells: int,
        channel: JsonLineStream,
        tenant_counts: TenantCounts | None = None,
        *,
        shares_backend: bool = False,
    ) -> None:
        self.number = number
        self.shares_backend = shares_backend
        self.tenant_counts = tenant_counts
        self._num_cells = num_cells
        self._channel = channel
        self._warnings: list[Any] = []
        self._on_warning: Callable[[Any], None] = self._warnings.append
        self._counts: Callable[[], Any] | None = None
        self._sent_counts: Any = None
        self._remembered: dict[str, Any] = {}
        self._on_remembered: dict[str, Callable[[Any], None]] = {}
        self._on_loss: Callable[[int], None] = lambda _: None
        self._handlers: dict[str, Callable[[Any], Any]] = {}
        self._ids = count()
        self._questions: dict[int, asyncio.Future[PeerReplies]] = {}
        self._others: dict[int, Mapping[str, Any]] = {}
        self._has_started = False
        self._sent_states: dict[str, Any] | None = None
        self._own: StatusBoard | None = None
        self._together: StatusBoard | None = None
        self._following: asyncio.Task[None] | None = None
        self._answering: set[asyncio.Task[None]] = set()

    def status(self, own: StatusBoard) -> StatusBoard:
        """Returns the board of all cells: until all have been ready once, a program is in the worst of its states, later in the
        best. From now on, changes on this cell's board are sent to the others. Cells that share a backend show its board.
        """
        self._own, self._together = own, own.twin()
        self._following = asyncio.get_running_loop().create_task(self._follow(own))
        self.send_states()
        return own if self.shares_backend else self._together

    async def _follow(self, own: StatusBoard) -> None:
        while True:
            await own.wait_for_change(_LOOK_AGAIN_S)
            self.send_states()

    def send_states(self) -> None:
        """Sends the states of this cell's programs to the others, if they have changed."""
        if self._own is not None and (values := self._own.as_values()) != self._sent_states:
            self._sent_states = values
            self._channel.send("states", programs=values)
            self._show()

    def _show(self) -> None:
        if self._own is None or self._together is None:
            return
        self._together.follow(self._own)
        boards = self._others | {self.number: self._own.as_values()}
        if self._has_started:
            self._together.show(boards, min)
        else:
            missing = {name: ["starting", 0, {}, ""] for name in self._own.programs}
            self._together.show(dict.fromkeys(range(self._num_cells), missing) | boards, max)

    def answer(self, topic: str, handler: Callable[[Any], Any]) -> None:
        self._handlers[topic] = handler

    async def ask(self, topic: str, value: Any = None) -> PeerReplies:
        if self._num_cells == 1:
            return PeerReplies({})
        number = next(self._ids)
        future = self._questions[number] = asyncio.get_running_loop().create_future()
        self._channel.send("ask", id=number, what=topic, value=value)
        try:
            async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                return await future
        except TimeoutError:
            return PeerReplies({}, tuple(cell for cell in range(self._num_cells) if cell != self.number))
        finally:
            del self._questions[number]

    def inherit(self, counts: Any, remembered: Mapping[str, Any]) -> None:
        """Takes over the counts of the process before this one, and what the other cells keep for the ones that start."""
        self._sent_counts = counts
        self._remembered = dict(remembered)

    def keep_counts(self, counts: Callable[[], Any]) -> Any:
        self._counts = counts
        return self._sent_counts

    def count(self) -> None:
        if self._counts is not None and (counts := self._counts()) != self._sent_counts:
            self._sent_counts = counts
            self._channel.send("counted", value=counts)

    def on_warning(self, handler: Callable[[Any], None]) -> None:
        self._on_warning = handler
        for warning in self._warnings:
            handler(warning)
        self._warnings.clear()

    def warn(self, warning: Any) -> None:
        """Passes a warning from the supervisor to the handler, or keeps it until there is one."""
        self._on_warning(warning)

    def remember(self, topic: str, value: Any) -> None:
        self._remembered[topic] = value
        self._channel.send("remember", what=topic, value=value)

    def remembered(self, topic: str) -> Any:
        return self._remembered.get(topic)

    def on_remembered(self, topic: str, handler: Callable[[Any], None]) -> None:
        self._on_remembered[topic] = handler
        if topic in self._remembered:
            handler(self._remembered[topic])

    def on_loss(self, handler: Callable[[int], None]) -> None:
        self._on_loss = handler

    def close(self) -> None:
        """Stops sending states and answers."""
        if self._following is not None:
            self._following.cancel()
        for answering in self._answering:
            answering.cancel()

    # From the supervisor

    async def listen(self) -> None:
        """Handles messages until the supervisor is gone."""
        while (message := await self._channel.receive()) is not None:
            match message["kind"]:
                case "asked":
                    self._answer(message)
                case "answers":
                    self._take(message)
                case "warning":
                    self.warn(message["value"])
                case "remembered":
                    self._take_remembered(message["what"], message["value"])
                case "siblings":
                    self._take_states(message)
                case _:
                    raise ValueError(f"the supervisor sent a message of the unknown kind {message['kind']!r}")

    def _take_remembered(self, topic: str, value: Any) -> None:
        self._remembered[topic] = value
        if (handler := self._on_remembered.get(topic)) is not None:
            handler(value)

    def _take_states(self, message: Message) -> None:
        before = self._others.keys()
        self._others = {number: states for number, states in message["states"] if number != self.number}
        self._has_started = message["has_started"]
        self._show()
        for number in sorted(before - self._others.keys()):
            self._on_loss(number)

    def _answer(self, message: Message) -> None:
        handler = self._handlers.get(message["what"])
        if handler is None:
            return  # this cell is still starting; it counts as missing
        try:
            value = handler(message["value"])
        except Exception as error:
            self._send_error(message, error)
        else:
            if inspect.isawaitable(value):
                answering = asyncio.get_running_loop().create_task(self._answer_later(message, value))
                self._answering.add(answering)
                answering.add_done_callback(self._answering.discard)
            else:
                self._send_answer(message, value)

    async def _answer_later(self, message: Message, answer: Awaitable[Any]) -> None:
        try:
            value = await answer
        except Exception as error:
            self._send_error(message, error)
        else:
            self._send_answer(message, value)

    def _send_answer(self, question: Message, value: Any, error: str | None = None) -> None:
        self._channel.send("answer", id=question["id"], value=value, error=error)

    def _send_error(self, question: Message, error: Exception) -> None:
        if isinstance(error, DyOrcError):
            self._send_answer(question, None, str(error))
        else:
            _log.error("question_failed", what=question["what"], exc_info=error)
            self._send_answer(question, None, f"{type(error).__name__}: {error}")

    def _take(self, message: Message) -> None:
        future = self._questions.get(message["id"])
        if future is not None and not future.done():
            values, errors, counted = (dict(message[name]) for name in ("values", "errors", "counted"))
            future.set_result(PeerReplies(values, tuple(message["missing"]), errors, counted))
