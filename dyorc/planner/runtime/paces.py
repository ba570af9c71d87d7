"""Emulated devices: how long each step of a plan takes on those of a cluster, for ranks that all run on this machine."""

from collections.abc import Iterator

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Apply, Plan
from dyorc.planner.program import TensorProgram
from dyorc.planner.program.costs import FREE, costs_of
from dyorc.planner.runtime.shaping import LinkShape
from dyorc.planner.simulate.sizes import Sizes


def paces_of(plan: Plan, program: TensorProgram, cluster: Cluster) -> Iterator[tuple[int, int, float]]:
    """Yields, for each computation that costs something, its step, a rank, and the seconds that the rank's device takes.

    Ranks compute, and sleep for what is left of that. So devices must be slower than this machine with all its ranks at work.
    """
    costs, sizes = costs_of(program), Sizes(plan)
    for number, step in enumerate(plan.steps):
        if isinstance(step, Apply) and costs[step.node] != FREE:
            for rank, share in zip(plan.meshes[step.mesh].ranks, sizes.shares_of(step), strict=True):
                yield number, rank, cluster.compute_s(costs[step.node], rank, share)


def links_of(cluster: Cluster) -> dict[tuple[int, int], LinkShape]:
    """Returns links between ranks that are as fast as those of a cluster."""
    pairs = [(source, target) for source in range(cluster.num_ranks) for target in range(cluster.num_ranks) if source != target]
    links = {pair: cluster.link_between(*pair) for pair in pairs}
    return {pair: LinkShape(bytes_per_s=link.bytes_per_s, latency_s=link.latency_s) for pair, link in links.items()}
