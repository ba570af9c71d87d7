"""The contract of leases, by which one process at a time may do something."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lease as the store keeps it.

    Attributes:
        fence: Grows each time that the lease is acquired, and never shrinks; 0 if it never was.
        record: The holder's description of itself; empty without a holder, or if the holder has written none yet.
    """

    fence: int
    record: bytes


class LeaseStore(Protocol):
    """Leases by name. A lease ends when its holder has not renewed it for long enough, by the store's clock.

    Every call raises `StoreError` if the store cannot be used. Each may be repeated.
    """

    async def acquire_lease(self, name: str, owner: str, lease_s: float, above: int = 0) -> int | None:
        """Acquires a lease that no other owner holds. Returns its fence, the same one if `owner` holds it already; None if
        another owner holds it.

        Args:
            owner: A unique name of the caller.
            above: The fence will be higher than this one, too: a fence known to the caller, in case the store has lost its data.
        """
        ...

    async def renew_lease(self, name: str, owner: str, lease_s: float, held: Lease) -> bool:
        """Prolongs a lease, even one that has ended, or that the store has lost, unless another owner has acquired it.

        Args:
            held: Its fence and its new record.

        Returns:
            False if another owner has acquired it; then nothing has changed.
        """
        ...

    async def release_lease(self, name: str, owner: str, fence: int) -> None:
        """Ends a lease, unless another owner has acquired it."""
        ...

    async def lease(self, name: str) -> Lease:
        """Returns a lease."""
        ...
