"""HAP's figures 2 and 4: where even and proportional shares, and padded and grouped collectives, cost the same.

figure 4, measured there: 0.46         from its own points 0.47, from the calibration of 2 A100 and 2 P100 0.40
figure 2, measured there: about 0.85   from that calibration 1.00, and 0.88 with the latency that figure 4 implies
"""

from dataclasses import replace
from itertools import pairwise
from math import inf

import pytest

from benchmarks.papers.hap.crossovers import division_s, grouped_crossover, proportional_crossover, with_largest
from dyorc.planner.cluster import Cluster, CollectiveCost, CostLine, even_cluster, published
from dyorc.planner.cluster.collectives import fitted_line
from dyorc.planner.cluster.published import HAP_FIGURE_4
from dyorc.planner.plan import Algorithm, CollectiveKind

_SIZE = 4_000_000
_AG = CollectiveKind.ALL_GATHER


def _with_latency(cluster: Cluster, latency_s: float) -> Cluster:
    costs = tuple(
        replace(cost, lines=tuple(CostLine(latency_s, line.s_per_byte) for line in cost.lines)) for cost in cluster.collectives
    )
    return replace(cluster, collectives=costs)


@pytest.mark.parametrize(
    ("name", "expected"), [("hap-figure-4", 0.466), ("hap-2a100-2p100", 0.399), ("hap-default", 0.259), ("hap-8-machines", 0.185)]
)
def test_grouped_collectives_pay_from_some_largest_shard_on(name: str, expected: float) -> None:
    cluster = published(name)
    ranks = range(cluster.num_ranks)
    found = grouped_crossover(cluster, _SIZE)
    assert found == pytest.approx(expected, abs=0.001)
    for largest, better in [(found - 0.02, Algorithm.PADDED), (found + 0.02, Algorithm.GROUPED)]:
        pieces = with_largest(_SIZE, len(ranks), max(largest, 1 / len(ranks)))
        costs = {a: cluster.collective_s(_AG, a, ranks, pieces) for a in (Algorithm.PADDED, Algorithm.GROUPED)}
        assert min(costs, key=costs.__getitem__) is better


def test_the_fitted_costs_follow_figure_4() -> None:
    cluster = published("hap-figure-4")
    errors = [
        cluster.collective_s(_AG, algorithm, range(4), with_largest(_SIZE, 4, ratio)) / (_SIZE / (rate * 1e9)) - 1
        for ratio, rates in HAP_FIGURE_4.items()
        for algorithm, rate in zip((Algorithm.PADDED, Algorithm.GROUPED), rates, strict=True)
    ]
    assert max(map(abs, errors)) < 0.16
    assert sum(map(abs, errors)) / len(errors) < 0.05


def test_proportional_shares_pay_from_some_ratio_of_computation_on() -> None:
    plain = published("hap-2a100-2p100")
    figure_4 = published("hap-figure-4").collective_lines(_AG, Algorithm.PADDED, range(4))[0]
    cluster = _with_latency(plain, figure_4.latency_s)
    # without latency, two speeds in equal number meet at 1 whatever they are
    assert proportional_crossover(plain, _SIZE) == pytest.approx(1.0)
    found = proportional_crossover(cluster, _SIZE)
    assert found == pytest.approx(0.883, abs=0.001)
    even, size = [0.25] * 4, _SIZE
    communication_s = cluster.collective_s(_AG, Algorithm.PADDED, range(4), [size // 4] * 4)
    slowest = min(device.flops_per_s for device in cluster.devices)
    gains: list[float] = []
    for ratio in (0.22, 0.37, found, 1.29, 1.73, 2.42):
        flops = ratio * communication_s * slowest * 4
        gains.append(division_s(cluster, flops, size, even) / division_s(cluster, flops, size, cluster.flops_ratios))
    assert gains[0] < gains[1] < gains[2] == pytest.approx(1.0)
    assert all(one < other for one, other in pairwise(gains))
    # the figure has 42.5 to 51.7 ms at 0.22, and 97.8 to 88.3 at 2.42
    assert gains[0] == pytest.approx(42.5 / 51.7, abs=0.1)
    assert gains[-1] == pytest.approx(97.8 / 88.3, abs=0.15)


def test_where_grouped_collectives_are_always_or_never_faster() -> None:
    fast, slow = (
        CollectiveCost(kind=_AG, algorithm=algorithm, lines=(CostLine(0, cost),), devices_by_machine=(1, 1))
        for algorithm, cost in ((Algorithm.PADDED, 1e-9), (Algorithm.GROUPED, 3e-9))
    )
    cluster = replace(even_cluster(2), collectives=(fast, slow))
    assert grouped_crossover(cluster, _SIZE) == inf
    swapped = (replace(fast, lines=slow.lines), replace(slow, lines=fast.lines))
    assert grouped_crossover(replace(cluster, collectives=swapped), _SIZE) == 0.0


def test_lines_are_fitted_without_negative_latency() -> None:
    assert fitted_line([(x, 2.0 + 3 * x) for x in (1.0, 5.0, 100.0)]) == CostLine(pytest.approx(2.0), pytest.approx(3.0))
    assert fitted_line([(x, 3 * x - 1) for x in (1.0, 5.0, 100.0)]).latency_s == 0.0
    assert fitted_line([(1.0, 2.0), (1.0, 2.0)]) == CostLine(2.0, 0.0)
