"""What TAG's searches are measured by: playouts until a plan is better than data parallelism, and the best after so many."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random

from dyorc.planner.cluster import Cluster
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
        found = self._simulated.get(actions)
        if found is None:
            found = simulate(build_plan(context, actions), context.program, context.cluster).total_s
            self._simulated[actions] = found
        if duplicate and (duplicated := solve(duplication_of(context, actions))):
            plan = build_plan(context, actions, duplicated=duplicated)
            return min(found, simulate(plan, context.program, context.cluster).total_s)
        return found

    def until_better(self, network: PolicyNetwork | None, max_playouts: int, seed: int = 0) -> int | None:
        """Returns how many playouts it takes until a plan is quicker than data parallelism, or None."""
        for number, (actions, found_s) in self._playouts(network, max_playouts, seed):
            if found_s < self._start.data_parallel_s and self.simulated_s(actions) < 0.999 * self.data_parallel_s:
                return number
        return None

    def best_after(
        self, network: PolicyNetwork | None, numbers: Sequence[int], seed: int = 0
    ) -> Mapping[int, tuple[Action, ...]]:
        """Returns the best deployment after so many playouts, for each number; in the simulator, of those that were the best
        estimate in their turn.
        """
        context = self._estimator.context
        best, best_s, best_estimate_s = context.data_parallel, self.data_parallel_s, self._start.best_s
        found: dict[int, tuple[Action, ...]] = {}
        for number, (actions, found_s) in self._playouts(network, max(numbers), seed):
            if found_s < 0.99 * best_estimate_s:
                best_estimate_s = found_s
                if self.simulated_s(actions) < best_s:
                    best, best_s = actions, self.simulated_s(actions)
            if number in numbers:
                found[number] = best
        return {number: found.get(number, best) for number in numbers}

    def _playouts(
        self, network: PolicyNetwork | None, max_playouts: int, seed: int
    ) -> Iterator[tuple[int, tuple[tuple[Action, ...], float]]]:
        prior = NetworkPrior(self._estimator, network) if network else None
        search = TreeSearch(self._start.game(), seed, prior)
        yield from zip(range(1, max_playouts + 1), search.playouts(), strict=False)


def random_clusters(count: int, seed: int = 2023) -> Sequence[Cluster]:
    """Returns random clusters of 8 devices on at least two machines."""
    random, found = Random(seed), list[Cluster]()
    while len(found) < count:
        cluster = random_cluster(random, num_devices=8)
        if len({device.machine for device in cluster.devices}) > 1:
            found.append(at_rooflines(cluster))
    return found


def at_rooflines(cluster: Cluster) -> Cluster:
    """Returns one of TAG's clusters with devices as fast as data sheets let expect, half of the arithmetic and all of the bytes.

    What HAP and HiDup measured is a fifth of it, of other models; convolutions are quicker.
    """
    devices = tuple(
        replace(device, flops_per_s=_ROOFLINES[device.name][0] / 2, memory_bytes_per_s=_ROOFLINES[device.name][1])
        for device in cluster.devices
    )
    return replace(cluster, devices=devices, flops_per_multiply_add=2.0)
