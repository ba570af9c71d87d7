"""What collectives cost, a latency and a time per byte, measured or derived from links; and what messages cost that go another
way than links say, through shared memory or by gRPC.

The cost of every collective is a function of one number of bytes, the *driving bytes*:

    all_reduce                          the whole tensor, which each rank holds
    all_gather, reduce_scatter, padded  the number of ranks times the largest shard: all are filled up to it
    or ring                             (in a ring of own sizes, the largest shard passes every link, one after another)
    ..., grouped                        the sum of all shards: one broadcast or reduction for each, for all ratios
    all_to_all                          the number of ranks times the largest shard

Source: HAP (EuroSys'24), section 5.1 for padded and grouped; the ring formulas are textbook.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dyorc.planner.plan.steps import Algorithm, ChannelKind, CollectiveKind


@dataclass(frozen=True, slots=True)
class CostLine:
    """A cost that grows evenly: seconds = latency_s + s_per_byte * driving bytes."""

    latency_s: float
    s_per_byte: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCost:
    """What was measured of one kind of collective.

    Attributes:
        kind: What is done.
        algorithm: How the bytes are moved.
        lines: The cost is the highest of them.
        devices_by_machine: The group that was measured: how many devices of each machine. Costs of other groups are rescaled by
            the part of the bytes that passes the busiest link. Empty: not rescaled.
        at_bytes_per_s: The slowest link of the group that was measured: costs of groups with another one are rescaled by it. 0:
            not rescaled.
        is_everywhere: Whether it holds for groups within one machine, too, though it was measured between machines.
    """

    kind: CollectiveKind
    algorithm: Algorithm = Algorithm.PADDED
    lines: tuple[CostLine, ...]
    devices_by_machine: tuple[int, ...] = ()
    at_bytes_per_s: float = 0.0
    is_everywhere: bool = False

    def covers(self, devices_by_machine: Sequence[int]) -> bool:
        """Whether it says something of a group: what was measured between machines says nothing of one within a machine."""
        return self.is_everywhere or (len(devices_by_machine) > 1) == (len(self.devices_by_machine) > 1)


def fitted_line(points: Sequence[tuple[float, float]]) -> CostLine:
    """Returns the line through measured points that are pairs of driving bytes and seconds: the least squares of relative errors,
    with no negative latency.
    """
    weights = [1 / seconds**2 for _, seconds in points]
    total = sum(weights)
    mean_bytes, mean_s = (sum(w * p[i] for w, p in zip(weights, points, strict=True)) / total for i in (0, 1))
    spread = sum(w * (x - mean_bytes) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    together = sum(w * (x - mean_bytes) * (y - mean_s) for w, (x, y) in zip(weights, points, strict=True))
    slope = max(together / spread, 0.0) if spread else 0.0
    latency_s = mean_s - slope * mean_bytes
    if latency_s >= 0:
        return CostLine(latency_s, slope)
    squares = sum(w * x * x for w, (x, _) in zip(weights, points, strict=True))
    return CostLine(0.0, sum(w * x * y for w, (x, y) in zip(weights, points, strict=True)) / squares)


def driving_bytes(kind: CollectiveKind, algorithm: Algorithm, piece_bytes: Sequence[int]) -> int:
    """Returns the number of bytes on which the cost depends."""
    if kind is CollectiveKind.ALL_REDUCE:
        return max(piece_bytes)
    if algorithm is Algorithm.GROUPED and kind is not CollectiveKind.ALL_TO_ALL:
        return sum(piece_bytes)
    return len(piece_bytes) * max(piece_bytes)


def wire_ratio(kind: CollectiveKind, algorithm: Algorithm, devices_by_machine: Sequence[int]) -> float:
    """Returns the part of the driving bytes that passes the busiest link.

    Args:
        kind: What is done.
        algorithm: How the bytes are moved.
        devices_by_machine: How many devices of each machine take part. In an all-to-all, those of one machine share its link.
    """
    n = sum(devices_by_machine)
    match kind:
        case CollectiveKind.ALL_REDUCE:
            return 2 * (n - 1) / n
        case CollectiveKind.ALL_TO_ALL:
            if len(devices_by_machine) == 1:
                return (n - 1) / n**2
            return max(count * (n - count) for count in devices_by_machine) / n**2
        case CollectiveKind.ALL_GATHER | CollectiveKind.REDUCE_SCATTER:
            return 1.0 if algorithm is Algorithm.GROUPED else (n - 1) / n
        case CollectiveKind.SLICE | CollectiveKind.MASK:
            return 0.0


def derived_lines(
    kind: CollectiveKind, algorithm: Algorithm, devices_by_machine: Sequence[int], bytes_per_s: float, latency_s: float
) -> tuple[CostLine, ...]:
    """Returns what a collective costs over links whose slowest has a given speed."""
    n = sum(devices_by_machine)
    num_rounds = n - 1
    if kind is CollectiveKind.ALL_REDUCE:
        num_rounds = 2 * (n - 1)
    elif algorithm is Algorithm.GROUPED and kind is not CollectiveKind.ALL_TO_ALL:
        num_rounds = n
    return (CostLine(num_rounds * latency_s, wire_ratio(kind, algorithm, devices_by_machine) / bytes_per_s),)


def rescaled_lines(measured: CollectiveCost, devices_by_machine: Sequence[int], bytes_per_s: float) -> tuple[CostLine, ...]:
    """Returns what a collective costs in another group than the one that was measured."""
    time = measured.at_bytes_per_s / bytes_per_s if measured.at_bytes_per_s else 1.0
    wire = 1.0
    if measured.devices_by_machine:
        ratio = wire_ratio(measured.kind, measured.algorithm, devices_by_machine)
        wire = ratio / wire_ratio(measured.kind, measured.algorithm, measured.devices_by_machine)
    return tuple(CostLine(time * line.latency_s, time * wire * line.s_per_byte) for line in measured.lines)


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
