"""Hands the record of each request that has ended to the sinks. Lives on the event loop's thread."""

import random
import time
from collections.abc import Callable, Iterable

import structlog

from dyorc.config import RecordsConfig
from dyorc.telemetry.record import RequestRecord, Sink

_log = structlog.get_logger("dyorc.telemetry")

_MAX_REFUSED_PER_S = 10.0
"""Of each kind of error."""


class _Bucket:
    """A token bucket: it gets `max_per_s` tokens each second, and holds at most as many."""

    __slots__ = ("_clock_s", "_filled_s", "_max_per_s", "_num_tokens")

    def __init__(self, max_per_s: float, clock_s: Callable[[], float]) -> None:
        self._clock_s = clock_s
        self._max_per_s = max_per_s
        self._num_tokens = max_per_s
        self._filled_s = clock_s()

    def take(self) -> bool:
        """Takes a token. Returns whether there was one."""
        now_s = self._clock_s()
        self._num_tokens = min(self._max_per_s, self._num_tokens + (now_s - self._filled_s) * self._max_per_s)
        self._filled_s = now_s
        if self._num_tokens < 1.0:
            return False
        self._num_tokens -= 1.0
        return True


class Recording:
    """Decides which requests are recorded, and gives the records to its sinks. Without sinks, nothing is recorded.

    A record costs as much as a quarter of a small request, so a busy server makes a sample of them: `max_per_s`, by tokens.
    Refused requests have separate tokens, some for each kind of error: a flood of them costs little, and does not hide others.

    Args:
        config: Which fraction of the requests is recorded, and how many at most.
        draw: Draws a number in [0, 1).
        clock_s: Any monotonic clock.
    """

    def __init__(
        self, config: RecordsConfig, draw: Callable[[], float] = random.random, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._ratio = config.ratio
        self._draw = draw
        self._clock_s = clock_s
        self._max_per_s = config.max_per_s
        self._answered = _Bucket(config.max_per_s, clock_s)
        self._refused: dict[str, _Bucket] = {}
        self._sinks: tuple[Sink, ...] = ()
        self._wants_all: Sink | None = None

    def add(self, sink: Sink) -> None:
        """Adds a reader of records."""
        self._sinks = (*self._sinks, sink)

    def want_all(self, sink: Sink, *, is_wanted: bool) -> None:
        """Gives one reader the records of all requests, not only the fraction; or stops giving it any."""
        self._sinks = tuple(other for other in self._sinks if other is not sink)
        self._wants_all = sink if is_wanted else None
        if is_wanted:
            self.add(sink)

    def wants(self) -> bool:
        """Returns whether the next request should be recorded."""
        if not self._sinks:
            return False
        if self._wants_all is not None:
            return True
        return self._is_drawn() and self._answered.take()

    def _is_drawn(self) -> bool:
        return self._ratio >= 1.0 or self._draw() < self._ratio

    def refused(self, outcome: str, record: Callable[[], RequestRecord]) -> None:
        """Hands over the record of a request that was refused; if there are too many, only to a reader that wants all.

        Args:
            outcome: The code of its error.
            record: Makes the record.
        """
        if not self._sinks:
            return
        if self._is_drawn() and self._refusals(outcome).take():
            self.ended(record())
        elif self._wants_all is not None:
            self._hand(record(), [self._wants_all])

    def _refusals(self, outcome: str) -> _Bucket:
        bucket = self._refused.get(outcome)
        if bucket is None:
            bucket = self._refused[outcome] = _Bucket(min(_MAX_REFUSED_PER_S, self._max_per_s), self._clock_s)
        return bucket

    def ended(self, record: RequestRecord) -> None:
        """Hands a record to all sinks. One that raises gets no more: a request must not fail because it was looked at."""
        self._hand(record, self._sinks)

    def _hand(self, record: RequestRecord, sinks: Iterable[Sink]) -> None:
        for sink in sinks:
            try:
                sink.take(record)
            except Exception:
                self._sinks = tuple(other for other in self._sinks if other is not sink)
                _log.exception("sink_dropped", sink=type(sink).__name__, request_id=record.origin.request_id)
