"""Joint plans compute what the program computes, searches find the optimum where all can be tried, shares are the best ones."""

from dataclasses import replace
from functools import cache
from itertools import product

import pytest

from dyorc.planner.cluster import Interface, even_cluster, uneven_cluster
from dyorc.planner.plan import SearchEnd, Transfer
from dyorc.planner.planners.joint.bandwidth import Capacities, CriticalPathGraph, by_tangents, fixed_point
from dyorc.planner.planners.joint.heuristics import PlacementProblem, anneal, best_of_random, best_of_simple
from dyorc.planner.planners.joint.interface_limits import network_of, rates_of
from dyorc.planner.planners.joint.list_schedule import LinkModel
from dyorc.planner.planners.joint.plan import joint
from dyorc.planner.planners.joint.proved_placement import solve
from dyorc.planner.planners.joint.reduce import reduce_work
from dyorc.planner.planners.joint.schedule_plan import build_plan
from dyorc.planner.planners.joint.work_graph import Item, Parcel, WorkGraph, work_of
from dyorc.planner.simulate import simulate
from dyorc.planner.verify import verify
from tests.unit.planner.examples import Example, example
from tests.unit.planner.planned import assert_equal_to_one_device

_SLOW = {"flops_per_s": 1e8, "bytes_per_s": 1e8, "latency_s": 1e-5}


def _work(seconds: list[float], sent: list[tuple[int, tuple[int, ...], int]], num_ranks: int = 2) -> WorkGraph:
    """Items with homes of their own."""
    return WorkGraph(
        items=tuple(Item(nodes=(str(i),), seconds=(s,) * num_ranks, home=i) for i, s in enumerate(seconds)),
        parcels=tuple(Parcel(*each) for each in sent),
        home_bytes=(0,) * len(seconds),
        shared=frozenset(),
    )


def _fan(sizes: list[int]) -> tuple[WorkGraph, tuple[int, ...]]:
    """The first item sends each other one its own bytes; each is on a machine of its own."""
    num = len(sizes) + 1
    sent = [(0, (index + 1,), size) for index, size in enumerate(sizes)]
    return _work([1.0, *[0.0] * len(sizes)], sent, num), tuple(range(num))


@cache
def _example() -> Example:
    return example("gpt")


@pytest.mark.parametrize("is_reduced", [False, True])
def test_any_placement_computes_what_the_program_computes(is_reduced: bool) -> None:
    program, cluster = _example().program, uneven_cluster([3, 1, 1], **_SLOW)
    before = work_of(program, cluster)
    reduction = reduce_work(program, cluster, 24, before)
    assert len(reduction.work.items) < len(before.items) / 3
    after_s, before_s = (sum(item.seconds[0] for item in work.items) for work in (reduction.work, before))
    assert after_s == pytest.approx(before_s)
    work = reduction.work if is_reduced else before
    found = best_of_random(PlacementProblem(work, LinkModel(cluster)), 1, seed=1)
    plan = build_plan(program, cluster, work, found)
    assert_equal_to_one_device(_example(), plan)
    assert simulate(plan, program, cluster).total_s == pytest.approx(found.total_s, rel=0.1)


def test_what_is_made_is_sent_at_once() -> None:
    """Ranks do their steps in order: a transfer must not stand behind what its sender computes next."""
    program, cluster = _example().program, even_cluster(3, **_SLOW)
    work = work_of(program, cluster)
    plan = build_plan(program, cluster, work, best_of_random(PlacementProblem(work, LinkModel(cluster)), 1, seed=2))
    made = {tensor: number for number, step in enumerate(plan.steps) for tensor in step.outputs}
    transfers = [(number, step) for number, step in enumerate(plan.steps) if isinstance(step, Transfer)]
    assert len(transfers) > 10
    for number, step in transfers:
        between = plan.steps[made[step.source] + 1 : number]
        assert all(isinstance(other, Transfer) for other in between)


def test_plans_are_proved_and_no_worse_than_without_limits() -> None:
    program, cluster = _example().program, even_cluster(3, **_SLOW)
    plan = joint(program, cluster, max_items=12, max_work=0.05, anneal_steps=30)
    assert verify(program, plan).is_proved
    without = joint(program, cluster, max_items=12, max_work=0.05, anneal_steps=30, limits=False)
    assert without.network is None
    assert plan.provenance.cost_s is not None
    assert without.provenance.cost_s is not None
    assert plan.provenance.cost_s <= without.provenance.cost_s
    assert simulate(plan, program, cluster).total_s == plan.provenance.cost_s


def test_interrupted_it_keeps_the_best() -> None:
    def interrupt(done_ratio: float, cost_s: float | None) -> None:
        if cost_s is not None:
            raise KeyboardInterrupt

    program, cluster = _example().program, even_cluster(2, **_SLOW)
    plan = joint(program, cluster, progress=interrupt)
    assert plan.provenance.ended is SearchEnd.INTERRUPTED
    assert simulate(plan, program, cluster).total_s == plan.provenance.cost_s


