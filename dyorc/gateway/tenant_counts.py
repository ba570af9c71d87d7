"""What a tenant has in flight in other processes of the same server, as admission sees it."""

from typing import Protocol


class CountsElsewhere(Protocol):
    """One tenant's counts. This process says what it has, and asks what the others have."""

    def tell(self, num_requests: int, num_bytes: int, full_s: float) -> None:
        """Says what this process has now.

        Args:
            full_s: When the tenant's bucket is full again, as far as this process knows.
        """
        ...

    def num_requests(self) -> int:
        """Returns how many requests the others have in flight now."""
        ...

    def num_bytes(self) -> int:
        """Returns how many bytes they have."""
        ...

    def full_s(self) -> float:
        """Returns when the tenant's bucket is full again, as far as any other process knows."""
        ...


class TenantCounts(Protocol):
    """The counts of all tenants."""

    def of(self, tenant: str) -> CountsElsewhere | None:
        """Returns a tenant's; None if there is no room for one more, so that it counts in this process alone."""
        ...
