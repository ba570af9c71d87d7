"""Other processes that serve the same models on the same ports: the cells of one server."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from dyorc.models.status import StatusBoard


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


class PeerReplies(NamedTuple):
    """What peers said.

    Attributes:
        values: By their numbers, as plain values.
        missing: Numbers of those that did not answer in time: they are starting, or stuck.
        errors: By number, the texts of errors.
        counted: What those that are missing had counted, as far as is known (`PeerProcesses.count`).
    """

    values: Mapping[int, Any]
    missing: tuple[int, ...] = ()
    errors: Mapping[int, str] = {}
    counted: Mapping[int, Any] = {}


class PeerProcesses(Protocol):
    """The other processes. Values that pass between them are plain: what JSON can say."""

    @property
    def number(self) -> int:
        """The number of this process."""
        ...

    @property
    def shares_backend(self) -> bool:
        """Whether all of them have the same backend, so that its figures must be counted once."""
        ...

    @property
    def tenant_counts(self) -> TenantCounts | None:
        """What tenants have in flight in the others; None if there are no others."""
        ...

    def status(self, own: StatusBoard) -> StatusBoard:
        """Returns what all of them are doing together."""
        ...

    def answer(self, what: str, handler: Callable[[Any], Any]) -> None:
        """From now on, this process answers that question by a function of the value that comes with it."""
        ...

    async def ask(self, what: str, value: Any = None) -> PeerReplies:
        """Asks all others, and waits for them for a limited time."""
        ...

    def heed(self, handler: Callable[[Any], None]) -> None:
        """Calls a function with each warning of what has ended another process, those included that came before."""
        ...

    def counting(self, counts: Callable[[], Any]) -> Any:
        """From now on, asks again and again what this process has counted, so that it is not lost with it.

        Returns:
            What the process before it had counted; None if there was none.
        """
        ...

    def count(self) -> None:
        """Asks now, because somebody is about to see it."""
        ...

    def remember(self, what: str, value: Any) -> None:
        """Keeps a value for processes that start later, in place of the last one of that name."""
        ...


class NoPeers:
    """There are no others."""

    number = 0
    shares_backend = False
    tenant_counts = None

    def status(self, own: StatusBoard) -> StatusBoard:
        return own

    def answer(self, what: str, handler: Callable[[Any], Any]) -> None:
        pass

    async def ask(self, what: str, value: Any = None) -> PeerReplies:
        return PeerReplies({})

    def heed(self, handler: Callable[[Any], None]) -> None:
        pass

    def counting(self, counts: Callable[[], Any]) -> Any:
        return None

    def count(self) -> None:
        pass

    def remember(self, what: str, value: Any) -> None:
        pass
