"""The best shares of each rank for a given distributed program, as a linear program.

Between two communications ranks compute by themselves: a *stage* takes as long as the slowest needs. With B_j the share of rank j
(HAP, EuroSys'24, section 5.1, with what its code leaves out: constant terms, latencies, and memory)

    min   sum_i c_i + sum_k p_k
    s.t.  c_i >= latency_i + s_per_byte_i * n * bytes_i * B_j        padded: driven by the largest share
          c_i  = latency_i + s_per_byte_i * bytes_i                  grouped, and all-reduce: the same for all shares
          p_k >= sum of seconds of rank j for whole work + B_j * sum of its seconds for split work
          whole bytes + B_j * split bytes <= memory of rank j        at each place in the plan
          sum_j B_j = 1,  B >= 0
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Apply, Collective, CollectiveKind, Plan
from dyorc.planner.planners.collective_costs import line_of_largest_share
from dyorc.planner.planners.hap.synthesized_plan import DistributedProgram
from dyorc.planner.planners.linear_shares import LinearShares
from dyorc.planner.program import Shard
from dyorc.planner.program.costs import NodeCost


@dataclass(frozen=True, slots=True)
class Ratios:
    """The solution of the linear program.

    Attributes:
        ratios: The share of each rank.
        total_s: The seconds of a step with these shares, if they could be had exactly.
    """

    ratios: tuple[float, ...]
    total_s: float


@dataclass(frozen=True)
class ShareTerms:
    """A plan's time and memory as functions of the shares.

    Attributes:
        fixed_s: Seconds that do not depend on the shares.
        largest: Seconds for the largest share, a whole share counted: together, all that is driven by it.
        stages: For each stage, by how often it occurs: for each rank, its seconds of whole work and of split work.
        memory: Bytes that every rank holds and bytes that are divided, at the places where one or the other is most.
    """

    fixed_s: float
    largest: float
    stages: Counter[tuple[tuple[float, float], ...]]
    memory: tuple[tuple[int, int], ...]


def best_ratios(terms: ShareTerms, cluster: Cluster) -> Ratios | None:
    """Solves the linear program; None if no shares fit into memory."""
    num_ranks = cluster.num_ranks
    scale = 1.0 / max(total_s(terms, [1.0 / num_ranks] * num_ranks), 1e-12)  # the solver's tolerances are absolute
    memory_bytes = [device.memory_bytes for device in cluster.devices]
    program = LinearShares(list(zip(memory_bytes, *terms.stages, strict=True)), terms.largest * scale)
    for stage, count in terms.stages.items():
        takes = program.variable(float(count))
        for kind, rank in enumerate(program.first):
            whole_s, split_s = stage[rank]
            program.at_most(-whole_s * scale, (kind, split_s * scale), (takes, -1.0))
    for kind, rank in enumerate(program.first):
        for whole, split in terms.memory:
            program.at_most((memory_bytes[rank] - whole) / 1e9, (kind, split / 1e9))
    solved = program.solve()
    return Ratios(solved[0], terms.fixed_s + solved[1] / scale) if solved else None


def total_s(terms: ShareTerms, ratios: Sequence[float]) -> float:
    """The seconds of a step with given shares: what the linear program minimizes."""
    stages = sum(
        count * max(whole + split * share for (whole, split), share in zip(stage, ratios, strict=True))
        for stage, count in terms.stages.items()
    )
    return terms.fixed_s + terms.largest * max(ratios) + stages


def terms_of(plan: Plan, distributed: DistributedProgram, costs: Mapping[str, NodeCost], cluster: Cluster) -> ShareTerms:
    """Reads off a plan how its time and memory depend on the shares."""
    fixed_s = largest = 0.0
    stages: Counter[tuple[tuple[float, float], ...]] = Counter()
    stage = _Stage(cluster)
    for step in plan.steps:
        if isinstance(step, Apply):
            strategy = distributed.strategies[step.node]
            stage.add(costs[step.node], is_split=any(isinstance(p, Shard) for p in (*strategy.inputs, *strategy.outputs)))
        elif isinstance(step, Collective) and step.kind not in (CollectiveKind.SLICE, CollectiveKind.MASK):
            stages[stage.of_ranks()] += 1
            stage = _Stage(cluster)
            constant, slope = _collective(plan, step, cluster)
            fixed_s += constant
            largest += slope
    stages[stage.of_ranks()] += 1
    return ShareTerms(fixed_s, largest, stages, _memory(plan))


class _Stage:
    """Seconds of whole and of split work, added up once for each kind of devices."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seconds = {rank: [0.0, 0.0] for rank in dict.fromkeys(cluster.first_alike)}

    def add(self, cost: NodeCost, *, is_split: bool) -> None:
        for rank, seconds in self._seconds.items():
            seconds[is_split] += self._cluster.compute_s(cost, rank)

    def of_ranks(self) -> tuple[tuple[float, float], ...]:
        pairs = {rank: (whole, split) for rank, (whole, split) in self._seconds.items()}
        return tuple(pairs[first] for first in self._cluster.first_alike)


def _collective(plan: Plan, step: Collective, cluster: Cluster) -> tuple[float, float]:
    """A constant number of seconds, and seconds for each whole of the largest share."""
    num_bytes = plan.values[plan.tensors[step.source].value].num_bytes
    if line := line_of_largest_share(cluster, step.kind, step.algorithm, num_bytes):
        return line
    num_others = cluster.num_ranks - 1
    pieces = [num_bytes] * (num_others + 1) if step.kind is CollectiveKind.ALL_REDUCE else [num_bytes] + [0] * num_others
    return cluster.collective_s(step.kind, step.algorithm, range(cluster.num_ranks), pieces), 0.0


def _memory(plan: Plan) -> tuple[tuple[int, int], ...]:
    """Whole and split bytes that are held at once, where no other place has more of both."""
    last = {name: number for number, step in enumerate(plan.steps) for name in (*step.inputs, *step.outputs) if name}
    kept = {*plan.results.values(), *(name for names in plan.sources.values() for name in names)}
    held = [0, 0]
    here = {name for names in plan.sources.values() for name in names}
    for name in here:
        held[_is_split(plan, name)] += _bytes(plan, name)
    held_pairs = {(held[0], held[1])}
    for number, step in enumerate(plan.steps):
        for name in {name for name in step.outputs if name} - here:
            held[_is_split(plan, name)] += _bytes(plan, name)
            here.add(name)
        held_pairs.add((held[0], held[1]))
        for name in {name for name in (*step.inputs, *step.outputs) if name and last[name] == number} - kept:
            held[_is_split(plan, name)] -= _bytes(plan, name)
    outer: list[tuple[int, int]] = []
    for whole, split in sorted(held_pairs, reverse=True):
        if not outer or split > outer[-1][1]:
            outer.append((whole, split))
    return tuple(outer)


def _is_split(plan: Plan, tensor: str) -> bool:
    return isinstance(plan.tensors[tensor].layout[0], Shard)


def _bytes(plan: Plan, tensor: str) -> int:
    return plan.values[plan.tensors[tensor].value].num_bytes
