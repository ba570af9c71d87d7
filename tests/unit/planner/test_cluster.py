"""What computing and communicating costs on clusters, counted by hand."""

from dataclasses import replace

import pytest

from dyorc.errors import PlanError
from dyorc.planner.cluster import (
    Cluster,
    CollectiveCost,
    CostLine,
    Device,
    Link,
    even_cluster,
    links_between,
    published,
    published_names,
    uneven_cluster,
)
from dyorc.planner.plan import Algorithm, CollectiveKind
from dyorc.planner.program.costs import NodeCost

_AG, _AR = CollectiveKind.ALL_GATHER, CollectiveKind.ALL_REDUCE
_RS, _A2A = CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL
_PADDED, _GROUPED, _RING = Algorithm.PADDED, Algorithm.GROUPED, Algorithm.RING


def test_an_operation_takes_as_long_as_its_arithmetic_or_its_memory_and_a_share_of_it_that_share() -> None:
    cluster = even_cluster(1, flops_per_s=100)
    cost = NodeCost(flops=50, read_bytes=300, written_bytes=100)
    assert cluster.compute_s(cost, 0) == 0.5
    assert cluster.compute_s(cost, 0, 0.25) == 0.125
    slow = replace(cluster, devices=(replace(cluster.devices[0], memory_bytes_per_s=200, overhead_s=1.0),))
    assert slow.compute_s(cost, 0, 0.5) == 2.0
    assert slow.compute_s(cost, 0, 0.0) == 0.0


def test_speeds_that_count_three_flops_for_a_multiply_add_are_read_so() -> None:
    cluster = replace(even_cluster(1, flops_per_s=300), flops_per_multiply_add=3)
    assert cluster.compute_s(NodeCost(flops=2 * 100, read_bytes=0, written_bytes=0), 0) == 1.0


@pytest.mark.parametrize(
    ("kind", "algorithm", "pieces", "expected"),
    [
        (_AR, _PADDED, [1000] * 4, 6 * 1 + 1.5 * 1000 / 100),
        (_AG, _PADDED, [100, 300, 0, 200], 3 * 1 + 3 * 300 / 100),
        (_AG, _RING, [100, 300, 0, 200], 3 * 1 + 3 * 300 / 100),
        (_AG, _GROUPED, [100, 300, 0, 200], 4 * 1 + 600 / 100),
        (_RS, _PADDED, [100, 300, 0, 200], 3 * 1 + 3 * 300 / 100),
        (_RS, _GROUPED, [100, 300, 0, 200], 4 * 1 + 600 / 100),
        (_A2A, _PADDED, [400] * 4, 3 * 1 + 300 / 100),
        (CollectiveKind.SLICE, _PADDED, [400] * 4, 0),
    ],
)
def test_collectives_over_links_of_100_bytes_and_1_s_latency(
    kind: CollectiveKind, algorithm: Algorithm, pieces: list[int], expected: float
) -> None:
    cluster = even_cluster(4, bytes_per_s=100, latency_s=1)
    assert cluster.collective_s(kind, algorithm, range(4), pieces) == pytest.approx(expected)
    assert cluster.collective_s(kind, algorithm, [2], pieces[:1]) == 0


def test_the_devices_of_a_machine_share_its_link_in_an_all_to_all() -> None:
    devices = tuple(Device(name="d", machine=machine, flops_per_s=1, memory_bytes=1) for machine in "aabb")
    links = tuple(
        Link(source=a, target=b, bytes_per_s=rate) for a, b, rate in [("a", "a", 1e6), ("b", "b", 1e6), ("a", "b", 100)]
    )
    cluster = Cluster(name="c", devices=devices, links=links)
    # each machine sends half of two shards of 400 bytes
    assert cluster.collective_s(_A2A, _PADDED, range(4), [400] * 4) == pytest.approx(4.0)
    assert cluster.collective_s(_AR, _PADDED, [0, 1], [1000] * 2) == pytest.approx(1e-3)
    assert cluster.transfer_s(1, 2, 50) == 0.5
    assert cluster.transfer_s(1, 1, 50) == 0