def test_the_solver_finds_the_best_of_all_placements() -> None:
    work = _work(
        [2.0, 3.0, 1.0, 2.5, 1.5, 2.0],
        [(0, (1, 2, 3), 400), (1, (4,), 900), (2, (4,), 100), (3, (5,), 200), (4, (5,), 300)],
    )
    problem = PlacementProblem(work, LinkModel(uneven_cluster([1, 1], bytes_per_s=1000, latency_s=0.1)))
    every = [problem.evaluate(placement).total_s for placement in product(range(2), repeat=6)]
    begin = best_of_simple(problem)
    annealed = anneal(problem, begin, 300, seed=0)
    solved = solve(problem, begin, 5.0)
    assert solved.is_optimal
    assert solved.placed.total_s <= min(every) + 1e-9 <= annealed.total_s + 1e-9
    assert solved.bound_s == pytest.approx(solved.placed.total_s, rel=1e-3)


def test_what_all_wait_for_is_divided_by_volume() -> None:
    """All begin together and the last counts: the best rates are in the ratio of the bytes, and all end together."""
    work, placement = _fan([4000, 1000, 3000])
    cluster = even_cluster(4, bytes_per_s=1000, latency_s=0)
    placed = PlacementProblem(work, LinkModel(cluster)).evaluate(placement)
    capacities = Capacities(cluster)
    division = by_tangents(CriticalPathGraph(work, placed.schedule, LinkModel(cluster)), capacities)
    assert division.total_s == pytest.approx(1 + 8, rel=2e-3)
    assert division.bound_s == pytest.approx(1 + 8, rel=2e-3)
    rates = [division.rates[0, other] for other in (1, 2, 3)]
    assert rates == pytest.approx([500, 125, 375], rel=0.02)


def test_the_fixed_point_comes_near_the_best_and_never_below_the_bound() -> None:
    work = _work(
        [1.0, 2.0, 0.5, 4.0, 1.0, 1.0],
        [(0, (1, 2, 3), 500), (1, (3,), 2000), (1, (4,), 300), (2, (4, 5), 800), (3, (5,), 100)],
        num_ranks=3,
    )
    cluster = even_cluster(3, bytes_per_s=1000, latency_s=0.01)
    for placement in [(0, 1, 2, 0, 1, 2), (0, 0, 1, 2, 2, 1), (2, 1, 0, 2, 0, 0)]:
        placed = PlacementProblem(work, LinkModel(cluster)).evaluate(placement)
        timeline, capacities = CriticalPathGraph(work, placed.schedule, LinkModel(cluster)), Capacities(cluster)
        near, best = fixed_point(timeline, capacities), by_tangents(timeline, capacities)
        assert best.bound_s <= best.total_s <= near.total_s <= timeline.total_s(capacities.even_rates())
        assert best.total_s <= best.bound_s * 1.002
        assert near.total_s <= best.total_s * 1.1


def test_shares_and_placement_at_once_are_no_worse_than_in_turns() -> None:
    work = _work([1.0, 2.0, 0.5, 2.0, 1.0], [(0, (1, 2, 3), 700), (1, (4,), 900), (2, (4,), 400), (3, (4,), 400)], num_ranks=3)
    cluster = even_cluster(3, bytes_per_s=1000, latency_s=0.01)
    problem = PlacementProblem(work, LinkModel(cluster, Capacities(cluster).even_rates()))
    begin = best_of_simple(problem)
    solved = solve(problem, begin, 20.0, num_shares=8)
    assert solved.rates is not None
    again = PlacementProblem(work, LinkModel(cluster, solved.rates)).evaluate(solved.placed.placement)
    assert solved.placed.total_s <= min(begin.total_s, again.total_s + 1e-9)
    for machine in range(3):
        assert sum(rate for pair, rate in solved.rates.items() if pair[0] == machine) <= 1000 * (1 + 2 / 16) + 1e-6


def test_what_does_not_fit_one_interface_goes_through_several() -> None:
    cluster = even_cluster(3, bytes_per_s=3000)
    interfaces = [Interface(machine=m, name=f"eth{i}", bytes_per_s=1000.0 * (1 + i)) for m in cluster.machines for i in (0, 1)]
    cluster = replace(cluster, interfaces=tuple(interfaces))
    rates = {(0, 1): 2500.0, (0, 2): 400.0, (1, 2): 900.0}
    network = network_of(rates, cluster, is_strict=True)
    assert rates_of(network, cluster) == pytest.approx(rates)
    several = [limit for limit in network.limits if (limit.source, limit.target) == ("machine-0", "machine-1")]
    assert [(limit.interface, limit.bytes_per_s) for limit in several] == [("eth0", 500.0), ("eth1", 2000.0)]
    for interface in interfaces:
        used = sum(one.bytes_per_s for one in network.of_source(interface.machine) if one.interface == interface.name)
        assert used <= interface.bytes_per_s
