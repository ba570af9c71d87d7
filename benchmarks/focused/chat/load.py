"""Poisson arrivals of questions, and what becomes of each: when its answer's parts came, and whether it was right."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from benchmarks.focused.chat.turn import Turn
from loadgen.targets.base import RequestFailedError

FIRST_S, BETWEEN_S = 0.2, 0.1
"""Somebody who reads along: 99 % of first tokens come within the first, 99 % of times between tokens are within the second."""
ANSWER_S, TOKEN_S = 1.0, 0.1
"""Somebody who waits for the end: 99 % of answers come within the first, and the second for each further token."""


@dataclass(slots=True)
class Asked:
    """One question.

    Attributes:
        due_ns: When it was due; all times count from there.
        part_ns: When parts of its answer came. Empty if the answer came as a whole.
        done_ns: When it was answered; 0 if it was not.
    """

    turn: Turn
    due_ns: int
    part_ns: list[int] = field(default_factory=list[int])
    done_ns: int = 0
    text: bytes = b""

    @property
    def is_right(self) -> bool:
        return self.done_ns > 0 and self.text == self.turn.text


Ask = Callable[[Asked], Awaitable[None]]
"""Asks a question; sets `part_ns`, `text` and `done_ns`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What one rate of arrivals gave.

    Attributes:
        tokens_per_s: Tokens of right answers that came in the measured time.
        first_s, between_s: (p50, p99); of whole answers, of the time to the answer and nothing.
        is_live: Whether the objective of somebody who reads along was met. The first token of a whole answer comes with the rest.
        is_in_time: Whether that of somebody who waits for the end was met.
        cpu_ms_per_token: Processor time of the system, for each token of a right answer.
        num_wrong: Answers that differ from the loop by hand, or are missing.
    """

    rate_rps: float
    tokens_per_s: float
    first_s: tuple[float, float]
    between_s: tuple[float, float] | None
    is_live: bool
    is_in_time: bool
    num_asked: int
    num_wrong: int
    cpu_ms_per_token: float

    def __str__(self) -> str:
        between = "" if self.between_s is None else f", between {_milliseconds(self.between_s)}"
        return (
            f"{self.rate_rps:6.1f}/s {'live' if self.is_live else '    '} {'in time' if self.is_in_time else '       '} "
            f"{self.tokens_per_s:6.0f} tokens/s, "
            f"first {_milliseconds(self.first_s)}{between}, {self.num_wrong} of {self.num_asked} wrong, "
            f"{self.cpu_ms_per_token:.2f} ms of processor time a token"
        )


def arrivals(turns: Sequence[Turn], rate_rps: float, duration_s: float, seed: int) -> list[tuple[float, Turn]]:
    """Returns when which question is due, in seconds from the start; the same for the same seed."""
    rng = np.random.default_rng(seed)
    times_s = np.cumsum(rng.exponential(1 / rate_rps, int(duration_s * rate_rps * 2) + 20))
    return [(float(at_s), turns[number % len(turns)]) for number, at_s in enumerate(times_s[times_s < duration_s])]


async def ask_all(ask: Ask, due: Sequence[tuple[float, Turn]], drain_s: float) -> tuple[list[Asked], int]:
    """Asks questions when they are due, whatever became of earlier ones. Returns them, and when the first was due."""
    start_ns = time.monotonic_ns() + 20_000_000
    asked = [Asked(turn, start_ns + int(at_s * 1e9)) for at_s, turn in due]
    tasks: list[asyncio.Task[None]] = []
    for one in asked:
        if (wait_ns := one.due_ns - time.monotonic_ns()) > 0:
            await asyncio.sleep(wait_ns / 1e9)
        tasks.append(asyncio.ensure_future(ask(one)))
    _, late = await asyncio.wait(tasks, timeout=drain_s)
    for task in late:
        task.cancel()
    for error in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(error, Exception) and not isinstance(error, RequestFailedError):
            raise error
    return asked, start_ns


def point_of(asked: Sequence[Asked], start_ns: int, rate_rps: float, warm_up_s: float, duration_s: float, cpu_s: float) -> Point:
    """Returns the figures of the questions that were due after the warm-up. An answer that did not come waited until now."""
    now_ns = time.monotonic_ns()
    begin_ns, end_ns = start_ns + int(warm_up_s * 1e9), start_ns + int(duration_s * 1e9)
    measured = [one for one in asked if begin_ns <= one.due_ns < end_ns]
    first_s = [((one.part_ns[0] if one.part_ns else one.done_ns or now_ns) - one.due_ns) / 1e9 for one in measured]
    between_s = [
        gap / 1e9 for one in measured for gap in np.diff([*one.part_ns, *([now_ns] if not one.done_ns else [])]).tolist()
    ]
    is_streamed = any(one.part_ns for one in measured)
    took_s = [((one.done_ns or now_ns) - one.due_ns) / 1e9 for one in measured]
    allowed_s = [ANSWER_S + TOKEN_S * max(0, len(one.turn.tokens) - 1) for one in measured]
    num_wrong = sum(not one.is_right for one in measured)
    are_right = num_wrong <= 0.01 * len(measured)
    num_tokens = sum(len(one.turn.tokens) for one in asked if one.is_right and begin_ns <= one.done_ns < end_ns)
    return Point(
        rate_rps=rate_rps,
        tokens_per_s=num_tokens / ((end_ns - begin_ns) / 1e9),
        first_s=(float(np.median(first_s)), _p99(first_s)),
        between_s=(float(np.median(between_s)), _p99(between_s)) if is_streamed else None,
        is_live=are_right and _p99(first_s) < FIRST_S and (not is_streamed or _p99(between_s) < BETWEEN_S),
        is_in_time=are_right and _p99([took - most for took, most in zip(took_s, allowed_s, strict=True)]) < 0,
        num_asked=len(measured),
        num_wrong=num_wrong,
        cpu_ms_per_token=1e3 * cpu_s / max(1, sum(len(one.turn.tokens) for one in asked if one.is_right)),
    )


def _milliseconds(times_s: tuple[float, float]) -> str:
    return f"p50 {times_s[0] * 1e3:.0f} p99 {times_s[1] * 1e3:.0f} ms"


def _p99(values: Sequence[float]) -> float:
    return float(np.quantile(values, 0.99, method="inverted_cdf"))
