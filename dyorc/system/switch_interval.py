"""How long a thread keeps Python's interpreter while others wait for it.

There is one such setting for the whole process, and several parts of DyOrc want it otherwise for a while. They say so here:
if each put back the value that it had found, parts that leave in another order than they came would leave theirs behind.
"""

import contextlib
import sys
import threading
from collections.abc import Generator

_lock = threading.Lock()
_at_most: list[float] = []
_at_least: list[float] = []
_elsewhere_s = 0.0
"""What the setting was when the first came."""


def switch_interval_at_most(turn_s: float) -> contextlib.AbstractContextManager[None]:
    """Has threads take turns of this many seconds, or of what is shorter already: whoever waits gets the interpreter sooner."""
    return _request(_at_most, turn_s)


def switch_interval_at_least(turn_s: float) -> contextlib.AbstractContextManager[None]:
    """Has threads take turns of this many seconds, whatever others want: who has the interpreter keeps it that long."""
    return _request(_at_least, turn_s)


@contextlib.contextmanager
def _request(wishes: list[float], turn_s: float) -> Generator[None]:
    global _elsewhere_s
    with _lock:
        if not _at_most and not _at_least:
            _elsewhere_s = sys.getswitchinterval()
        wishes.append(turn_s)
        _apply()
    try:
        yield
    finally:
        with _lock:
            wishes.remove(turn_s)
            _apply()


def _apply() -> None:
    sys.setswitchinterval(max([min([_elsewhere_s, *_at_most]), *_at_least]))
