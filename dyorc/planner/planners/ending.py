"""How searches end: by themselves, by Ctrl-C, or because their time is over.

A search that keeps its best plan so far catches `KeyboardInterrupt`, and says in its plan how it ended. A deadline comes the same
way, so that it holds within every planner, solvers included, and planners have one exception to catch. Before there is a plan,
both are passed on.
"""

import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

from dyorc.planner.plan import SearchEnd


class DeadlineReached(KeyboardInterrupt):
    """The time of a search is over."""


def end_of(stop: KeyboardInterrupt) -> SearchEnd:
    """How a stopped search ended."""
    return SearchEnd.DEADLINE if isinstance(stop, DeadlineReached) else SearchEnd.INTERRUPTED


def check_deadline(due_s: float | None) -> None:
    """Ends a search whose time is over.

    Args:
        due_s: When that is, by `time.monotonic`; never, if None.

    Raises:
        DeadlineReached: It is over.
    """
    if due_s is not None and time.monotonic() >= due_s:
        raise DeadlineReached


@contextmanager
def deadline(due_s: float | None) -> Generator[Callable[[], None]]:
    """Interrupts the code within, once, when its time is over.

    Only the main thread can be interrupted. In other threads, a search ends where it calls the function that this yields, also
    once: the work that follows, to return its plan, is not interrupted again.

    Args:
        due_s: When that is, by `time.monotonic`; never, if None.

    Raises:
        DeadlineReached: It is over already.
    """
    check_deadline(due_s)
    if due_s is None or threading.current_thread() is not threading.main_thread():
        yield _check_once(due_s)
        return
    handler_before = signal.signal(signal.SIGALRM, _interrupt)
    timer_before = signal.setitimer(signal.ITIMER_REAL, due_s - time.monotonic())
    try:
        yield lambda: None
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer_before)
        signal.signal(signal.SIGALRM, handler_before)


def _check_once(due_s: float | None) -> Callable[[], None]:
    has_ended = False

    def check() -> None:
        nonlocal has_ended
        if not has_ended:
            has_ended = due_s is not None and time.monotonic() >= due_s
            check_deadline(due_s)

    return check


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise DeadlineReached
