"""Figures 2 and 4: where one way of dividing work begins to be better than another, from costs alone.

Shares proportional to speed shorten the computation and lengthen padded collectives, whose cost grows with the largest shard;
grouped collectives cost the same for all ratios, and more than padded even ones.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks.papers.bands import MODELLED
from benchmarks.papers.hap.figures import FIGURE_2
from benchmarks.papers.rows import points_of, ratio_row
from benchmarks.papers.table import Kind, Row
from dyorc.planner.cluster import Cluster, CollectiveCost, CostLine, published
from dyorc.planner.plan import Algorithm, CollectiveKind
from dyorc.planner.plan.layout import shares


def with_largest(num_bytes: int, num_ranks: int, largest_ratio: float) -> tuple[int, ...]:
    """Divides bytes so that the first rank has a given part of them, and the others the rest evenly."""
    return shares(num_bytes, [largest_ratio, *[(1 - largest_ratio) / (num_ranks - 1)] * (num_ranks - 1)])


def grouped_crossover(
    cluster: Cluster, num_bytes: int, *, kind: CollectiveKind = CollectiveKind.ALL_GATHER, ranks: Sequence[int] = ()
) -> float:
    """Returns the part of the bytes that the largest shard has where grouped and padded collectives cost the same.

    Below it padded ones are faster, above it grouped ones. HAP, figure 4, measured 0.46 for 4 MB on four A100.

    Args:
        cluster: Where.
        num_bytes: Of the whole tensor.
        kind: `all_gather` or `reduce_scatter`.
        ranks: Who takes part; all, if empty.

    Returns:
        From 1/n to 1, if one is not faster everywhere: then 0 if it is the grouped one, and infinity if it is the padded one.
    """
    group = ranks or range(cluster.num_ranks)
    even = [num_bytes // len(group)] * len(group)
    grouped_s = cluster.collective_s(kind, Algorithm.GROUPED, group, even)
    # a padded collective costs the same as a grouped one at these driving bytes: n times the largest shard
    driving = min(
        (grouped_s - line.latency_s) / line.s_per_byte for line in cluster.collective_lines(kind, Algorithm.PADDED, group)
    )
    ratio = driving / (len(group) * num_bytes)
    if ratio < 1 / len(group):
        return 0.0
    return ratio if ratio <= 1 else float("inf")


def division_s(cluster: Cluster, flops: float, num_bytes: int, ratios: Sequence[float]) -> float:
    """Returns how long a division of work takes that computes and then gathers a tensor, both in the same ratios.

    Args:
        cluster: Where.
        flops: Of all the work, in the cluster's own convention of counting.
        num_bytes: Of the whole tensor.
        ratios: Of the ranks; they add up to 1.
    """
    computing_s = max(flops * ratio / device.flops_per_s for ratio, device in zip(ratios, cluster.devices, strict=True))
    pieces = shares(num_bytes, ratios)
    gathering_s = cluster.collective_s(CollectiveKind.ALL_GATHER, Algorithm.PADDED, range(cluster.num_ranks), pieces)
    return computing_s + gathering_s


def proportional_crossover(cluster: Cluster, num_bytes: int) -> float:
    """Returns the ratio of computation to communication where shares proportional to speed are as fast as even ones.

    Both are those of even shares. Below it even shares are faster, above it proportional ones. HAP, figure 2, measured about
    0.85. Even shares' computation is longer by `slower` times, proportional shares' communication by what the largest shard
    adds; both grow evenly in the work, so two points say where they meet.

    Args:
        cluster: Where; its devices must differ in speed.
        num_bytes: Of the tensor that is gathered.
    """
    n = cluster.num_ranks
    even, proportional = [1 / n] * n, cluster.flops_ratios
    slowest = min(device.flops_per_s for device in cluster.devices)
    gather = CollectiveKind.ALL_GATHER, Algorithm.PADDED, range(n)
    even_s = cluster.collective_s(*gather, shares(num_bytes, even))
    proportional_s = cluster.collective_s(*gather, shares(num_bytes, proportional))
    saved = 1 - n * slowest / sum(device.flops_per_s for device in cluster.devices)  # of even shares' computation
    return (proportional_s - even_s) / even_s / saved


_SIZE = 4_000_000
_GATHER = CollectiveKind.ALL_GATHER


def figures_2_and_4() -> Iterator[Row]:
    """Yields the rows of both."""
    rates = published("hap-2a100-2p100")
    both = _with_latency(rates)
    what = "computation / communication where proportional shares begin to be faster than even ones"
    yield ratio_row(
        "figure 2",
        f"{what}: calibrated rates and figure 4's latency",
        0.85,
        proportional_crossover(both, _SIZE),
        note="the calibration has no latencies; a latency is paid whatever the shares, and moves the point below 1",
    )
    yield ratio_row(
        "figure 2",
        f"{what}: calibrated rates alone",
        0.85,
        proportional_crossover(rates, _SIZE),
        note="without a latency, devices of two speeds in equal number meet at exactly 1, whatever the speeds",
    )
    points = points_of("even / proportional shares by computation / communication", [ratio for ratio, _, _ in FIGURE_2])
    for ratio, proportional_ms, even_ms in FIGURE_2:
        yield ratio_row(
            "figure 2",
            f"even / proportional shares at {ratio:g}",
            even_ms / proportional_ms,
            _gain(both, ratio),
            band=MODELLED,
            note="calibrated rates and figure 4's latency",
            point=points[ratio],
        )
    yield ratio_row(
        "figure 4",
        "part of the largest shard where grouped all-gathers begin to be faster",
        0.46,
        grouped_crossover(published("hap-figure-4"), _SIZE),
        kind=Kind.FITTED,
        note="costs fitted to the same figure, so this checks the model and not the measurement",
    )


def _with_latency(cluster: Cluster) -> Cluster:
    """The cluster, with the latency of figure 4's padded all-gather in its own."""
    latency_s = published("hap-figure-4").collective_lines(_GATHER, Algorithm.PADDED, range(4))[0].latency_s
    return replace(cluster, collectives=tuple(_slower(cost, latency_s) for cost in cluster.collectives))


def _slower(cost: CollectiveCost, latency_s: float) -> CollectiveCost:
    if (cost.kind, cost.algorithm) != (_GATHER, Algorithm.PADDED):
        return cost
    return replace(cost, lines=tuple(CostLine(latency_s, line.s_per_byte) for line in cost.lines))


def _gain(cluster: Cluster, ratio: float) -> float:
    n = cluster.num_ranks
    even = [1 / n] * n
    communication_s = cluster.collective_s(_GATHER, Algorithm.PADDED, range(n), [_SIZE // n] * n)
    flops = ratio * communication_s * n * min(device.flops_per_s for device in cluster.devices)
    return division_s(cluster, flops, _SIZE, even) / division_s(cluster, flops, _SIZE, cluster.flops_ratios)
