"""Refuses what cannot be answered in time, before more is spent on it. HTTP and gRPC share one judge, as they share a loop.

A request's time counts from when its first byte reached this machine. In a crowd, most of that time may pass before the server
reads it at all. By then its client has gone, and working for it would only make others late as well.

A request is judged when it arrives, by the limit that its transport names (`Request-Timeout`, gRPC's deadline), and again once
it is read, if a parameter in its body names a limit.
"""

import math
import time
from collections.abc import Callable

import structlog

from dyorc.errors import DeadlineError, DyOrcError, OverloadedError
from dyorc.gateway.loop_lag import LoopLag
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.readings import Readings

_log = structlog.get_logger("dyorc.gateway")

_NEGLIGIBLE_S = 0.002
"""Limits are not checked while the loop is no further behind than this."""
_LOG_INTERVAL_NS = 1_000_000_000


class Shedding:
    """Decides for all connections of one process.

    Args:
        lag: How far the event loop is behind.
        clock_ns: Any monotonic clock.
    """

    def __init__(self, lag: LoopLag, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._lag = lag
        self._clock_ns = clock_ns
        self._num_refused = 0  # since the last log line
        self._refusals: dict[str, int] = {}  # since the start, by the codes of their errors
        self._logged_ns = clock_ns() - _LOG_INTERVAL_NS

    def refusal(self, arrived_ns: int, limit_s: Callable[[], float | None]) -> DyOrcError | None:
        """Returns why a request whose first byte came at `arrived_ns` is refused; None if it is let in.

        Args:
            limit_s: Returns for how long after that its client waits, if known. Called only while the loop is behind.
        """
        lag = self._lag
        lag.saw_request()
        expected_s = lag.expected_s
        waited_s = (self._clock_ns() - arrived_ns) / 1e9
        if waited_s + expected_s > _NEGLIGIBLE_S and (limit := limit_s()) is not None:
            refusal = self._judge(limit, waited_s, expected_s)
            if refusal is not None:
                return refusal
        lag.let_in()
        return None

    def check_once_read(self, arrived_ns: int, limit_s: float) -> None:
        """Checks a request that was let in, when its body is read and names a limit.

        Raises:
            DeadlineError: If its time is up.
            OverloadedError: If its time will be up before it can be answered.
        """
        refusal = self._judge(limit_s, (self._clock_ns() - arrived_ns) / 1e9, self._lag.expected_once_read_s)
        if refusal is not None:
            raise refusal

    def _judge(self, limit_s: float, waited_s: float, expected_s: float) -> DyOrcError | None:
        refusal = _refusal(limit_s, waited_s, expected_s)
        if refusal is not None:
            self._count(refusal, expected_s)
        return refusal

    def measure(self, readings: Readings) -> None:
        """Adds what metrics show of it."""
        for reason, number in self._refusals.items():
            readings.add(catalogue.SHED, number, reason)

    def _count(self, refusal: DyOrcError, expected_s: float) -> None:
        self._num_refused += 1
        self._refusals[refusal.code] = self._refusals.get(refusal.code, 0) + 1
        now_ns = self._clock_ns()
        if now_ns - self._logged_ns >= _LOG_INTERVAL_NS:
            _log.warning("overloaded", num_refused=self._num_refused, expected_s=round(expected_s, 3))
            self._num_refused, self._logged_ns = 0, now_ns


def _refusal(limit_s: float, waited_s: float, expected_s: float) -> DyOrcError | None:
    if waited_s >= limit_s:
        return DeadlineError(
            f"the request's time was up before it was read: it waited {waited_s:.3g} s, its limit is {limit_s:g} s"
        )
    if waited_s + expected_s > limit_s:
        text = f"the server is busy: an answer would take {expected_s:.2g} s, the request has {limit_s - waited_s:.2g} s left"
        return OverloadedError(text, retry_after_s=max(1, math.ceil(expected_s)))
    return None
