"""Tensors of other nodes, fetched ahead of the batches that need them.

The orchestrator knows which node a queued call will run on before a replica is free for it. It sends that at once, and the bytes
travel while the call waits in the queue and while the batch before it runs. A separate thread fetches, on orders that come over a
separate link, since the worker's thread is busy; the worker takes what has come.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias

import structlog

from dyorc.core.tensor import BlockId
from dyorc.errors import TransportError
from dyorc.system.log_throttle import LogThrottle
from dyorc.transport.tier_routes import Routes
from dyorc.transport.tiers import ByteSpan, TensorHolder

_log = structlog.get_logger("dyorc.transport")


class _State(Enum):
    QUEUED = auto()
    FETCHING = auto()
    HERE = auto()
    GONE = auto()
    """It could not be fetched, or is no longer needed."""


@dataclass(slots=True, eq=False)
class _Staged:
    holder: TensorHolder
    span: ByteSpan
    state: _State = _State.QUEUED
    memory: memoryview = field(default_factory=lambda: memoryview(b""))

    def part(self, span: ByteSpan) -> memoryview:
        """Returns the bytes of a span within it."""
        at = span.offset - self.span.offset
        return self.memory[at : at + span.num_bytes].toreadonly()


Fetch: TypeAlias = Callable[[TensorHolder, Sequence[ByteSpan], Sequence[memoryview]], object]
"""Copies bytes from another node, as `Routes.fetch`."""


class StagingArea:
    """What was fetched, is being fetched, and is to be fetched. Two threads: one fetches ahead with `fetch_next`, the other runs
    batches and uses `take`.

    Args:
        routes: Used only by the thread that fetches ahead.
        limit_bytes: Most bytes that are kept.
    """

    def __init__(self, routes: Routes, limit_bytes: int) -> None:
        self._routes = routes
        self._limit_bytes = limit_bytes
        self._num_bytes = 0
        self._failing = LogThrottle(_log, "staging_failed")
        self._changed = threading.Condition()
        self._queue: deque[_Staged] = deque()
        self._by_block: dict[BlockId, list[_Staged]] = {}

    def add(self, holder: TensorHolder, spans: Sequence[ByteSpan]) -> None:
        """Queues new spans, as far as there is room."""
        with self._changed:
            for span in spans:
                if self._find(holder, span) is None and (staged := self._note(holder, span)) is not None:
                    self._queue.append(staged)

    def fetch_next(self) -> bool:
        """Fetches one queued span; False if none is queued."""
        with self._changed:
            while self._queue and self._queue[0].state is not _State.QUEUED:
                self._queue.popleft()
            if not self._queue:
                return False
            staged = self._queue.popleft()
            staged.state = _State.FETCHING
        try:
            self._bring(staged, self._routes.fetch)
        except TransportError as error:  # the worker will try itself, and report it
            self._failing.report(holder=staged.holder.holder_id, error=str(error))
        return True

    def take(self, holder: TensorHolder, span: ByteSpan, fetch: Fetch | None = None) -> memoryview | None:
        """Returns the bytes of a span, not to be written; waits if they are on their way.

        Args:
            fetch: Fetches what is not here, to be kept for others, who are likely to need it too.

        Returns:
            None if they are not here, and are neither being fetched nor can be kept.

        Raises:
            TransportError: As raised by `fetch`.
        """
        with self._changed:
            staged = self._find(holder, span)
            if staged is None and fetch is not None:
                staged = self._note(holder, span)
            if staged is None:
                return None
            if staged.state is not _State.QUEUED:
                self._changed.wait_for(lambda: staged.state is not _State.FETCHING)
                return staged.part(span) if staged.state is _State.HERE else None
            if fetch is None:
                self._remove(staged)  # other spans are before it; a batch that needs it now fetches it itself
                return None
            staged.state = _State.FETCHING
        self._bring(staged, fetch)
        return staged.part(span)

    def _find(self, holder: TensorHolder, span: ByteSpan) -> _Staged | None:
        """Returns what covers a span. (A holder that has started again, with another arena, is another one.)"""
        for staged in self._by_block.get((holder.holder_id, span.block), ()):
            at = span.offset - staged.span.offset
            if staged.holder == holder and at >= 0 and at + span.num_bytes <= staged.span.num_bytes:
                return staged
        return None

    def _note(self, holder: TensorHolder, span: ByteSpan) -> _Staged | None:
        """Queues a span to be fetched; None if there is no room for it."""
        if self._num_bytes + span.num_bytes > self._limit_bytes:
            return None
        self._num_bytes += span.num_bytes
        staged = _Staged(holder, span)
        self._by_block.setdefault((holder.holder_id, span.block), []).append(staged)
        return staged

    def _bring(self, staged: _Staged, fetch: Fetch) -> None:
        memory = memoryview(bytearray(staged.span.num_bytes))
        try:
            fetch(staged.holder, (staged.span,), (memory,))
        except BaseException:
            with self._changed:
                self._remove(staged)
            raise
        with self._changed:
            staged.memory = memory
            if staged.state is _State.FETCHING:  # otherwise it was dropped, and only those waiting now use it
                staged.state = _State.HERE
            self._changed.notify_all()

    def drop(self, blocks: tuple[BlockId, ...]) -> None:
        """Drops everything of these blocks."""
        with self._changed:
            for block in blocks:
                for staged in list(self._by_block.get(block, ())):
                    self._remove(staged)

    def clear(self) -> None:
        """Drops everything: another orchestrator has taken over. By either thread."""
        with self._changed:
            blocks = tuple(self._by_block)
        self.drop(blocks)

    def forget(self, holder_id: str) -> None:
        """Drops plans for a holder that is gone. What came from it stays valid until it is dropped, but its names are void."""
        with self._changed:
            blocks = tuple(block for block in self._by_block if block[0] == holder_id)
        self.drop(blocks)
        self._routes.forget(holder_id)

    @property
    def num_bytes(self) -> int:
        """Returns how many bytes are held or on their way."""
        with self._changed:
            return self._num_bytes

    def _remove(self, staged: _Staged) -> None:
        block = (staged.holder.holder_id, staged.span.block)
        spans = self._by_block.get(block)
        if spans is None or staged not in spans:
            return
        spans.remove(staged)
        if not spans:
            del self._by_block[block]
        staged.state = _State.GONE
        staged.memory = memoryview(b"")
        self._num_bytes -= staged.span.num_bytes
        self._changed.notify_all()
