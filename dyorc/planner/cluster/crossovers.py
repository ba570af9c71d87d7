"""Where one way of dividing work begins to be better than another: what figures 2 and 4 of HAP (EuroSys'24) show.

Both follow from costs alone: shares proportional to speed shorten the computation and lengthen padded collectives, whose cost
grows with the largest shard; grouped collectives cost the same for all ratios, and more than padded even ones.
"""

from collections.abc import Sequence

from dyorc.planner.cluster.cluster import Cluster
from dyorc.planner.plan.layout import shares
from dyorc.planner.plan.steps import Algorithm, CollectiveKind


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
