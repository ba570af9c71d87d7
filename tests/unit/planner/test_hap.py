"""HAP: plans equal to one device, optimal where that can be tried, shares that a grid confirms, and a best plan at any time."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import nn

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster, even_cluster, uneven_cluster
from dyorc.planner.plan import Apply, Collective, Plan, Provenance, SearchEnd
from dyorc.planner.planners import PLANNERS
from dyorc.planner.planners.hap.form_costs import NEVER
from dyorc.planner.planners.hap.frontier import Frontier, solve_by_a_star
from dyorc.planner.planners.hap.problem import Pricing, SynthesisProblem, SynthesisSpace, alternatives_of
from dyorc.planner.planners.hap.ratios import ShareTerms, best_ratios, terms_of, total_s
from dyorc.planner.planners.hap.search_moves import moves_of
from dyorc.planner.planners.hap.synthesized_plan import build_plan, distributed_program
from dyorc.planner.planners.strategy_assignment import assignments_of
from dyorc.planner.program import REPLICATE, Placement, Shard, TensorProgram
from dyorc.planner.simulate import simulate
from tests.unit.planner.examples import Example, example, example_of
from tests.unit.planner.planned import assert_equal_to_one_device


def _cluster(*speeds: float) -> Cluster:
    return uneven_cluster(speeds, flops_per_s=1e9, bytes_per_s=1e9)


class _Linear(nn.Module):
    """A hidden layer, and then one that is as wide as is asked for."""

    def __init__(self, wide: int, num_layers: int = 2) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(wide, wide, bias=False) for _ in range(num_layers)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x) if len(self.layers) == 1 else torch.relu(layer(x))
        return x.sum()


def _linear(batch: int, wide: int, num_layers: int = 2) -> Example:
    torch.manual_seed(0)
    return example_of(_Linear(wide, num_layers), (torch.randn(batch, wide, dtype=torch.float64),))


@pytest.mark.parametrize("speeds", [(1, 1), (3, 1), (1, 1, 1, 1), (2, 1, 1, 0.01)], ids=str)
def test_a_plan_computes_what_the_program_computes_and_beats_what_people_do(speeds: tuple[float, ...]) -> None:
    found, cluster = example("net"), _cluster(*speeds)
    plan = PLANNERS["hap"](found.program, cluster)
    assert_equal_to_one_device(found, plan)
    assert plan.provenance.cost_s == simulate(plan, found.program, cluster).total_s
    for other in ("dp_even", "dp_proportional", "zero", "megatron"):
        assert plan.provenance.cost_s <= simulate(PLANNERS[other](found.program, cluster), found.program, cluster).total_s


def test_a_transformer_is_planned() -> None:
    found, cluster = example("gpt"), _cluster(3, 1)
    plan = PLANNERS["hap"](found.program, cluster, max_states=8, max_rounds=2)
    assert_equal_to_one_device(found, plan)
    by_hand = simulate(PLANNERS["dp_proportional"](found.program, cluster), found.program, cluster).total_s
    assert plan.provenance.cost_s is not None
    assert plan.provenance.cost_s <= by_hand


def _problem(program: TensorProgram, cluster: Cluster) -> SynthesisProblem:
    return Pricing(SynthesisSpace.of(program), cluster, cluster.flops_ratios).problem()


@pytest.mark.parametrize(("batch", "wide", "speeds"), [(4, 64, (1, 1)), (64, 4, (3, 1))], ids=str)
def test_frontier_search_and_a_star_find_the_optimum(batch: int, wide: int, speeds: tuple[float, ...]) -> None:
    problem = _problem(_linear(batch, wide, 1).program, _cluster(*speeds))
    best = min(_costs(problem))
    moves = moves_of(problem)
    found, other = Frontier(max_states=10**6).solve(moves), solve_by_a_star(moves)
    assert found.is_optimal
    assert found.cost == other.cost == best
    assert _cost(problem, found.numbers, {}) == _cost(problem, other.numbers, {}) == best


def test_frontier_search_and_a_star_agree_where_not_everything_can_be_tried() -> None:
    for batch, wide in ((8, 64), (64, 8), (16, 16)):
        moves = moves_of(_problem(_linear(batch, wide).program, _cluster(2, 1)))
        found = Frontier(max_states=10**6).solve(moves)
        assert found.is_optimal
        assert found.cost == solve_by_a_star(moves).cost


def _costs(problem: SynthesisProblem) -> list[int]:
    numbers = [range(len(choice.alternatives)) for choice in problem.choices]
    known: dict[tuple[str, int, int], int] = {}
    return [_cost(problem, each, known) for each in product(*numbers)]


def _cost(problem: SynthesisProblem, numbers: tuple[int, ...], known: dict[tuple[str, int, int], int]) -> int:
    """What alternatives cost, without any order: their own costs, and the cheapest way to all forms of each value."""
    made: dict[str, int] = {}
    asked: dict[str, int] = {}
    total = 0
    for choice, number in zip(problem.choices, numbers, strict=True):
        alternative = choice.alternatives[number]
        total += alternative.cost
        made |= alternative.outputs
        for name, form in alternative.inputs:
            asked[name] = asked.get(name, 0) | 1 << form
    for name, form in made.items():
        key = (name, form, asked.get(name, 0))
        if key not in known:
            known[key] = problem.forms[name].cost(1 << form, key[2])
        total += known[key]
    return min(total, NEVER)


class _Fat(nn.Module):
    """Much work with a small weight for each sample, and then a fat layer on what it comes to."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(64, 64, bias=False)
        self.fat = nn.Linear(64, 512, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.fat(torch.relu(self.body(x)).sum(1))).sum()


