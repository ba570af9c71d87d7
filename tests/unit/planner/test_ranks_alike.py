"""Ranks that do the same are simulated once: each figure is the one that a simulation of every rank gives."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from dyorc.planner.cluster import Cluster, Device, Link, even_cluster, uneven_cluster
from dyorc.planner.plan import Plan, communicate_early
from dyorc.planner.planners import PLANNERS
from dyorc.planner.program import TensorProgram
from dyorc.planner.simulate import Simulation, simulate
from tests.unit.planner.examples import example

_BY_HAND = ("dp_even", "dp_proportional", "zero", "megatron", "expert_parallel")


def _machines(num_ranks: int, each: int, speeds: Sequence[float] = (1.0,)) -> Cluster:
    """Machines of several devices; their speeds take turns from machine to machine."""
    devices = tuple(
        Device(
            name="device",
            machine=f"machine {rank // each}",
            flops_per_s=1e9 * speeds[rank // each % len(speeds)],
            memory_bytes=16_000_000_000,
        )
        for rank in range(num_ranks)
    )
    inside = tuple(
        Link(source=name, target=name, bytes_per_s=1e9, latency_s=1e-6)
        for name in dict.fromkeys(device.machine for device in devices)
    )
    between = Link(source="", target="", bytes_per_s=1e8, latency_s=1e-5)
    return Cluster(name="machines", devices=devices, links=inside, between_all=between)


def _figures(simulation: Simulation) -> tuple[object, ...]:
    events = sorted((event.step, event.ranks, event.start_s, event.end_s, event.name) for event in simulation.events)
    return (
        simulation.total_s,
        simulation.busy_s,
        simulation.communication_s,
        simulation.overlap_s,
        simulation.peak_bytes,
        simulation.memory,
        events,
    )


def _assert_equal(plan: Plan, program: TensorProgram, cluster: Cluster) -> int:
    """Compares every figure, and returns how many ranks were simulated."""
    num_kinds = 0
    for order in (plan, communicate_early(plan)):
        for overlap in (True, False):
            folded = simulate(order, program, cluster, overlap=overlap)
            whole = simulate(order, program, cluster, overlap=overlap, is_folded=False)
            assert _figures(folded) == _figures(whole)
            assert len(set(whole.first_alike)) == cluster.num_ranks
            num_kinds = max(num_kinds, len(set(folded.first_alike)))
    return num_kinds


@pytest.mark.parametrize("name", _BY_HAND)
@pytest.mark.parametrize(
    ("cluster", "num_kinds"),
    [
        (even_cluster(4, flops_per_s=1e9), 1),
        (uneven_cluster([2, 1, 2, 1], flops_per_s=1e9), 4),
        (_machines(8, 2), 8),
        (_machines(8, 4, (2.0, 1.0)), 8),
    ],
    ids=["even", "uneven", "machines of two", "machines of four"],
)
def test_each_figure_is_that_of_the_whole_simulation(name: str, cluster: Cluster, num_kinds: int) -> None:
    program = example("gpt").program
    assert _assert_equal(PLANNERS[name](program, cluster), program, cluster) <= num_kinds


def test_equal_ranks_are_simulated_once() -> None:
    program, cluster = example("gpt").program, even_cluster(4, flops_per_s=1e9)
    folded = simulate(PLANNERS["dp_even"](program, cluster), program, cluster)
    assert folded.first_alike == (0, 0, 0, 0)
    whole = simulate(PLANNERS["dp_even"](program, cluster), program, cluster, is_folded=False)
    assert len(folded.tasks) < len(whole.tasks) / 2


def test_microbatches_of_equal_ranks() -> None:
    program, cluster = example("gpt").program, even_cluster(4, flops_per_s=1e9)
    assert _assert_equal(PLANNERS["hidup"](program, cluster, max_states=2), program, cluster) == 1


@pytest.mark.parametrize("each", [1, 2, 4], ids=["one device each", "two each", "four each"])
def test_groups_along_two_axes(each: int) -> None:
    """Groups of tensor parallelism and of data parallelism, which meet on machines."""
    program, cluster = example("gpt").program, _machines(8, each)
    plan = PLANNERS["megatron"](program, cluster, dp=4, tp=2)
    assert [axis.size for axis in next(iter(plan.meshes.values())).axes] == [4, 2]
    _assert_equal(plan, program, cluster)


def test_a_rank_whose_device_is_slower_is_no_other() -> None:
    program, cluster = example("gpt").program, even_cluster(4, flops_per_s=1e9)
    slower = replace(cluster, devices=(*cluster.devices[:3], replace(cluster.devices[3], flops_per_s=5e8)))
    plan = PLANNERS["dp_even"](program, cluster)
    assert simulate(plan, program, slower).first_alike == (0, 0, 0, 3)
    _assert_equal(plan, program, slower)
