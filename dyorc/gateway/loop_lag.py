"""How far the event loop is behind: how long it would take over a request that arrives now, beside all others.

An event loop works in turns: it reads what has come, then runs what is ready. A request takes several turns from its first byte
to its answer, and so at least as long as those turns. How long a turn takes is known only when it is over. But a single turn may
bring thousands of requests, so the length of the current turn is predicted from how many it has admitted already and what each
cost recently.

Cost: 1 us for each turn in which requests come, and 1 us for each request.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable

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
    """Watches the loop for as long as requests come.

    Args:
        clock_s: Any monotonic clock.
        call_soon: Calls a function in the loop's next turn; the running loop's unless told otherwise, which need not run yet.
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

    def saw_request(self) -> None:
        """Notes that a request came."""
        self._num_seen += 1
        if not self._is_watching:
            self._is_watching = True
            self._turned_s = self._clock_s()
            self._call_soon(self._turn)

    def let_in(self) -> None:
        """Notes that the request is admitted."""
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
