"""What planners ask of a cluster about collectives: the faster algorithm, and how seconds grow with the largest share."""

from collections.abc import Sequence

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Algorithm, CollectiveKind

_SPLIT = (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL)


def best_algorithm(cluster: Cluster, kind: CollectiveKind, pieces: Sequence[int]) -> tuple[float, Algorithm]:
    """The seconds of a collective of all ranks by the algorithm that is faster for pieces of so many bytes: padded or grouped."""
    ranks = range(len(pieces))
    if kind in (CollectiveKind.SLICE, CollectiveKind.MASK):
        return 0.0, Algorithm.PADDED
    padded = cluster.collective_s(kind, Algorithm.PADDED, ranks, pieces)
    if kind in (CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_TO_ALL):
        return padded, Algorithm.PADDED
    grouped = cluster.collective_s(kind, Algorithm.GROUPED, ranks, pieces)
    return min((padded, Algorithm.PADDED), (grouped, Algorithm.GROUPED))


def line_of_largest_share(
    cluster: Cluster, kind: CollectiveKind, algorithm: Algorithm, num_bytes: int
) -> tuple[float, float] | None:
    """The seconds of a collective of all ranks: a constant, and a factor of the largest share, which is 1 at most.

    Returns:
        None if the shares make no difference: grouped collectives, and collectives that divide nothing.
    """
    is_grouped = algorithm is Algorithm.GROUPED and kind is not CollectiveKind.ALL_TO_ALL
    if kind not in _SPLIT or is_grouped:
        return None
    ranks = range(cluster.num_ranks)
    lines = cluster.collective_lines(kind, algorithm, ranks)
    line = max(lines, key=lambda line: line.latency_s + line.s_per_byte * num_bytes, default=None)
    return (line.latency_s, line.s_per_byte * len(ranks) * num_bytes) if line else (0.0, 0.0)
