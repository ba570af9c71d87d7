"""Hands the record of each request that has ended to whoever reads records. Lives on the event loop's thread."""

import random
import time
from collections.abc import Callable

import structlog

from dyorc.config import RecordsConfig
from dyorc.telemetry.record import RequestRecord, Sink

_log = structlog.get_logger("dyorc.telemetry")


class Recording:
    """Decides which requests are recorded, and gives the records to its sinks. Without sinks, nothing is recorded.

    A record costs as much as a quarter of a small request, so a busy server makes a sample of them: each second brings
    `max_per_s` tokens, of which as many are kept, and each record takes one.

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
        self._num_tokens = config.max_per_s
        self._filled_s = clock_s()
        self._sinks: tuple[Sink, ...] = ()
        self._wants_all: Sink | None = None

    def add(self, sink: Sink) -> None:
        """Gives records to one more reader from now on."""
        self._sinks = (*self._sinks, sink)

    def want_all(self, sink: Sink, *, is_wanted: bool) -> None:
        """Gives one reader the records of all requests, whatever the fraction is; or from now on none."""
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
        return (self._ratio >= 1.0 or self._draw() < self._ratio) and self._has_token()

    def _has_token(self) -> bool:
        now_s = self._clock_s()
        self._num_tokens = min(self._max_per_s, self._num_tokens + (now_s - self._filled_s) * self._max_per_s)
        self._filled_s = now_s
        if self._num_tokens < 1.0:
            return False
        self._num_tokens -= 1.0
        return True

    def ended(self, record: RequestRecord) -> None:
        """Hands a record to all sinks. One that raises gets no more: a request must not fail because it was looked at."""
        for sink in self._sinks:
            try:
                sink.take(record)
            except Exception:
                self._sinks = tuple(other for other in self._sinks if other is not sink)
                _log.exception("sink_dropped", sink=type(sink).__name__, request_id=record.origin.request_id)
