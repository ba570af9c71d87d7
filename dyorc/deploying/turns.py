"""Code that is imported on a thread takes turns with the event loop: the shorter the turns, the less requests notice."""

import contextlib
import sys
import threading
from collections.abc import Generator

_TURN_S = 0.0005
"""Python's own turns are 5 ms, and the event loop waits for one each time that it wakes up."""
_lock = threading.Lock()
_entered: list[float] = []


@contextlib.contextmanager
def short_turns() -> Generator[None]:
    """Has threads take short turns while any of them is in here."""
    with _lock:
        _entered.append(sys.getswitchinterval() if not _entered else _entered[0])
        sys.setswitchinterval(_TURN_S)
    try:
        yield
    finally:
        with _lock:
            before = _entered.pop()
            if not _entered:
                sys.setswitchinterval(before)
