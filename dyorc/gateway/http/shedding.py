"""Refuses what cannot be answered in time, before anything is spent on it.

A request's time counts from when its first byte reached this machine. In a crowd most of that time may pass before the server
reads it at all; then its client has gone, and working for it would make the next ones late, too.
"""

import math
import time
from collections.abc import Callable, Sequence

import structlog

from dyorc.errors import CapacityError, DeadlineError, InvalidInputError
from dyorc.gateway.http.errors import Header
from dyorc.gateway.http.heads import TIMEOUT, timeout_s_of
from dyorc.gateway.http.loop_lag import LoopLag
from dyorc.gateway.http.request_parser import Refusal

_log = structlog.get_logger("dyorc.gateway")

_NEGLIGIBLE_S = 0.002
"""Limits are not checked while the loop is no further behind than this."""
_LOG_INTERVAL_NS = 1_000_000_000


class Shedding:
    """Decides for all connections of one server.

    Args:
        lag: Of the event loop.
        clock_ns: Any monotonic clock.
    """

    def __init__(self, lag: LoopLag, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._lag = lag
        self._clock_ns = clock_ns
        self._num_refused = 0  # since the last log line
        self._logged_ns = clock_ns() - _LOG_INTERVAL_NS

    def refusal(self, headers: Sequence[Header], arrived_ns: int) -> Refusal | None:
        """Returns why a request whose first byte came at `arrived_ns` is refused; None if it is admitted."""
        lag = self._lag
        lag.saw_request()
        expected_s = lag.expected_s
        waited_s = (self._clock_ns() - arrived_ns) / 1e9
        if waited_s + expected_s > _NEGLIGIBLE_S and (limit_s := _limit_s(headers)) is not None:
            refusal = _refusal(limit_s, waited_s, expected_s)
            if refusal is not None:
                self._count(expected_s)
                return refusal
        lag.let_in()
        return None

    def _count(self, expected_s: float) -> None:
        self._num_refused += 1
        now_ns = self._clock_ns()
        if now_ns - self._logged_ns >= _LOG_INTERVAL_NS:
            _log.warning("overloaded", num_refused=self._num_refused, expected_s=round(expected_s, 3))
            self._num_refused, self._logged_ns = 0, now_ns


def _limit_s(headers: Sequence[Header]) -> float | None:
    """Returns how long the client waits, if stated; malformed values are refused where the whole head is read."""
    for name, value in headers:
        if name == TIMEOUT:
            try:
                return timeout_s_of(value)
            except InvalidInputError:
                return None
    return None


def _refusal(limit_s: float, waited_s: float, expected_s: float) -> Refusal | None:
    if waited_s >= limit_s:
        text = f"the request's time was up before it was read: it waited {waited_s:.3g} s, its limit is {limit_s:g} s"
        return Refusal(504, DeadlineError.code, text)
    if waited_s + expected_s > limit_s:
        text = f"the server is busy: an answer would take {waited_s + expected_s:.2g} s, the request's limit is {limit_s:g} s"
        return Refusal(503, CapacityError.code, text, retry_after_s=max(1, math.ceil(expected_s)))
    return None
