"""What programs and an event loop that share a process need of the interpreter."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager

_NUM_THREADS = "DYORC_NUM_THREADS"


@contextmanager
def shared_with_programs(switch_interval_s: float) -> Generator[None]:
    """Lets the loop interrupt programs that compute in Python soon, and keeps torch from starting threads for each of them.

    If the environment says how many threads programs use, that holds. At the end, everything is as before.
    """
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(min(interval_s, switch_interval_s))
    is_ours = _NUM_THREADS not in os.environ
    if is_ours:
        os.environ[_NUM_THREADS] = "1"
    try:
        yield
    finally:
        sys.setswitchinterval(interval_s)
        if is_ours:
            del os.environ[_NUM_THREADS]
