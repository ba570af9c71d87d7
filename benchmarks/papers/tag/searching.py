"""What TAG's searches are measured by: playouts until a plan is better than data parallelism, and the best after so many."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from statistics import mean, median

from benchmarks.papers.measured import Builder, program_of
from benchmarks.papers.models.published import tag_bert, tag_transformer, tag_vgg19
from benchmarks.papers.rows import not_here_row, own_row, ratio_row, sign_row
from benchmarks.papers.study import Progress
from benchmarks.papers.table import Row
from dyorc.planner.cluster import Cluster, published
from dyorc.planner.planners.tag.duplicate import duplication_of, solve
from dyorc.planner.planners.tag.estimate import Estimator
from dyorc.planner.planners.tag.group_actions import Action, SearchContext
from dyorc.planner.planners.tag.plan import build_plan
from dyorc.planner.planners.tag.policy_network import NetworkPrior, PolicyNetwork
from dyorc.planner.planners.tag.policy_training import random_cluster
from dyorc.planner.planners.tag.tree_search import SearchBaseline, TreeSearch
from dyorc.planner.program import TensorProgram
from dyorc.planner.simulate import simulate

_ROOFLINES = {"V100": (15.7e12, 900e9), "1080Ti": (11.3e12, 484e9), "P100": (9.3e12, 732e9)}
"""Flops and bytes per second of data sheets, in single precision."""


class Searching:
    """Searches for one program on one cluster, with or without the network. Costs that were asked for once are remembered."""

    def __init__(self, program: TensorProgram, cluster: Cluster) -> None:
        self._estimator = Estimator(SearchContext(program, cluster))
        self._start = SearchBaseline(self._estimator)
        self._simulated: dict[tuple[Action, ...], float] = {}
        self.data_parallel = self._estimator.context.data_parallel
        self.data_parallel_s = self.simulated_s(self.data_parallel)

    def simulated_s(self, actions: tuple[Action, ...], *, duplicate: bool = False) -> float:
        """Returns the simulated seconds of a deployment; with sums of gradients replaced where that is worth it, if asked to."""
        context = self._estimator.context
        total_s = self._simulated.get(actions)
        if total_s is None:
            total_s = simulate(build_plan(context, actions), context.program, context.cluster).total_s
            self._simulated[actions] = total_s
        if duplicate and (duplicated := solve(duplication_of(context, actions))):
            plan = build_plan(context, actions, duplicated=duplicated)
            return min(total_s, simulate(plan, context.program, context.cluster).total_s)
        return total_s

    def until_better(self, network: PolicyNetwork | None, max_playouts: int, seed: int = 0) -> int | None:
        """Returns how many playouts it takes until a plan is quicker than data parallelism, or None."""
        for number, (actions, found_s) in self._playouts(network, max_playouts, seed):
            if found_s < self._start.data_parallel_s and self.simulated_s(actions) < 0.999 * self.data_parallel_s:
                return number
        return None

    def best_after(
        self, network: PolicyNetwork | None, numbers: Sequence[int], seed: int = 0
    ) -> Mapping[int, tuple[Action, ...]]:
        """Returns the best deployment after so many playouts, for each number: the best in the simulator among deployments
        that were the best estimate in their turn.
        """
        context = self._estimator.context
        best, best_s, best_estimate_s = context.data_parallel, self.data_parallel_s, self._start.best_s
        deployments: dict[int, tuple[Action, ...]] = {}
        for number, (actions, found_s) in self._playouts(network, max(numbers), seed):
            if found_s < 0.99 * best_estimate_s:
                best_estimate_s = found_s
                if self.simulated_s(actions) < best_s:
                    best, best_s = actions, self.simulated_s(actions)
            if number in numbers:
                deployments[number] = best
        return {number: deployments.get(number, best) for number in numbers}

    def _playouts(
        self, network: PolicyNetwork | None, max_playouts: int, seed: int
    ) -> Iterator[tuple[int, tuple[tuple[Action, ...], float]]]:
        prior = NetworkPrior(self._estimator, network) if network else None
        search = TreeSearch(self._start.game(), seed, prior)
        yield from zip(range(1, max_playouts + 1), search.playouts(), strict=False)


def random_clusters(count: int, seed: int = 2023) -> Sequence[Cluster]:
    """Returns random clusters of 8 devices on at least two machines."""
    random, clusters = Random(seed), list[Cluster]()
    while len(clusters) < count:
        cluster = random_cluster(random, num_devices=8)
        if len({device.machine for device in cluster.devices}) > 1:
            clusters.append(at_rooflines(cluster))
    return clusters


def at_rooflines(cluster: Cluster) -> Cluster:
    """Returns one of TAG's clusters with devices as fast as data sheets let expect, half of the arithmetic and all of the bytes.

    What HAP and HiDup measured is a fifth of it, of other models; convolutions are quicker.
    """
    devices = tuple(
        replace(device, flops_per_s=_ROOFLINES[device.name][0] / 2, memory_bytes_per_s=_ROOFLINES[device.name][1])
        for device in cluster.devices
    )
    return replace(cluster, devices=devices, flops_per_multiply_add=2.0)


MODELS: Mapping[str, Builder] = {"VGG19": tag_vgg19, "Transformer": tag_transformer, "BERT-small": tag_bert}
BATCH_EACH = 3
"""Samples for each device. The paper's batches are not known, but that they are no smaller than 32."""
_MAX_PLAYOUTS = 200


