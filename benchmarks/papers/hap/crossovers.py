"""Figures 2 and 4: where one way of dividing work begins to be better than another, from the costs of collectives alone."""

from collections.abc import Iterator
from dataclasses import replace

from benchmarks.papers.bands import MODELLED
from benchmarks.papers.hap.figures import FIGURE_2
from benchmarks.papers.rows import points_of, ratio_row
from benchmarks.papers.table import Kind, Row
from dyorc.planner.cluster import Cluster, CollectiveCost, CostLine, published
from dyorc.planner.cluster.crossovers import division_s, grouped_crossover, proportional_crossover
from dyorc.planner.plan import Algorithm, CollectiveKind

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
