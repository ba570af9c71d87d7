"""What programs and an event loop that share a process need of the interpreter."""

import os
from collections.abc import Generator
from contextlib import contextmanager

from dyorc.system.switch_interval import switch_interval_at_most

_NUM_THREADS = "DYORC_NUM_THREADS"


@contextmanager
def interpreter_settings(switch_interval_s: float) -> Generator[None]:
    """Lets the loop interrupt programs that compute in Python soon, and keeps torch from starting threads for each of them.

    If the environment says how many threads programs use, that holds. At the end, everything is as before.
    """
    is_ours = _NUM_THREADS not in os.environ
    if is_ours:
        os.environ[_NUM_THREADS] = "1"
    try:
        with switch_interval_at_most(switch_interval_s):
            yield
    finally:
        if is_ours:
            del os.environ[_NUM_THREADS]