def until_better(network: PolicyNetwork | None, models: Sequence[str], num_clusters: int, progress: Progress) -> Iterator[Row]:
    """Yields how many playouts it takes on random clusters, for all models together and for each."""
    counts: dict[str, list[tuple[int | None, int | None]]] = {name: [] for name in models}
    for number, cluster in enumerate(random_clusters(num_clusters)):
        name = models[number % len(models)]
        progress(f"playouts until better than data parallelism: cluster {number + 1} of {num_clusters}, {name}")
        searching = Searching(program_of(MODELS[name], batch=BATCH_EACH * cluster.num_ranks), cluster)
        guided, free = (searching.until_better(each, _MAX_PLAYOUTS, seed=number) for each in (network, None))
        counts[name].append((guided, free))
    if len(models) > 1:
        yield _until_better_row("all models in turn", [pair for each in counts.values() for pair in each], network)
    for name, each in counts.items():
        yield _until_better_row(name, each, network)


def _until_better_row(name: str, counts: Sequence[tuple[int | None, int | None]], network: PolicyNetwork | None) -> Row:
    guided, free = ([_MAX_PLAYOUTS if pair[side] is None else pair[side] or 0 for pair in counts] for side in (0, 1))
    fewer, more = (sum(sign * (a - b) < 0 for a, b in zip(guided, free, strict=True)) for sign in (1, -1))
    never = [sum(pair[side] is None for pair in counts) for side in (0, 1)]
    note = (
        f"medians {median(guided):g} / {median(free):g}; fewer on {fewer}, more on {more}; "
        f"none within {_MAX_PLAYOUTS} on {never[0]} / {never[1]}; {BATCH_EACH} samples each; the paper's figures are not known"
    )
    what = (
        f"{name}, {len(counts)} random topologies of 8 GPUs: mean playouts until better than data parallelism, "
        "with / without the network"
    )
    if not network:
        return not_here_row("generalisation", what, "fewer with it", "there are no weights: run make train-tag")
    ours = f"{mean(guided):.1f} / {mean(free):.1f}"
    return sign_row("generalisation", what, "fewer with it", ours, is_so=mean(guided) < mean(free), note=note)


def best_after(network: PolicyNetwork | None, name: str, numbers: Sequence[int], gains: list[float]) -> Iterator[Row]:
    """Yields the gain after so many playouts on TAG's testbed, and adds it to `gains`."""
    cluster = at_rooflines(published("tag-testbed"))
    searching = Searching(program_of(MODELS[name], batch=BATCH_EACH * cluster.num_ranks), cluster)
    texts: list[str] = []
    for each in (network, None):
        best = searching.best_after(each, numbers)
        own_gains = [searching.data_parallel_s / searching.simulated_s(best[number]) for number in numbers]
        texts.append(" / ".join(f"{gain:.2f}" for gain in own_gains))
        gains += own_gains
    yield own_row(
        "search",
        f"{name} on the testbed of 16 GPUs: data parallelism / best of {' / '.join(map(str, numbers))} playouts",
        texts[0],
        f"without the network {texts[1]}; {BATCH_EACH} samples each",
    )


def largest(gains: Sequence[float]) -> Iterator[Row]:
    """Yields the largest gain of all models that were searched for."""
    note = "ours over even data parallelism alone; the paper's best of six models and several schemes; batches are not known"
    yield ratio_row("abstract", "largest speed-up over existing schemes", 4.56, max(gains), note=note)
