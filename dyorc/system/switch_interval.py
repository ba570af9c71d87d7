"""Sets how long a thread keeps Python's interpreter while others wait for it.

The process has one such setting, and several parts of DyOrc change it for a while. They do so here: if each restored the value
that it had read, parts that end in another order than they began would leave their value behind.
"""

import contextlib
import sys
import threading
from collections.abc import Generator

_lock = threading.Lock()
_at_most: list[float] = []
_at_least: list[float] = []
_elsewhere_s = 0.0
"""The setting before the first request."""


def switch_interval_at_most(turn_s: float) -> contextlib.AbstractContextManager[None]:
    """Makes threads take turns of at most this many seconds: a waiting thread gets the interpreter sooner."""
    return _request(_at_most, turn_s)


def switch_interval_at_least(turn_s: float) -> contextlib.AbstractContextManager[None]:
    """Makes threads take turns of at least this many seconds, even if other parts ask for less."""
    return _request(_at_least, turn_s)


@contextlib.contextmanager
def _request(limits: list[float], turn_s: float) -> Generator[None]:
    global _elsewhere_s
    with _lock:
        if not _at_most and not _at_least:
            _elsewhere_s = sys.getswitchinterval()
        limits.append(turn_s)
        _apply()
    try:
        yield
    finally:
        with _lock:
            limits.remove(turn_s)
            _apply()


def _apply() -> None:
    sys.setswitchinterval(max([min([_elsewhere_s, *_at_most]), *_at_least]))
