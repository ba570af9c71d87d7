"""The network sees a graph, not an order of nodes; it learns what searches visit; and `tag` works without it, too."""

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from benchmarks.papers.tag.searching import Searching
from dyorc.planner.cluster import uneven_cluster
from dyorc.planner.cluster.published import tag_cluster
from dyorc.planner.planners.tag import plan as tag_plan
from dyorc.planner.planners.tag.estimate import Estimator
from dyorc.planner.planners.tag.features import FeatureGraph
from dyorc.planner.planners.tag.group_actions import SearchContext
from dyorc.planner.planners.tag.policy_network import (
    WEIGHTS,
    NetworkPrior,
    PolicyNetwork,
    batch_graphs,
    load_network,
    save_network,
)
from dyorc.planner.planners.tag.policy_training import TrainingEffort, learn, play, random_cluster, train
from dyorc.planner.planners.tag.tree_search import SearchBaseline, TreeSearch
from tests.unit.planner.examples import example

_LITTLE = TrainingEffort(rounds=2, games=1, groups=1, playouts=6, epochs=2)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Small products on a busy machine wait for their threads for longer than they take."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def _estimator(num_machines: int = 3) -> Estimator:
    machines = [("V100", 2, 8e9), ("P100", 2, 20e9), ("1080Ti", 4, 8e9)][:num_machines]
    return Estimator(SearchContext(example("vgg19").program, tag_cluster(machines), max_groups=8))


def _network() -> PolicyNetwork:
    torch.manual_seed(0)
    return PolicyNetwork().eval()


def _graph(estimator: Estimator, num_decided: int = 2) -> FeatureGraph:
    context, random = estimator.context, Random(1)
    actions = tuple(random.choice(context.actions) for _ in context.groups)
    return NetworkPrior(estimator, _network()).graph(actions, num_decided)


def _scores(*graphs: FeatureGraph) -> torch.Tensor:
    with torch.inference_mode():
        return _network()(batch_graphs(graphs))


def test_scores_do_not_depend_on_the_order_of_groups_machines_and_actions() -> None:
    graph, random = _graph(_estimator()), np.random.default_rng(2)
    groups, machines, actions = (random.permutation(len(each)) for each in (graph.groups, graph.machines, graph.options))
    nodes = np.concatenate([groups, machines + len(groups)])
    shuffled = replace(
        graph,
        groups=graph.groups[groups],
        machines=graph.machines[machines],
        edges=graph.edges[np.ix_(nodes, nodes)],
        is_edge=graph.is_edge[:, nodes[:, None], nodes],
        current=int(np.flatnonzero(groups == graph.current)[0]),
        placements=graph.placements[np.ix_(actions, machines)],
        options=graph.options[actions],
    )
    before, after = _scores(graph)[0], _scores(shuffled)[0]
    torch.testing.assert_close(after, before[torch.from_numpy(actions)], rtol=0, atol=1e-4)
    assert before.exp().sum().item() == pytest.approx(1.0, abs=1e-4)
    other_group = _scores(replace(graph, current=graph.current + 1))[0]
    assert (other_group - before).abs().max() > 1e-3  # it does see which group is decided


def test_graphs_of_different_sizes_are_scored_as_each_alone() -> None:
    graphs = [_graph(_estimator(3)), _graph(_estimator(2), num_decided=4)]
    both = _scores(*graphs)
    for row, graph in zip(both, graphs, strict=True):
        alone = _scores(graph)[0]
        torch.testing.assert_close(row[: len(alone)], alone, rtol=0, atol=1e-4)


def test_the_network_learns_what_was_visited() -> None:
    records = list(play(example("vgg19").program, 3, replace(_LITTLE, groups=3, playouts=40), None))
    network = _network()
    first = learn(network, records, epochs=1, seed=0)
    assert learn(network, records, epochs=60, seed=0) < 0.8 * first


def test_the_same_seed_trains_the_same_weights() -> None:
    known = [example("vgg19").program]
    one, other = (train(5, _LITTLE, lambda _: None, known).state_dict() for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_weights_come_back_from_their_file(tmp_path: Path) -> None:
    assert load_network(tmp_path / "none") is None
    save_network(_network(), tmp_path / "weights")
    found = load_network(tmp_path / "weights")
    assert found is not None
    torch.testing.assert_close(found.state_dict(), _network().state_dict())


def test_a_search_begins_with_what_is_promising() -> None:
    start = SearchBaseline(_estimator())
    game = start.game()
    wanted = len(game.actions) - 1
    sure = [float(number == wanted) for number in range(len(game.actions))]
    search = TreeSearch(game, seed=0, prior=lambda actions, num_decided: sure)
    tried = [actions for _, (actions, _) in zip(range(3), search.playouts(), strict=False)]
    assert tried[1][0] == game.actions[wanted]


def test_tag_says_whether_a_network_guided_it(monkeypatch: pytest.MonkeyPatch) -> None:
    program, cluster = example("vgg19").program, uneven_cluster([3, 1])
    assert WEIGHTS.stat().st_size < 1_000_000
    plan = tag_plan.tag(program, cluster, playouts=3, max_search_s=inf)
    assert plan.provenance.notes["prior"] == "network"
    again = tag_plan.tag(program, cluster, playouts=3, max_search_s=inf)
    assert again.steps == plan.steps
    monkeypatch.setattr(tag_plan, "load_network", lambda: None)
    assert tag_plan.tag(program, cluster, playouts=3, max_search_s=inf).provenance.notes["prior"] == "uniform"


def test_what_is_published_is_measured_on_random_clusters() -> None:
    cluster = random_cluster(Random(0), num_devices=8)
    assert cluster.num_ranks == 8
    searching = Searching(example("vgg19").program, cluster)
    best = searching.best_after(_network(), (2, 10), seed=1)
    seconds = [searching.simulated_s(best[number]) for number in (2, 10)]
    assert seconds[1] <= seconds[0] <= searching.data_parallel_s
    number = searching.until_better(None, 40)
    assert number is not None  # a batch of four on eight devices is not worth its sums
    assert searching.simulated_s(searching.data_parallel, duplicate=True) <= searching.data_parallel_s
