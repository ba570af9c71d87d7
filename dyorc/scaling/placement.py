"""Which parked replica is warmed: the one that serves soonest. Pure.

Which one is parked is up to the engine, which knows what each runs, and to `dyorc.scaling.devices` where programs share a device.
Only replicas whose device has room come here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

_COPY_BYTES_PER_S = 1e9
"""At this rate tensors come from another node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A parked replica, where it is, and what lies there.

    Attributes:
        has_weights: Whether the program's weights have been read on the node, so that they are in its page cache.
        upstream_bytes: Bytes of tensors on the node that calls waiting for the program will read.
    """

    replica_id: str
    node: str
    has_weights: bool = False
    upstream_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """A replica, and why this one."""

    replica_id: str
    reason: str


def choose_to_warm(seats: Sequence[Seat], load_s: float) -> Choice:
    """Returns the replica that serves soonest; of equal ones the first.

    Args:
        seats: At least one.
        load_s: How long it takes to load the program; as long as that, at most, for weights that have to be read from a disk.
    """
    most_bytes = max(seat.upstream_bytes for seat in seats)

    def cost_s(seat: Seat) -> float:
        return (0.0 if seat.has_weights else load_s) + (most_bytes - seat.upstream_bytes) / _COPY_BYTES_PER_S

    chosen = min(seats, key=cost_s)
    return Choice(chosen.replica_id, _why(chosen, seats))


def _why(chosen: Seat, seats: Sequence[Seat]) -> str:
    reasons: list[str] = []
    if chosen.has_weights and any(not seat.has_weights for seat in seats):
        reasons.append("has read the weights before")
    if any(seat.upstream_bytes < chosen.upstream_bytes for seat in seats):
        reasons.append(f"holds {chosen.upstream_bytes} bytes of the tensors that wait")
    return f"node {chosen.node!r} {' and '.join(reasons)}" if reasons else f"node {chosen.node!r} is as good as any"
