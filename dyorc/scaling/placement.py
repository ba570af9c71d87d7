"""Which parked replica is warmed, and which warm one is parked. Pure; the shell passes the choice on as a hint."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_COPY_BYTES_PER_S = 1e9
"""At this rate tensors come from another node."""
_COLD_WEIGHTS_FACTOR = 4.0
"""Weights that are not in the page cache take this many times as long as a copy between nodes: they come from a disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A replica, where it is, and what lies there.

    Attributes:
        has_weights: Whether the program's weights are in the node's page cache.
        upstream_bytes: Bytes of tensors on the node that calls waiting for the program will read.
        num_running: Calls that it has in hand, if it is warm.
    """

    replica_id: str
    node: str
    has_weights: bool = False
    upstream_bytes: int = 0
    num_running: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """A replica, and why this one."""

    replica_id: str
    reason: str


def choose_to_warm(
    seats: Sequence[Seat], free_devices: Mapping[str, float], device_share: float, weights_bytes: int = 0
) -> Choice | None:
    """Returns the parked replica that serves soonest; None if no node has a free device for it.

    Args:
        free_devices: Share of devices that is free, by node; a node that is not named has none.
        device_share: What a warm replica takes of a device; 0 needs none.
    """
    fitting = [seat for seat in seats if device_share <= 0 or free_devices.get(seat.node, 0.0) >= device_share - 1e-9]
    if not fitting:
        return None
    most_bytes = max(seat.upstream_bytes for seat in fitting)

    def cost(seat: Seat) -> tuple[float, float, str]:
        reading_s = 0.0 if seat.has_weights else _COLD_WEIGHTS_FACTOR * weights_bytes / _COPY_BYTES_PER_S
        copying_s = (most_bytes - seat.upstream_bytes) / _COPY_BYTES_PER_S
        # Of equal ones the fullest device that still fits: whole devices stay free for programs that need one.
        return (reading_s + copying_s, free_devices.get(seat.node, 0.0), seat.replica_id)

    chosen = min(fitting, key=cost)
    return Choice(chosen.replica_id, _why_warm(chosen, fitting, device_share))


def choose_to_park(seats: Sequence[Seat]) -> Choice | None:
    """Returns the warm replica that is missed least: with the fewest calls in hand, far from the tensors that wait for it."""
    if not seats:
        return None
    chosen = min(seats, key=lambda seat: (seat.num_running, seat.upstream_bytes, not seat.has_weights, seat.replica_id))
    why = "it is idle" if not chosen.num_running else f"it has the fewest calls in hand, {chosen.num_running}"
    if any(seat.num_running == chosen.num_running and seat.upstream_bytes > chosen.upstream_bytes for seat in seats):
        why += f", and node {chosen.node!r} has fewer bytes of the tensors that wait than others"
    return Choice(chosen.replica_id, why)


def _why_warm(chosen: Seat, fitting: Sequence[Seat], device_share: float) -> str:
    reasons: list[str] = []
    if device_share > 0:
        reasons.append(f"has {device_share:g} of a device free")
    if chosen.has_weights and any(not seat.has_weights for seat in fitting):
        reasons.append("has the weights in its page cache")
    if chosen.upstream_bytes and any(seat.upstream_bytes < chosen.upstream_bytes for seat in fitting):
        reasons.append(f"holds {chosen.upstream_bytes} bytes of the tensors that wait")
    return f"node {chosen.node!r} {' and '.join(reasons)}" if reasons else f"node {chosen.node!r} is as good as any"
