"""Hands the record of each request that has ended to whoever reads records. Lives on the event loop's thread."""

import random
from collections.abc import Callable

import structlog

from dyorc.config import RecordsConfig
from dyorc.telemetry.record import RequestRecord, Sink

_log = structlog.get_logger("dyorc.telemetry")


class Recording:
    """Decides which requests are recorded, and gives the records to its sinks. Without sinks, nothing is recorded.

    Args:
        config: Which fraction of the requests is recorded.
        draw: Draws a number in [0, 1).
    """

    def __init__(self, config: RecordsConfig, draw: Callable[[], float] = random.random) -> None:
        self._ratio = config.ratio
        self._draw = draw
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
        return bool(self._sinks) and (self._wants_all is not None or self._ratio >= 1.0 or self._draw() < self._ratio)

    def ended(self, record: RequestRecord) -> None:
        """Hands a record to all sinks. One that raises gets no more: a request must not fail because it was looked at."""
        for sink in self._sinks:
            try:
                sink.take(record)
            except Exception:
                self._sinks = tuple(other for other in self._sinks if other is not sink)
                _log.exception("sink_dropped", sink=type(sink).__name__, request_id=record.origin.request_id)