def test_what_was_measured_goes_before_what_links_say_and_is_rescaled_for_smaller_groups() -> None:
    measured = CollectiveCost(kind=_AG, lines=(CostLine(0.5, 1 / 200),), devices_by_machine=(1, 1, 1, 1))
    cluster = replace(even_cluster(4, bytes_per_s=100, latency_s=1), collectives=(measured,))
    assert cluster.collective_s(_AG, _PADDED, range(4), [50] * 4) == pytest.approx(1.5)
    assert cluster.collective_s(_AG, _RING, range(4), [50] * 4) == pytest.approx(1.5)
    # half instead of three quarters of 200 bytes pass each link
    assert cluster.collective_s(_AG, _PADDED, [1, 3], [100] * 2) == pytest.approx(0.5 + 1.0 * 2 / 3)
    assert cluster.collective_s(_AG, _GROUPED, range(4), [50] * 4) == pytest.approx(4 + 2)  # from the links
    assert cluster.digest != even_cluster(4, bytes_per_s=100, latency_s=1).digest


def test_a_cluster_with_a_hole_is_refused() -> None:
    whole = even_cluster(3)
    links = links_between(["machine-0", "machine-1"], 1e9) + links_between(["machine-1", "machine-2"], 1e9)
    with pytest.raises(PlanError, match="no link between machines machine-0 and machine-2"):
        replace(whole, links=links, between_all=None)
    with pytest.raises(PlanError, match="machine machine-1 has several devices, and no link inside it"):
        replace(whole, devices=(*whole.devices, whole.devices[1]))


@pytest.mark.parametrize("name", published_names())
def test_every_published_cluster_costs_more_for_more(name: str) -> None:
    cluster = published(name)
    ranks = range(cluster.num_ranks)
    for kind in (_AR, _AG, _RS, _A2A):
        for algorithm in Algorithm:
            small, large = (cluster.collective_s(kind, algorithm, ranks, [size] * len(ranks)) for size in (10**5, 10**7))
            assert 0 < small < large
    assert cluster.source
    assert len(cluster.digest) == 64


def test_published_rows_are_read_as_published() -> None:
    hap = published("hap-8-machines")
    assert [device.name for device in hap.devices] == ["V100"] * 2 + ["P100"] * 6
    assert hap.devices[0].flops_per_s / hap.devices[7].flops_per_s == pytest.approx(1.796, abs=5e-4)
    even, uneven = [10**6] * 8, [2 * 10**6, *[10**6] * 6, 0]
    assert hap.collective_s(_AG, _PADDED, range(8), even) == pytest.approx(8e6 / 815.4e6)
    assert hap.collective_s(_AG, _PADDED, range(8), uneven) == pytest.approx(16e6 / 815.4e6)
    assert hap.collective_s(_AG, _GROUPED, range(8), uneven) == pytest.approx(8e6 / 549.8e6)
    assert hap.collective_s(_AR, _PADDED, range(8), [10**7] * 8) == pytest.approx(10**7 / 476.8e6)
    larger = published("hap-8-machines", gpus_per_machine=8)
    assert larger.devices[2].flops_per_s == 8 * hap.devices[2].flops_per_s
    hidup = published("hidup-8x8")
    assert hidup.num_ranks == 64
    assert hidup.collective_s(_A2A, _PADDED, range(64), [10**6] * 64) == pytest.approx(1e-4 + 64e6 / 10701.2e6)
    assert published("tag-testbed").num_ranks == 16
    with pytest.raises(PlanError, match="unknown published cluster 'hap'; choose one of hap-8-machines, "):
        published("hap")


def test_tags_all_reduce_follows_its_measured_curve() -> None:
    """TAG's own fit, against the points that were fitted: between machines 1 MB in 789 us, 16 MB in 4788, 1 GB in 291205."""
    tag = published("tag-testbed")
    ranks = [0, 4]
    for megabytes, measured_us, error in [(16, 4788, 0.02), (1024, 291_205, 0.01)]:
        size = megabytes * 2**20
        assert tag.collective_s(_AR, _PADDED, ranks, [size] * 2) * 1e6 == pytest.approx(measured_us, rel=error)
    inside, between = (tag.collective_s(_AR, _PADDED, ranks, [2**30] * 2) for ranks in ([0, 1], [0, 4]))
    assert between / inside == pytest.approx(8000 / 2810)


def test_a_part_of_a_cluster_is_a_cluster() -> None:
    part = uneven_cluster([3, 1, 1]).restricted_to([0, 2])
    assert part.num_ranks == 2
    assert part.flops_ratios == (0.75, 0.25)
