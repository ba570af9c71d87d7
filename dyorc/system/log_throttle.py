"""Limits the log lines of a problem that lasts or comes back: a loop that tries again would otherwise fill the log.

The first line is logged at once. Repetitions are counted, and the next line, which comes after a pause, says how many; so does
the line about the end. May be used on any thread.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

PAUSE_S = 30.0
"""Between two lines about the same problem."""


class LogThrottle:
    """One kind of problem of one object.

    Args:
        log: Where its lines go: a structlog logger.
        event: Their name.
        recovery: The event name of the line about its end; empty for no such line.
        is_error: Whether its lines are errors, and not only warnings.
        clock_s: A monotonic clock.
    """

    def __init__(
        self,
        log: Any,
        event: str,
        recovery: str = "",
        *,
        is_error: bool = False,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._event = event
        self._recovery = recovery
        self._is_error = is_error
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._said_s = float("-inf")
        self._num_unsaid = 0
        self._is_announced = False

    def report(self, *, exc_info: BaseException | None = None, **facts: Any) -> bool:
        """Logs that it has happened, or counts that; ``num_more`` is how often it has happened since the line before. Returns
        whether there is a line.

        Args:
            exc_info: An exception to log with its traceback.
            facts: Further fields of the line.
        """
        with self._lock:
            now_s = self._clock_s()
            if now_s - self._said_s < PAUSE_S:
                self._num_unsaid += 1
                return False
            self._said_s, self._is_announced = now_s, True
            more = self._take_unsaid()
        if exc_info is not None:
            facts["exc_info"] = exc_info
        say = self._log.error if self._is_error else self._log.warning
        say(self._event, **facts, **more)
        return True

    def end(self, **facts: Any) -> None:
        """Logs that the problem is over, if it was logged before. Costs nothing otherwise."""
        if not self._is_announced:
            return
        with self._lock:
            self._is_announced = False
            more = self._take_unsaid()
        if self._recovery:
            self._log.warning(self._recovery, **facts, **more)

    def _take_unsaid(self) -> dict[str, int]:
        number, self._num_unsaid = self._num_unsaid, 0
        return {"num_more": number} if number else {}
