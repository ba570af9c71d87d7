"""What a message costs that goes another way than links say: through shared memory, or by gRPC."""

from dataclasses import dataclass

from dyorc.planner.plan.steps import ChannelKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelCost:
    """What a message within one machine costs.

    Attributes:
        kind: How it goes.
        bytes_per_s: How fast.
        latency_s: What each message takes besides.
    """

    kind: ChannelKind
    bytes_per_s: float
    latency_s: float

    def seconds(self, num_bytes: int) -> float:
        """Returns how long a message takes."""
        return self.latency_s + num_bytes / self.bytes_per_s


DEFAULTS = (
    ChannelCost(kind=ChannelKind.STATIC, bytes_per_s=5e9, latency_s=7e-5),
    ChannelCost(kind=ChannelKind.DYNAMIC, bytes_per_s=4e9, latency_s=1.2e-4),
    ChannelCost(kind=ChannelKind.GRPC, bytes_per_s=6e8, latency_s=1e-3),
)
"""Rounded, from two shared virtual cores; `dyorc cluster measure` has a cluster's own."""