@pytest.mark.parametrize(("batch", "is_gathered"), [(8, True), (512, False)])
def test_a_fat_layer_gathers_factors_at_a_small_batch_and_adds_up_gradients_at_a_large_one(batch: int, is_gathered: bool) -> None:
    # of the fat layer, batch * (64 + 512) numbers can be gathered, or 64 * 512 added up, which costs twice as much for each
    cluster = uneven_cluster([1, 1], flops_per_s=2e10, bytes_per_s=1e9, latency_s=0)
    tokens = 256 if is_gathered else 4
    found = example_of(_Fat(), (torch.randn(batch, tokens, 64, dtype=torch.float64),))
    plan = PLANNERS["hap"](found.program, cluster, whole_parameters=True, adapt_ratios=False, overlap=False)
    assert_equal_to_one_device(found, plan)
    gradient = found.program.gradients["fat.weight"]
    forms = _forms(found, plan, gradient)
    summed = {plan.tensors[s.source].value for s in plan.steps if isinstance(s, Collective) and s.kind == "all_reduce"}
    assert (forms == [REPLICATE] * 3) == is_gathered  # sufficient factors: every rank computes the whole gradient
    assert (gradient in summed) != is_gathered
    assert any(isinstance(form, Shard) for form in _forms(found, plan, found.program.gradients["body.weight"]))


def _forms(found: Example, plan: Plan, value: str) -> list[Placement]:
    (product,) = (s for s in plan.steps if isinstance(s, Apply) and s.node == found.program.producers[value].name)
    return [plan.tensors[tensor].layout[0] for tensor in (*product.inputs, *product.outputs)]


def test_shares_are_those_of_a_fine_grid() -> None:
    found, cluster = example("net"), _cluster(3, 1)
    for ratios in ((0.75, 0.25), (0.5, 0.5)):
        terms = _terms(found.program, cluster, ratios)
        best = best_ratios(terms, cluster)
        assert best is not None
        grid = min(total_s(terms, (share / 1000, 1 - share / 1000)) for share in range(1001))
        assert best.total_s == pytest.approx(total_s(terms, best.ratios), rel=1e-6)
        assert grid * (1 - 1e-2) <= best.total_s <= grid * (1 + 1e-9)


def _terms(program: TensorProgram, cluster: Cluster, ratios: tuple[float, ...]) -> ShareTerms:
    space = SynthesisSpace.of(program)
    pricing = Pricing(space, cluster, ratios)
    problem = pricing.problem()
    found = distributed_program(space, problem, Frontier(64).solve(moves_of(problem)).numbers)
    plan = build_plan(space, pricing, problem, found, cluster, Provenance(planner="hap"))
    return terms_of(plan, found, space.costs, cluster)


