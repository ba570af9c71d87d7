# pyright: basic
# grpcio ships no types.
"""When requests came, how long they may take, and whether they are let in.

gRPC counts a call's deadline on threads of its own from when its first bytes came, however late the event loop is; what is left
of it is all that it tells.
"""

import time
from typing import Any

from dyorc.gateway.shedding import Shedding


def limit_s_of(context: Any, arrived_ns: int) -> float | None:
    """Returns how long a request may take, counted from `arrived_ns`; None if its call has no deadline, 0 if the deadline has
    passed."""
    left_s = context.time_remaining()
    return left_s + (time.monotonic_ns() - arrived_ns) / 1e9 if left_s else left_s


def let_in(shedding: Shedding | None, context: Any, arrived_ns: int) -> None:
    """Admits a request, if it can be answered in time.

    Raises:
        DeadlineError: If its time is up.
        OverloadedError: If its time will be up before it can be answered.
    """
    if shedding is None:
        return
    refusal = shedding.refusal(arrived_ns, lambda: limit_s_of(context, arrived_ns))
    if refusal is not None:
        raise refusal
