"""Other processes that serve the same models on the same ports: the cells of one server."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from dyorc.models.status import StatusBoard


class CountsElsewhere(Protocol):
    """One tenant's counts: this process publishes its own and reads those of the others."""

    def publish(self, num_requests: int, num_bytes: int, full_s: float) -> None:
        """Publishes what the tenant has in this process now.

        Args:
            full_s: When the tenant's bucket is full again, as far as this process knows.
        """
        ...

    def num_requests(self) -> int:
        """Returns how many requests the others have in flight now."""
        ...

    def num_bytes(self) -> int:
        """Returns how many bytes of requests they have in flight."""
        ...

    def full_s(self) -> float:
        """Returns when the tenant's bucket is full again, as far as any other process knows."""
        ...


class TenantCounts(Protocol):
    """The counts of all tenants."""

    def of(self, tenant: str) -> CountsElsewhere | None:
        """Returns a tenant's counts; None if there is no room for another tenant, so that it counts in this process alone."""
        ...


class PeerReplies(NamedTuple):
    """Replies of peers.

    Attributes:
        values: By their numbers, as plain values.
        missing: Numbers of peers that did not answer in time: they are starting, or stuck.
        errors: By number, the texts of errors.
        counted: What the missing peers had counted, as far as is known (`PeerProcesses.count`).
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

    def answer(self, topic: str, handler: Callable[[Any], Any]) -> None:
        """Registers the function that answers questions on a topic, given the value that comes with them. If it returns an
        awaitable, the answer is that one's result."""
        ...

    async def ask(self, topic: str, value: Any = None) -> PeerReplies:
        """Asks all others, and waits for their replies for a limited time."""
        ...

    def on_warning(self, handler: Callable[[Any], None]) -> None:
        """Calls a function with each warning about what has ended another process, including earlier ones."""
        ...

    def keep_counts(self, counts: Callable[[], Any]) -> Any:
        """Registers what this process has counted, to be read repeatedly, so that it is not lost with the process.

        Returns:
            What its predecessor had counted; None if it has none.
        """
        ...

    def count(self) -> None:
        """Reads the counts now, because a client is about to see them."""
        ...

    def remember(self, topic: str, value: Any) -> None:
        """Keeps a value for all others, the ones that start later included, in place of the last one on that topic. Once it is on
        its way, they get it even if this process ends."""
        ...

    def remembered(self, topic: str) -> Any:
        """Returns the last value on a topic that any process keeps for the others; None if there is none."""
        ...

    def on_remembered(self, topic: str, handler: Callable[[Any], None]) -> None:
        """Calls a function with the value of a topic, if there is one already, and with each later one of another process."""
        ...

    def on_loss(self, handler: Callable[[int], None]) -> None:
        """Calls a function with the number of each other process that ends."""
        ...


class NoPeers:
    """A server of one process."""

    number = 0
    shares_backend = False
    tenant_counts = None

    def status(self, own: StatusBoard) -> StatusBoard:
        return own

    def answer(self, topic: str, handler: Callable[[Any], Any]) -> None:
        pass

    async def ask(self, topic: str, value: Any = None) -> PeerReplies:
        return PeerReplies({})

    def on_warning(self, handler: Callable[[Any], None]) -> None:
        pass

    def keep_counts(self, counts: Callable[[], Any]) -> Any:
        return None

    def count(self) -> None:
        pass

    def remember(self, topic: str, value: Any) -> None:
        pass

    def remembered(self, topic: str) -> Any:
        return None

    def on_remembered(self, topic: str, handler: Callable[[Any], None]) -> None:
        pass

    def on_loss(self, handler: Callable[[int], None]) -> None:
        pass
