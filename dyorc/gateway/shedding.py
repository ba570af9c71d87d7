"""Refuses what cannot be answered in time, before more is spent on it. HTTP and gRPC share one judge, as they share a loop.

A request's time counts from when its first byte reached this machine. Under heavy load, most of that time may pass before the
server reads it at all. By then its client has gone, and working for it would only delay others as well.

A request is judged when it arrives, by the limit that its transport names (`Request-Timeout`, gRPC's deadline), and again once
it is read, if a parameter in its body names a limit.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable

import structlog

from dyorc.errors import DeadlineError, DyOrcError, OverloadedError
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.readings import Readings

_log = structlog.get_logger("dyorc.gateway")

_NEGLIGIBLE_S = 0.002
"""Limits are not checked while the loop is no further behind than this."""
_LOG_INTERVAL_NS = 1_000_000_000
_NUM_TURNS = 6
"""Turns for one request: it is read, decoded, handed to the engine and dispatched; then its batch is read and its answer
written."""
_NUM_TURNS_ONCE_READ = 4
_NUM_RECENT = 4
_KEPT_RATIO = 0.95
"""At each turn, the weight of earlier turns falls by this factor."""
_FIRST_COST_S = 0.0005
"""The assumed cost of a request, until some have been measured."""


class LoopLag:
    """How far the event loop is behind: how long it would take over a request that arrives now, besides all others.

    An event loop works in turns: it reads what has come, then runs what is ready. A request takes several turns from its first
    byte to its answer, and so at least as long as those turns. How long a turn takes is known only when it is over. But a single
    turn may bring thousands of requests, so the length of the current turn is predicted from how many it has admitted already
    and what each cost recently.

    Cost: 1 us for each turn in which requests come, and 1 us for each request.

    Args:
        clock_s: Any monotonic clock.
        call_soon: Calls a function in the loop's next turn; the running loop's by default, which need not run yet.
    """

    def __init__(
        self, clock_s: Callable[[], float] = time.monotonic, call_soon: Callable[[Callable[[], None]], object] | None = None
    ) -> None:
        self._clock_s = clock_s
        self._call_soon = call_soon or _call_soon
        self._is_watching = False
        self._turned_s = 0.0
        self._num_seen = self._num_let_in = 0  # in this turn
        self._recent_s: deque[float] = deque([0.0] * _NUM_RECENT, _NUM_RECENT)
        self._usual_s = 0.0  # the second longest of recent turns: a single long turn is no reason to expect others
        self._cost_s = _FIRST_COST_S  # the mean cost of an admitted request, from sums over turns in which recent ones count most
        self._sum_s, self._sum_let_in = _FIRST_COST_S, 1.0

    def on_request(self) -> None:
        self._num_seen += 1
        if not self._is_watching:
            self._is_watching = True
            self._turned_s = self._clock_s()
            self._call_soon(self._turn)

    def on_admitted(self) -> None:
        self._num_let_in += 1

    @property
    def expected_s(self) -> float:
        """How long the loop would take over another request."""
        return _NUM_TURNS * max(self._usual_s, self._num_let_in * self._cost_s)

    @property
    def expected_once_read_s(self) -> float:
        """How long it would take over a request that has been read and decoded."""
        return _NUM_TURNS_ONCE_READ * max(self._usual_s, self._num_let_in * self._cost_s)

    def _turn(self) -> None:
        now_s = self._clock_s()
        turn_s, self._turned_s = now_s - self._turned_s, now_s
        self._recent_s.append(turn_s)
        if self._num_let_in:
            self._sum_s = _KEPT_RATIO * self._sum_s + turn_s
            self._sum_let_in = _KEPT_RATIO * self._sum_let_in + self._num_let_in
            self._cost_s = self._sum_s / self._sum_let_in
        if self._num_seen:
            self._call_soon(self._turn)
        else:  # nothing came in a whole turn: the loop is not behind
            self._is_watching = False
            self._recent_s.extend([0.0] * _NUM_RECENT)
        self._usual_s = sorted(self._recent_s)[-2]
        self._num_seen = self._num_let_in = 0


def _call_soon(callback: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(callback)


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

    @property
    def is_behind(self) -> bool:
        """Whether the event loop is so far behind that requests' limits are checked."""
        return self._lag.expected_s > _NEGLIGIBLE_S

    def refusal(self, arrived_ns: int, limit_s: Callable[[], float | None]) -> DyOrcError | None:
        """Returns why a request whose first byte came at `arrived_ns` is refused; None if it is admitted.

        Args:
            limit_s: Returns how long its client waits, counted from then, if known. Called only while the loop is behind.
        """
        lag = self._lag
        lag.on_request()
        expected_s = lag.expected_s
        waited_s = (self._clock_ns() - arrived_ns) / 1e9
        if waited_s + expected_s > _NEGLIGIBLE_S and (limit := limit_s()) is not None:
            refusal = self._judge(limit, waited_s, expected_s)
            if refusal is not None:
                return refusal
        lag.on_admitted()
        return None

    def check_once_read(self, arrived_ns: int, limit_s: float) -> None:
        """Checks an admitted request, when its body is read and names a limit.

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
            self._count(refusal, expected_s, is_load=limit_s > _NEGLIGIBLE_S)
        return refusal

    def measure(self, readings: Readings) -> None:
        for reason, number in self._refusals.items():
            readings.add(catalogue.SHED, number, reason)

    def _count(self, refusal: DyOrcError, expected_s: float, *, is_load: bool) -> None:
        """Counts a refusal, and logs some if they come from the server's load: a limit of 0 is never met."""
        self._refusals[refusal.code] = self._refusals.get(refusal.code, 0) + 1
        if not is_load:
            return
        self._num_refused += 1
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
