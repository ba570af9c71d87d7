"""TAG's plans compute what the program computes, and its search finds the best actions where all can be tried."""

from itertools import product
from math import inf
from random import Random
from statistics import median

import pytest
import torch
from torch import nn

from dyorc.errors import PlanError
from dyorc.planner.cluster import even_cluster, uneven_cluster
from dyorc.planner.cluster.published import tag_cluster
from dyorc.planner.plan import Collective, SearchEnd
from dyorc.planner.planners.tag.duplicate import Duplication, duplication_of, solve
from dyorc.planner.planners.tag.estimate import Estimator
from dyorc.planner.planners.tag.group_actions import Action, Option, SearchContext
from dyorc.planner.planners.tag.plan import build_plan, tag
from dyorc.planner.planners.tag.tree_search import Game, TreeSearch, reward
from dyorc.planner.simulate import simulate
from dyorc.planner.verify import verify
from tests.unit.planner.examples import Example, example, example_of
from tests.unit.planner.planned import assert_equal_to_one_device

_CASES = {
    "gpt": even_cluster(2),
    "vgg19": uneven_cluster([3, 1]),
    "net": even_cluster(4),
    "bert": tag_cluster([("V100", 2, 8e9), ("P100", 2, 8e9)]),
}


@pytest.mark.parametrize("name", _CASES)
def test_any_actions_compute_what_the_program_computes(name: str) -> None:
    found = example(name)
    context, random = SearchContext(found.program, _CASES[name], max_groups=8), Random(2)
    of_option = [[action for action in context.actions if action.option is option] for option in Option]
    drawn = tuple(random.choice(of_option[number % 3]) for number in range(len(context.groups)))
    assert_equal_to_one_device(found, build_plan(context, drawn))


