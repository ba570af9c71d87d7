"""How much may be in flight: for each tenant, and in all."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from dyorc.gateway.tenants import Tenant


class Ticket:
    """Room that a request takes, as long as it is entered."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return

    def grow(self, num_bytes: int) -> None:
        """The request is larger than was known.

        Raises:
            CapacityError: If there is no room for so much.
        """


class Admission:
    """Counts what is in flight.

    Args:
        max_requests: In flight, in all.
        max_bytes: Of requests in flight, in all.
    """

    def __init__(self, max_requests: int, max_bytes: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s

    def admit(self, tenant: Tenant, num_bytes: int = 0) -> Ticket:
        """Lets a request in.

        Raises:
            TenantLimitError: If its tenant has too much in flight, or sends too fast.
            CapacityError: If there is too much in flight in all.
        """
        return Ticket()
