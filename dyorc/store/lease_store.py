"""The contract of leases: who may do what only one process may do."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """What the store knows of a lease.

    Attributes:
        fence: Grows each time that somebody acquires it, and never shrinks; 0 if nobody ever did.
        record: What its holder says of itself; empty if nobody holds it, or the holder has said nothing yet.
    """

    fence: int
    record: bytes


class LeaseStore(Protocol):
    """Leases by name. A lease ends when its holder has not renewed it for long enough, by the store's clock.

    Every call raises `StoreError` if the store cannot be used. Each may be repeated.
    """

    async def acquire_lease(self, name: str, owner: str, lease_s: float, above: int = 0) -> int | None:
        """Acquires a lease that nobody else holds. Returns its fence, the same one if `owner` holds it already; None if somebody
        else does.

        Args:
            owner: Who asks; unique.
            above: The fence will be higher than this one, too: one that the caller has heard of, in case that the store has lost
                its data since.
        """
        ...

    async def renew_lease(self, name: str, owner: str, lease_s: float, held: Lease) -> bool:
        """Prolongs a lease, even one that has ended, or that the store has lost, as long as nobody else has acquired it.

        Args:
            held: Its fence, and what is to be its record.

        Returns:
            False if somebody else has acquired it; then nothing has changed.
        """
        ...

    async def release_lease(self, name: str, owner: str, fence: int) -> None:
        """Ends a lease, unless somebody else has acquired it."""
        ...

    async def lease(self, name: str) -> Lease:
        """Returns what is known of a lease."""
        ...