def test_memory_bounds_the_shares_and_a_rank_may_have_none() -> None:
    cluster = uneven_cluster([3, 1], memory_bytes=1000)
    stage = {((0.0, 1.0), (0.0, 3.0)): 1}
    free = best_ratios(ShareTerms(0.0, 0.0, stage, ((0, 1000),)), cluster)  # type: ignore[arg-type]
    bound = best_ratios(ShareTerms(0.0, 0.0, stage, ((400, 1000),)), cluster)  # type: ignore[arg-type]
    none = best_ratios(ShareTerms(0.0, 0.0, stage, ((600, 1000),)), cluster)  # type: ignore[arg-type]
    slow = best_ratios(ShareTerms(0.0, 0.0, {((0.0, 1.0), (5.0, 3.0)): 1}, ()), cluster)  # type: ignore[arg-type]
    assert free is not None and bound is not None and slow is not None  # noqa: PT018
    assert free.ratios == pytest.approx((0.75, 0.25))
    assert bound.ratios == pytest.approx((0.6, 0.4))
    assert none is None
    assert slow.ratios[1] < 1  # which is no matter for whoever is slow anyway


def test_parameters_are_sharded_if_they_do_not_fit_whole() -> None:
    found, cluster = _linear(8, 64, 4), _cluster(1, 1)
    whole = simulate(PLANNERS["dp_even"](found.program, cluster), found.program, cluster).peak_bytes
    small = _with_memory(cluster, int(max(whole) * 0.75))
    plan = PLANNERS["hap"](found.program, small)
    assert_equal_to_one_device(found, plan)
    assert max(simulate(plan, found.program, small).peak_bytes) <= small.devices[0].memory_bytes
    with pytest.raises(PlanError, match="no plan of _Linear was found that fits into the memory of 1:1"):
        PLANNERS["hap"](found.program, _with_memory(cluster, 1000))


def _with_memory(cluster: Cluster, memory_bytes: int) -> Cluster:
    return replace(cluster, devices=tuple(replace(device, memory_bytes=memory_bytes) for device in cluster.devices))


def test_the_same_plan_again() -> None:
    program = example("net").program
    one, other = (PLANNERS["hap"](program, _cluster(3, 1)) for _ in range(2))
    assert one.steps == other.steps
    assert one.tensors == other.tensors


def test_a_search_that_is_interrupted_has_a_plan() -> None:
    found, cluster = example("net"), _cluster(3, 1)

    def interrupt(done_ratio: float, cost_s: float | None) -> None:
        raise KeyboardInterrupt

    for plan, ended in (
        (PLANNERS["hap"](found.program, cluster, progress=interrupt), SearchEnd.INTERRUPTED),
        (PLANNERS["hap"](found.program, cluster, deadline_s=0.0), SearchEnd.DEADLINE),
    ):
        assert plan.provenance.ended is ended
        assert plan.provenance.notes["found by"] == "data parallel"
        assert_equal_to_one_device(found, plan)


def test_progress_only_gets_better() -> None:
    dones: list[float] = []
    costs: list[float | None] = []

    def hear(done_ratio: float, cost_s: float | None) -> None:
        dones.append(done_ratio)
        costs.append(cost_s)

    plan: Plan = PLANNERS["hap"](example("net").program, even_cluster(2, flops_per_s=1e9), progress=hear)
    assert dones == sorted(dones)
    assert dones[-1] <= 1
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == plan.provenance.cost_s


def test_further_layers_are_known_already() -> None:
    few, many = (moves_of(_problem(_linear(8, 16, num_layers).program, _cluster(2, 1))) for num_layers in (5, 9))
    assert len(many) > len(few)
    assert len(set(map(id, many))) == len(set(map(id, few)))


def test_a_search_that_keeps_a_known_solution_costs_no_more() -> None:
    found, cluster = example("gpt"), _cluster(2, 1)
    space = SynthesisSpace.of(found.program)
    problem = Pricing(space, cluster, cluster.flops_ratios).problem()
    moves = moves_of(problem)
    plans = [PLANNERS[name](found.program, cluster) for name in ("dp_proportional", "zero", "megatron")]
    seeds = [numbers for each in assignments_of(plans, space.strategies) if (numbers := alternatives_of(space, problem, each))]
    assert len(seeds) == 3
    alone = [Frontier(4).solve(moves, among=[(number,) for number in seed]) for seed in seeds]
    assert [solution.numbers for solution in alone] == seeds
    known = min(alone, key=lambda solution: solution.cost)
    assert Frontier(4).solve(moves).cost > known.cost  # few states lose the way to it
    assert Frontier(4).solve(moves, known=known).cost <= known.cost
