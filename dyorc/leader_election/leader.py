"""The leader record: where the orchestrator that leads a group is found."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from dyorc.store.lease_store import Lease


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """An orchestrator that leads.

    Attributes:
        group: What it leads.
        fence: Grows with each leadership of the group. Of two that both say they lead, the one with the higher fence does.
        address: Where gateways dial in, ``unix:///path`` or ``tcp://host:port``.
        replicas_address: Where replicas dial in.
        node: Name of its machine, as replicas know it.
        pid: Of its process.
    """

    group: str
    fence: int
    address: str
    replicas_address: str = ""
    node: str = ""
    pid: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderTerm:
    """A leadership, for those parts of the process that act by it.

    Attributes:
        group: What it leads.
        fence: Its fence.
        is_sure: Whether it may act as the leader now.
        heard_of: Called with a higher fence that somebody has heard of.
    """

    group: str
    fence: int
    is_sure: Callable[[], bool]
    heard_of: Callable[[int], None]


def lease_of(leader: Leader) -> Lease:
    """Returns what the store keeps of a leader."""
    return Lease(fence=leader.fence, record=msgspec.json.encode(leader))


def leader_of(lease: Lease) -> Leader | None:
    """Returns the leader whose record this is; None if there is none, or it has not said yet where it is found."""
    return msgspec.json.decode(lease.record, type=Leader) if lease.record else None


def lease_name(group: str) -> str:
    """Returns the name of a group's lease in the store."""
    return f"leader/{group}"