class _Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(16, 32, bias=False)
        self.two = nn.Linear(32, 4, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(self.one(x).relu()).square().sum()


def _tiny() -> Example:
    torch.manual_seed(0)
    return example_of(_Tiny(), (torch.randn(8, 16, dtype=torch.float64),))


def test_plans_are_proved() -> None:
    found = _tiny()
    context = SearchContext(found.program, uneven_cluster([3, 1]), max_groups=4)
    random = Random(1)
    for _ in range(2):
        plan = build_plan(context, tuple(random.choice(context.actions) for _ in context.groups))
        assert_equal_to_one_device(found, plan)
        assert verify(found.program, plan).is_proved


def test_a_parameter_stays_with_its_readers_and_its_gradient() -> None:
    context = SearchContext(example("gpt").program, even_cluster(2))
    program = context.program
    unit_of = {name: unit for group in context.groups for unit in group.units for name in unit.nodes}
    assert len(context.groups) <= 40
    assert unit_of.keys() | context.grouping.shared == {node.name for node in program.nodes}
    for parameter, gradient in program.gradients.items():
        units = {id(unit_of[node.name]) for node in (*program.consumers[parameter], program.producers[gradient])}
        assert len(units) == 1
    assert [g.compute_s for g in context.groups] == sorted((g.compute_s for g in context.groups), reverse=True)


def test_the_search_finds_the_best_of_all_actions() -> None:
    actions = [Action((number,), Option.SPREAD) for number in range(3)]
    random = Random(5)
    seconds = {chosen: random.uniform(0.5, 2.0) for chosen in product(actions, repeat=3)}
    game = Game(actions=actions, num_groups=3, evaluate=lambda chosen: seconds[tuple(chosen)], baseline_s=1.0)
    tried = dict(TreeSearch(game, seed=0).playouts())
    assert tried == seconds  # nothing is left out, and the search ends by itself


def test_the_planner_finds_the_best_of_all_actions() -> None:
    found, cluster = _tiny(), uneven_cluster([3, 1], flops_per_s=1e8, bytes_per_s=1e8)
    context = SearchContext(found.program, cluster, max_groups=2)
    everything = product(context.actions, repeat=len(context.groups))
    best_s = min(simulate(build_plan(context, actions), found.program, cluster).total_s for actions in everything)
    plan = tag(found.program, cluster, max_groups=2, playouts=1000, max_search_s=inf)
    assert plan.provenance.cost_s == pytest.approx(best_s)
    assert_equal_to_one_device(found, plan)


def test_the_same_seed_finds_the_same_plan() -> None:
    found, cluster = _tiny(), uneven_cluster([3, 1])
    plans = [tag(found.program, cluster, playouts=20, max_search_s=inf, seed=7) for _ in range(2)]
    assert plans[0].steps == plans[1].steps
    assert plans[0].provenance.cost_s == plans[1].provenance.cost_s


def test_sums_of_gradients_come_in_the_order_in_which_nodes_list_them() -> None:
    program = example("vgg19").program
    context = SearchContext(program, even_cluster(2))
    plan = build_plan(context, context.data_parallel)
    reduced = [plan.tensors[step.source].value for step in plan.steps if isinstance(step, Collective)]
    gradients = set(program.gradients.values())
    listed = [name for node in program.nodes for name in node.outputs if name in gradients]
    assert [name for name in reduced if name in gradients] == listed


def test_an_interrupted_search_returns_the_best_plan_so_far() -> None:
    found, heard = _tiny(), list[float]()

    def interrupt(done: float, best_s: float | None) -> None:
        heard.append(done)
        if len(heard) == 3:
            raise KeyboardInterrupt

    plan = tag(found.program, uneven_cluster([3, 1]), playouts=100, max_search_s=inf, progress=interrupt)
    assert plan.provenance.ended is SearchEnd.INTERRUPTED
    assert heard == [0.01, 0.02, 0.03]
    assert_equal_to_one_device(found, plan)


def test_what_memory_does_not_suffice_for_is_refused() -> None:
    with pytest.raises(PlanError, match="memory"):
        tag(_tiny().program, even_cluster(2, memory_bytes=100), playouts=5, max_search_s=inf)


def test_rewards() -> None:
    assert reward(2.0, 1.0) == 1.0
    assert reward(17.0, 1.0) == pytest.approx(2.0)
    assert reward(1.0, 2.0) == -0.5
    assert reward(1.0, float("inf")) == -1.0


def test_the_integer_program_is_solved_to_the_optimum() -> None:
    for seed in range(6):
        problem = _random_problem(Random(seed))
        solution = solve(problem)
        best_s = min(problem.cost_s(chosen) for chosen in product([False, True], repeat=len(problem.nodes)))
        assert problem.cost_s([name in solution for name in problem.nodes]) == pytest.approx(best_s)


def _random_problem(random: Random) -> Duplication:
    nodes, values = range(6), range(7)
    return Duplication(
        nodes=tuple(f"node_{number}" for number in nodes),
        extra_s=tuple(random.random() for _ in nodes),
        whole_s=tuple(random.random() * 2 for _ in values),
        needs=tuple((v, node) for v in values for node in nodes if node > v - 1 and random.random() < 0.4),
        always=tuple(v for v in values if random.random() < 0.4),
        makers=(None, *nodes),
    )


class _Wide(nn.Module):
    """A product whose gradient is much larger than its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(200, 300, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.one(x).square().sum()


def test_small_factors_are_gathered_instead_of_summing_a_large_gradient() -> None:
    found = example_of(_Wide(), (torch.randn(6, 200, dtype=torch.float64),))
    cluster = even_cluster(2, flops_per_s=1e12, bytes_per_s=1e8, latency_s=1e-6)
    context = SearchContext(found.program, cluster)
    product_of_gradient = found.program.producers[found.program.gradients["one.weight"]].name
    duplicated = solve(duplication_of(context, context.data_parallel))
    assert product_of_gradient in duplicated
    plans = [build_plan(context, context.data_parallel, duplicated=each) for each in (frozenset[str](), duplicated)]
    seconds = [simulate(plan, found.program, cluster).total_s for plan in plans]
    assert seconds[1] < seconds[0] / 5
    assert_equal_to_one_device(found, plans[1])
    assert verify(found.program, plans[1]).is_proved


def test_estimates_are_near_the_simulator() -> None:
    """What an estimate leaves out is the order in which movements are served."""
    found, cluster = example("vgg19"), tag_cluster([("V100", 2, 8e9), ("P100", 2, 8e9)])
    context, random = SearchContext(found.program, cluster, max_groups=8), Random(4)
    estimator, ratios = Estimator(context), list[float]()
    drawn = [tuple(random.choice(context.actions) for _ in context.groups) for _ in range(6)]
    for actions in (context.data_parallel, context.spread, *drawn):
        simulation = simulate(build_plan(context, actions), found.program, cluster)
        estimate = estimator.estimate(actions)
        ratios.append(estimate.total_s / simulation.total_s)
        assert estimate.busy_s == pytest.approx(simulation.busy_s, rel=1e-6)
    assert ratios[0] == pytest.approx(1.0, rel=0.1)
    assert median(ratios) == pytest.approx(1.0, rel=0.3)
    assert 0.6 < min(ratios) <= max(ratios) < 2.5  # in a small model all is latency, and movements wait for each other


def test_machines_of_a_large_cluster_are_not_combined_in_all_ways() -> None:
    cluster = tag_cluster([("V100", 1, 8e9)] * 10 + [("P100", 1, 8e9)] * 10)
    context = SearchContext(_tiny().program, cluster, max_groups=2)
    sets = {action.machines for action in context.actions}
    assert tuple(range(10)) in sets  # those alike, which are the fastest
    assert len(sets) < 60
