"""HiDup's plans compute what the program computes, and its search finds the optimum where everything can be tried."""

from functools import cache
from random import Random

import pytest
import torch

from benchmarks.papers.exhaustive_duplex import StageTimes, duplex_s, exhaustive_duplex_s
from benchmarks.papers.hidup.search_figures import placements_by_bandwidth, planning_seconds, quality_under_wrong_costs
from dyorc.errors import PlanError
from dyorc.planner.cluster.small import even_cluster, uneven_cluster
from dyorc.planner.plan import Apply, Collective, CollectiveKind, SearchEnd
from dyorc.planner.planners import PLANNERS
from dyorc.planner.planners.hidup import Duplex, hidup
from dyorc.planner.planners.hidup.clock import Clock
from dyorc.planner.planners.hidup.pareto_search import ParetoSearch
from dyorc.planner.planners.strategy_assignment import assignment_of
from dyorc.planner.program import REPLICATE, Shard, TensorProgram, capture
from tests.unit.planner.examples import example
from tests.unit.planner.planned import assert_equal_to_one_device
from tests.unit.planner.tiny import Tiny

_RATIOS = [(1.0, 1.0), (3.0, 1.0), (1.0, 0.0), (1.0, 1.0, 1.0, 1.0), (3.0, 1.0, 0.0, 1.0)]


@pytest.mark.parametrize("ratios", _RATIOS, ids=str)
@pytest.mark.parametrize("name", ["gpt", "net"])
def test_two_interleaved_microbatches_compute_what_the_program_computes(name: str, ratios: tuple[float, ...]) -> None:
    found = example(name)
    cluster = uneven_cluster([max(ratio, 1.0) for ratio in ratios], flops_per_s=1e9, bytes_per_s=1e9)
    plan = hidup(found.program, cluster, ratios=ratios, max_states=4)
    assert_equal_to_one_device(found, plan)


@cache
def _tiny(num_out: int) -> TensorProgram:
    return capture(Tiny(num_out), [torch.zeros(8, 8)])


@pytest.mark.parametrize("seed", range(4))
def test_the_search_finds_the_optimum_of_the_equations(seed: int) -> None:
    draw = Random(seed)
    factors: dict[tuple[str, float], float] = {}

    def wrong(kind: str, cost_s: float) -> float:
        return cost_s * factors.setdefault((kind, cost_s), draw.uniform(0.2, 3.0))

    duplex = Duplex(_tiny(1), even_cluster(2, flops_per_s=1e7, bytes_per_s=10.0 ** (5 + seed), latency_s=1e-6), {}, wrong)
    costs = duplex.costs((1.0, 1.0))
    assert ParetoSearch(duplex.items, costs).run().cost_s == pytest.approx(exhaustive_duplex_s(duplex.items, costs))


def test_a_clock_tells_the_time_of_the_printed_equations() -> None:
    stages = [StageTimes(0.0, 0.0, 0.0, 3.0, 1.0), StageTimes(0.5, 2.0, 0.0, 1.0, 0.0), StageTimes(0.0, 4.0, 1.0, 2.0, 2.5)]
    clock = Clock()
    for index, (once, both, late, comp, leaves) in enumerate(stages):
        clock = (clock.open_stage() if index else clock).after(once + both, both + late, comp)._replace(waiting_s=leaves)
        if index:
            continue
        assert clock.psi_s == 2 * comp + leaves
    assert clock.psi_s == duplex_s(stages)


@pytest.mark.parametrize("planner", ["megatron", "zero", "dp_even"])
def test_a_search_never_loses_the_program_it_begins_with(planner: str) -> None:
    program, cluster = example("gpt").program, even_cluster(2, flops_per_s=1e9, bytes_per_s=1e8)
    duplex = Duplex(program, cluster, {})
    assignment = assignment_of(PLANNERS[planner](program, cluster), duplex.halves.strategies)
    assert assignment
    known = duplex.time_assignment(assignment, (1.0, 1.0))
    batch = frozenset((duplex.halves.batch,))
    found = ParetoSearch(duplex.items, duplex.costs((1.0, 1.0)), max_states=1, axes=batch, known=known).run()
    assert found.cost_s <= known.cost_s * (1 + 1e-12)


def test_more_bytes_per_second_are_never_slower() -> None:
    program = example("gpt").program
    costs = [_cost_s(program, 10.0**exponent) for exponent in (7, 8, 9, 10)]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > costs[-1]


def _cost_s(program: TensorProgram, bytes_per_s: float) -> float:
    found = hidup(program, even_cluster(2, flops_per_s=1e9, bytes_per_s=bytes_per_s), max_states=4).provenance.cost_s
    assert found
    return found


