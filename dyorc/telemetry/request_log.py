"""One line in the log for each request that has ended, as far as the settings ask for it. For the event loop's thread."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import structlog

from dyorc.telemetry.critical_path import WrongGuesses
from dyorc.telemetry.diagnosis import diagnose
from dyorc.telemetry.record import RequestRecord

Which: TypeAlias = Literal["off", "errors", "slow", "all"]

# The level of other lines does not apply to these.
_log: Any = structlog.wrap_logger(
    None, wrapper_class=structlog.make_filtering_bound_logger(0), logger_factory_args=("dyorc.requests",)
)
_FIRST_SERVER_ERROR = 500


class RequestLog:
    """Writes the lines.

    Args:
        which: The requests to log; "slow" includes errors.
        slow_s: A request that takes longer is slow.
        status_of: Returns the HTTP status of an outcome.

    Attributes:
        which: The same; may be changed.
    """

    def __init__(self, which: Which, slow_s: float, status_of: Callable[[str], int]) -> None:
        self.which: Which = which
        self._slow_ns = slow_s * 1e9
        self._status_of = status_of
        self._wrong_guesses = WrongGuesses()

    def take(self, record: RequestRecord) -> None:
        """Writes the line of a request."""
        if self.which == "off":
            return
        self._wrong_guesses.add(record)
        is_slow = record.duration_ns > self._slow_ns
        if self._wants(is_slow=is_slow, is_error=record.outcome != "ok"):
            self._write(self._status_of(record.outcome), self._facts(record), is_slow=is_slow)

    def _wants(self, *, is_slow: bool, is_error: bool) -> bool:
        match self.which:
            case "off":
                return False
            case "errors":
                return is_error
            case "slow":
                return is_slow or is_error
            case "all":
                return True

    def _facts(self, record: RequestRecord) -> dict[str, Any]:
        origin, calls = record.origin, () if record.story is None else record.story.calls
        facts: dict[str, Any] = {"request_id": origin.request_id}
        if record.trace_id:
            facts["trace_id"] = record.trace_id
        facts |= {
            "workflow": record.workflow,
            "tenant": record.tenant,
            "transport": origin.transport,
            "outcome": record.outcome,
            "duration_ms": round(record.duration_ns / 1e6, 3),
            "num_calls": len(calls),
            "num_guesses": sum([call.is_guess for call in calls]),
            "num_bytes": origin.num_bytes,
            "cause": str(diagnose(record, self._wrong_guesses).cause),
        }
        return facts | ({"error": record.error} if record.error else {})

    def _write(self, status: int, facts: dict[str, Any], *, is_slow: bool) -> None:
        say = _log.error if status >= _FIRST_SERVER_ERROR else _log.info if status == 200 and not is_slow else _log.warning
        say("request", status=status, **facts)
