"""How a process at the other end of a link ended, as far as known."""

import os
import signal
from typing import NamedTuple

_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})
"""Signals that others send, including the kernel when memory is short. Other signals are caused by the process itself."""


class PeerEnding(NamedTuple):
    """Why a peer is gone.

    Attributes:
        reason: For people.
        is_crash: Whether the process certainly ended by its own doing.
    """

    reason: str
    is_crash: bool = False


CONNECTION_LOST = PeerEnding("connection lost")
"""Its process may have ended, be stopped, or be cut off."""
PROCESS_ENDED = PeerEnding("its process ended")
"""It is unknown how."""


def ending_of(status: int) -> PeerEnding:
    """Interprets a wait status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = next((known.name for known in signal.Signals if known == number), "unknown")
        return PeerEnding(f"its process was killed by signal {number}, {name}", number not in _FROM_OUTSIDE)
    code = os.WEXITSTATUS(status)
    return PeerEnding(f"its process ended with exit code {code}", code != 0)
