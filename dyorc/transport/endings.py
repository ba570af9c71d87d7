"""How a process at the other end of a link ended, as far as that can be known."""

import os
import signal
from typing import NamedTuple

_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""What somebody else sends, also the kernel when memory is short. Other signals come of what a process did."""


class Ending(NamedTuple):
    """Why a peer is gone.

    Attributes:
        reason: For people.
        is_crash: Whether the process certainly ended by what it did itself.
    """

    reason: str
    is_crash: bool = False


CONNECTION_LOST = Ending("connection lost")
"""Its process may have ended, be stopped, or be cut off."""
PROCESS_ENDED = Ending("its process ended")
"""Nobody could tell how."""


def ending_of(status: int) -> Ending:
    """What a wait status says."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = next((known.name for known in signal.Signals if known == number), "unknown")
        return Ending(f"its process was killed by signal {number}, {name}", number not in _FROM_OUTSIDE)
    code = os.WEXITSTATUS(status)
    return Ending(f"its process ended with exit code {code}", code != 0)