def test_one_microbatch_communicates_while_the_other_computes() -> None:
    """Between an exchange of one half and what reads its result, the other half computes."""
    program = example("gpt").program
    cluster = even_cluster(2, flops_per_s=1e9, bytes_per_s=1e9)
    layer = "layers.0.feed_forward"
    duplex = Duplex(program, cluster, {f"{layer}.up.weight": Shard(0), f"{layer}.down.weight": Shard(1)})
    found = [*duplex.searches((1.0, 1.0), 4)][-1]
    plan, flat = (duplex.plan(found, (1.0, 1.0), is_interleaved=each) for each in (True, False))
    assert plan.provenance.cost_s
    assert flat.provenance.cost_s
    assert plan.provenance.cost_s < flat.provenance.cost_s
    hidden = 0
    for index, step in enumerate(plan.steps):
        if isinstance(step, Collective) and step.axis == "rank" and step.part == 0:
            following = [each for each in plan.steps[index + 1 :] if isinstance(each, Apply)]
            hidden += following[0].part == 1
    assert hidden


def test_hints_fix_placements() -> None:
    program = example("gpt").program
    cluster = even_cluster(2, flops_per_s=1e9, bytes_per_s=1e9)
    name = "layers.0.feed_forward.up.weight"
    for hint in (Shard(0), Shard(1), REPLICATE):
        plan = hidup(program, cluster, hints={name: hint}, max_states=4)
        for tensor in plan.sources[name]:
            placement = plan.tensors[tensor].layout[1]
            assert type(placement) is type(hint)
            assert not isinstance(hint, Shard) or (isinstance(placement, Shard) and placement.dim == hint.dim)
    with pytest.raises(PlanError, match="no such value"):
        hidup(program, cluster, hints={"nothing": REPLICATE})
    with pytest.raises(PlanError, match=r"no strategy of .* makes _log_softmax as S1"):
        hidup(program, cluster, hints={"_log_softmax": Shard(1)})


def test_parameters_are_communicated_once() -> None:
    program = example("gpt").program
    cluster = even_cluster(2, flops_per_s=1e9, bytes_per_s=1e9)
    name = "layers.0.feed_forward.up.weight"
    plan = hidup(program, cluster, hints={name: Shard(0)}, max_states=4)
    gradient = program.gradients[name]
    for step in plan.steps:
        if isinstance(step, Collective) and plan.tensors[step.source].value in (name, gradient) and step.axis == "rank":
            assert step.part is None, step
    assert any(
        isinstance(step, Collective) and step.axis == "microbatch" and step.kind is CollectiveKind.ALL_REDUCE
        for step in plan.steps
    )


def test_the_same_input_gives_the_same_plan() -> None:
    program = example("net").program
    one, other = (hidup(program, uneven_cluster([3, 1]), ratios=(3.0, 1.0), max_states=8) for _ in range(2))
    assert one.steps == other.steps
    assert one.provenance.notes == other.provenance.notes


def test_an_interrupted_search_keeps_its_best_plan() -> None:
    program = example("net").program

    def interrupt(done: float, best_s: float | None) -> None:
        if best_s is not None:
            raise KeyboardInterrupt

    plan = hidup(program, even_cluster(2, flops_per_s=1e9), max_states=4, progress=interrupt)
    assert plan.provenance.ended is SearchEnd.INTERRUPTED

    def at_once(done: float, best_s: float | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hidup(program, even_cluster(2), max_states=4, hints={program.parameters[0]: REPLICATE}, progress=at_once)


def test_a_batch_that_cannot_be_halved_is_refused() -> None:
    program = capture(Tiny(2), [torch.zeros(3, 8)])
    with pytest.raises(PlanError, match="has a batch of 3: two interleaved microbatches need a batch that can be halved"):
        hidup(program, even_cluster(2))


def test_figures_of_the_paper_come_from_the_planner() -> None:
    program, cluster = example("net").program, even_cluster(2, flops_per_s=1e9, bytes_per_s=1e9)
    quality = quality_under_wrong_costs(program, cluster, max_states=4)
    assert len(quality) == 6
    assert all(0.5 < ratio < 2.0 for ratio in quality.values())
    placed = placements_by_bandwidth(program, cluster, [0.01, 100.0], max_states=4)
    num_parameters = len(program.parameters)
    assert all(each.num_replicated + each.num_sharded == num_parameters for each in placed.values())
    seconds = planning_seconds({1: lambda: program}, cluster)
    assert seconds[1] > 0
