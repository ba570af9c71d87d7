"""The leader record: where the orchestrator that leads a group is found."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from dyorc.core.decode_errors import DECODE_ERRORS
from dyorc.errors import StoreError
from dyorc.store.lease_store import Lease


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """An orchestrator that leads.

    Attributes:
        group: The group that it leads.
        fence: Grows with each leadership of the group. If two orchestrators claim to lead, the one with the higher fence does.
        address: Where gateways dial in, ``unix:///path`` or ``tcp://host:port``.
        replicas_address: Where replicas dial in.
        node: The name of its machine, as replicas know it.
        pid: Its process.
    """

    group: str
    fence: int
    address: str
    replicas_address: str = ""
    node: str = ""
    pid: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderTerm:
    """A leadership, for the parts of the process that depend on it.

    Attributes:
        group: The group.
        fence: Its fence.
        is_sure: Returns whether the process may act as the leader now.
        report_fence: Called with a higher fence that a gateway or a replica knows.
        is_lost: Returns whether another process is known to lead: then this one will never be sure again.
    """

    group: str
    fence: int
    is_sure: Callable[[], bool]
    report_fence: Callable[[int], None]
    is_lost: Callable[[], bool]


def lease_of(leader: Leader) -> Lease:
    """Returns a leader's record for the store."""
    return Lease(fence=leader.fence, record=msgspec.json.encode(leader))


def leader_of(lease: Lease) -> Leader | None:
    """Returns the leader that a lease names; None without a leader, or if it has not announced its addresses yet.

    Raises:
        StoreError: If its record cannot be read.
    """
    try:
        return msgspec.json.decode(lease.record, type=Leader) if lease.record else None
    except DECODE_ERRORS as error:
        raise StoreError(f"the record of the leader with fence {lease.fence} cannot be read: {error}") from error


def lease_name(group: str) -> str:
    """Returns the name of a group's lease in the store."""
    return f"leader/{group}"
