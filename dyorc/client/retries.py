"""When to send a request again, and when to give up."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from dyorc.client.effects import BrokenExchange, Flow, Reply, Send, Sleep
from dyorc.errors import DeadlineError, DyOrcError, ServerStoppedError
from dyorc.protocol.header_names import TIMEOUT
from dyorc.protocol.inference_request import PreparedRequest
from dyorc.protocol.wire_errors import error_from_answer

_TOO_MANY_REQUESTS = 429
_SERVER_ERROR = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """When a request is sent again: if the server says so (503, 429), if it was never sent, or if the connection broke and
    the request may be repeated.

    Attempts are separated by a random time with a doubling bound, after the server's ``Retry-After``, if it sent one.

    Attributes:
        max_attempts: The first one included; 1 for no retries.
        first_backoff_s: Bound of the first random time.
        max_backoff_s: Bound of all of them.
        repeats: Whether to repeat a request that may have run: the connection broke before the answer came. None: only where that
            is harmless: everything but inferences, and inferences of models that the server's metadata calls repeatable.
    """

    max_attempts: int = 4
    first_backoff_s: float = 0.1
    max_backoff_s: float = 5.0
    repeats: bool | None = None

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts is {self.max_attempts}, expected at least 1")
        if not (self.first_backoff_s >= 0 and 0 <= self.max_backoff_s < math.inf):
            raise ValueError(
                f"backoff bounds are {self.first_backoff_s} and {self.max_backoff_s} s, expected finite times from 0 on"
            )

    def backoff_s(self, num_failed: int, error: DyOrcError, draw: Callable[[], float]) -> float:
        """Returns how long to wait after this many attempts. Random, so clients that failed together do not return together."""
        bound_s = min(self.max_backoff_s, self.first_backoff_s * 2.0 ** min(num_failed - 1, 64))
        return (error.retry_after_s or 0.0) + draw() * bound_s


DEFAULT_RETRIES = Retries()


@dataclass(frozen=True, slots=True)
class RetryingSender:
    """Sends requests, again if need be.

    Args:
        clock_s: The clock that deadlines are on, in seconds.
        draw: Random numbers from 0 to 1.
    """

    clock_s: Callable[[], float]
    draw: Callable[[], float]

    def send(
        self,
        request: PreparedRequest,
        deadline_s: float,
        retries: Retries,
        *,
        is_repeatable: bool = True,
        is_timed: bool = False,
        is_streamed: bool = False,
    ) -> Flow[Reply]:
        """Sends a request until it is answered, or further attempts are pointless.

        Args:
            deadline_s: For all attempts together.
            is_repeatable: Whether it may run twice, if `retries` leaves that open.
            is_timed: Whether to tell the server how much time is left.
            is_streamed: Whether to leave the body of the answer unread.

        Returns:
            The answer, whose status is below 300.

        Raises:
            DyOrcError: The server's refusal; `DeadlineError` if the time is up; `TransportError` if it did not arrive.
        """
        may_repeat = is_repeatable if retries.repeats is None else retries.repeats
        num_failed = 0
        while True:
            timed = self._with_time_left(request, deadline_s) if is_timed else request
            outcome: Reply | BrokenExchange = yield Send(timed, deadline_s, is_streamed)
            if isinstance(outcome, Reply) and outcome.status < 300:
                return outcome
            error, may_retry = _judge(outcome, may_repeat)
            num_failed += 1
            if not may_retry or num_failed >= retries.max_attempts:
                raise error
            pause_s = retries.backoff_s(num_failed, error, self.draw)
            if self.clock_s() + pause_s >= deadline_s:
                raise error  # it says more than a DeadlineError would
            yield Sleep(pause_s)

    def _with_time_left(self, request: PreparedRequest, deadline_s: float) -> PreparedRequest:
        left_s = deadline_s - self.clock_s()
        if left_s <= 0:
            raise DeadlineError("the time was up before the request was sent")
        return request if left_s == math.inf else request.with_header(TIMEOUT, f"{left_s:.6f}")


def _judge(outcome: Reply | BrokenExchange, may_repeat: bool) -> tuple[DyOrcError, bool]:
    """Returns what went wrong, and whether to try again."""
    if isinstance(outcome, BrokenExchange):
        return outcome.error, not outcome.is_final and (may_repeat or not outcome.was_sent)
    error, is_ours = error_from_answer(outcome.status, outcome.headers, outcome.content)
    if isinstance(error, ServerStoppedError):
        return error, may_repeat
    is_worth_it = error.retryable and (outcome.status >= _SERVER_ERROR or outcome.status == _TOO_MANY_REQUESTS)
    # A proxy may not know how far the request came.
    return error, is_worth_it and (is_ours or may_repeat)
