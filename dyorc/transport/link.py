"""The link between the orchestrator and its replicas, for any carrier.

The address says which: ``unix:///path`` stays on this machine and is a Unix socket (`unix_link`); ``tcp:``, and ZeroMQ's other
addresses, reach other nodes (`zmq_link`).
"""

from collections.abc import Callable, Sequence
from typing import Protocol, Self, TypeAlias

from dyorc.config import LinkConfig
from dyorc.transport.column_codec import Frame
from dyorc.transport.peer_process import LinkCallbacks
from dyorc.transport.unix_caller import UnixCallerLink
from dyorc.transport.unix_link import SCHEME, UnixDealerLink, UnixRouterLink
from dyorc.transport.wake_up import WakeUp
from dyorc.transport.zmq_caller import ZmqCallerLink
from dyorc.transport.zmq_link import DealerLink, RouterLink
from dyorc.transport.zmq_security import ClusterKeys

Received: TypeAlias = Callable[[Sequence[Frame]], None]
Lost: TypeAlias = Callable[[str], None]


class OrchestratorEnd(Protocol):
    """Listens while entered. Everything happens on the event loop.

    Attributes:
        num_bytes_sent: Of all messages so far; `num_bytes_received` likewise.
    """

    num_bytes_sent: int
    num_bytes_received: int

    @property
    def address(self) -> str:
        """Where replicas and gateways dial in, once entered."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc_info: object) -> None: ...

    def send(self, peer: bytes, frames: Sequence[Frame]) -> bool:
        """Sends a message, without waiting; False if the peer is not connected."""
        ...


class ReplicaEnd(Protocol):
    """Blocking; one thread. Dials again by itself whenever the orchestrator is gone."""

    @property
    def is_connected(self) -> bool:
        """Whether an orchestrator is certainly there; a link that cannot say so is not. Any thread."""
        ...

    def send(self, frames: Sequence[Frame]) -> None:
        """Sends a message. Its buffers may be reused afterwards."""
        ...

    def receive(self, *, is_waiting: bool = True, wake: WakeUp | None = None) -> list[Frame] | None:
        """Returns the next message; None if none came in time, or none is there now. Its buffers belong to the caller.

        After None, an idle replica announces itself again.

        Args:
            wake: Ends the wait, too, when another thread sets it; costs a system call more.
        """
        ...

    def close(self, linger_s: float = 1.0) -> None:
        """Closes it, once what was sent has left or `linger_s` seconds have passed."""
        ...


class CallerEnd(Protocol):
    """A gateway's end, on its event loop. Connected until it is closed, or the other end is gone."""

    def send(self, frames: Sequence[Frame]) -> None:
        """Sends a message, without waiting; drops it if the other end is gone."""
        ...

    def close(self) -> None:
        """Hangs up."""
        ...


class Carrier(Protocol):
    """Makes the ends of links. The arguments are those of `listen`, `dial` and `call`."""

    def listen(self, address: str, config: LinkConfig, callbacks: LinkCallbacks, keys: ClusterKeys | None) -> OrchestratorEnd: ...

    def dial(self, address: str, config: LinkConfig, receive_timeout_s: float, keys: ClusterKeys | None) -> ReplicaEnd: ...

    def call(self, address: str, config: LinkConfig, received: Received, lost: Lost, keys: ClusterKeys | None) -> CallerEnd: ...


class _UnixCarrier:
    def listen(self, address: str, config: LinkConfig, callbacks: LinkCallbacks, keys: ClusterKeys | None) -> OrchestratorEnd:
        return UnixRouterLink(address, config, callbacks)

    def dial(self, address: str, config: LinkConfig, receive_timeout_s: float, keys: ClusterKeys | None) -> ReplicaEnd:
        return UnixDealerLink(address, receive_timeout_s)

    def call(self, address: str, config: LinkConfig, received: Received, lost: Lost, keys: ClusterKeys | None) -> CallerEnd:
        return UnixCallerLink(address, config, received, lost)


class _ZmqCarrier:
    def listen(self, address: str, config: LinkConfig, callbacks: LinkCallbacks, keys: ClusterKeys | None) -> OrchestratorEnd:
        return RouterLink(address, config, callbacks, keys=keys)

    def dial(self, address: str, config: LinkConfig, receive_timeout_s: float, keys: ClusterKeys | None) -> ReplicaEnd:
        return DealerLink(address, config, receive_timeout_s, keys=keys)

    def call(self, address: str, config: LinkConfig, received: Received, lost: Lost, keys: ClusterKeys | None) -> CallerEnd:
        return ZmqCallerLink(address, config, received, lost, keys)


CARRIERS: dict[str, Carrier] = {SCHEME: _UnixCarrier(), "": _ZmqCarrier()}
"""By how an address begins; the first that fits. A test may put a network of its own in place of one."""


def _carrier_of(address: str) -> Carrier:
    return next(carrier for scheme, carrier in CARRIERS.items() if address.startswith(scheme))


def listen(
    address: str,
    config: LinkConfig,
    callbacks: LinkCallbacks,
    *,
    keys: ClusterKeys | None = None,
) -> OrchestratorEnd:
    """Returns the orchestrator's end, to be entered.

    Args:
        address: Where to listen.
        keys: The cluster's; None only if no other machine can reach the address.
    """
    return _carrier_of(address).listen(address, config, callbacks, keys)


def dial(address: str, config: LinkConfig, receive_timeout_s: float, *, keys: ClusterKeys | None = None) -> ReplicaEnd:
    """Returns a replica's end. The orchestrator need not be there yet."""
    return _carrier_of(address).dial(address, config, receive_timeout_s, keys)


def call(
    address: str,
    config: LinkConfig,
    received: Received,
    lost: Lost,
    *,
    keys: ClusterKeys | None = None,
) -> CallerEnd:
    """Returns a caller's end on an event loop, as a gateway needs it.

    Args:
        received: Called with the frames of each message.
        lost: Called once, with the reason, when the other end is gone.

    Raises:
        TransportError: If no process listens there (with ZeroMQ, `lost` is called instead), or keys are missing.
    """
    return _carrier_of(address).call(address, config, received, lost, keys)
