"""What computing and communicating one microbatch costs, for the search: seconds by node and strategy, and by conversion."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import Algorithm, CollectiveKind, shares
from dyorc.planner.plan.build import kind_between
from dyorc.planner.planners.collective_costs import best_algorithm
from dyorc.planner.planners.hidup.halves import Halves
from dyorc.planner.program import REPLICATE, Node, Partial, Placement, Shard, Strategy, TensorProgram
from dyorc.planner.program.costs import costs_of

Wrong = Callable[[str, float], float]
"""Given `compute` or `communicate` and a cost, another one: how plans turn out whose costs are wrong."""


@dataclass(frozen=True, slots=True, eq=False)
class TimedTensor:
    """A value as it lies along time: one that both halves summed up is another tensor than their terms.

    There is one object for each (items.py), so that the search can tell them apart by identity, which is quick.
    """

    value: str
    along_time: Placement

    @property
    def is_once(self) -> bool:
        """Whether it is the same for both microbatches, so that it is communicated once."""
        return self.along_time == REPLICATE


@dataclass(frozen=True, slots=True)
class Conversion:
    """One tensor changes its placement along the axis of space."""

    tensor: TimedTensor
    before: Placement
    after: Placement
    algorithm: Algorithm
    cost_s: float
    is_late: bool = False  # needs both microbatches first


@dataclass
class MicrobatchCosts:
    """Costs on one cluster under given ratios. Remembers what was asked.

    Attributes:
        program: The program.
        halves: What is cut in two.
        cluster: Where it runs.
        ratios: The share of each rank.
        wrong: Changes costs, for tests of what wrong costs do.
    """

    program: TensorProgram
    halves: Halves
    cluster: Cluster
    ratios: Sequence[float]
    wrong: Wrong | None = None
    _computed: dict[tuple[str, Strategy], float] = field(default_factory=dict[tuple[str, Strategy], float])
    _converted: dict[tuple[TimedTensor, Placement, Placement], Conversion | None] = field(
        default_factory=dict[tuple[TimedTensor, Placement, Placement], Conversion | None]
    )

    def __post_init__(self) -> None:
        self._nodes = costs_of(self.program)

    def compute_s(self, node: Node, strategy: Strategy) -> float:
        """The seconds of the slowest rank for one microbatch; half of them if a node runs once for both."""
        key = (node.name, strategy)
        if key not in self._computed:
            cost, parts = self._nodes[node.name], self.part_of(node, strategy)
            seconds = max(self.cluster.compute_s(cost, rank, part) for rank, part in enumerate(parts))
            self._computed[key] = self.wrong("compute", seconds) if self.wrong else seconds
        return self._computed[key]

    def part_of(self, node: Node, strategy: Strategy) -> tuple[float, ...]:
        """For each rank, which part of a node's work its piece of one microbatch is."""
        if strategy.axis is None:
            return (0.5,) * len(self.ratios)
        units = self.halves.axes.extents[strategy.axis]
        if strategy.axis == self.halves.batch and not self.halves.is_whole(node):
            units //= 2
        return tuple(share / max(units, 1) / 2 for share in shares(units, self.ratios))

    def conversion(self, tensor: TimedTensor, before: Placement, after: Placement) -> Conversion | None:
        """What changes a placement, by the quicker algorithm; None if nothing does."""
        key = (tensor, before, after)
        if key not in self._converted:
            self._converted[key] = self._convert(*key)
        return self._converted[key]

    def _convert(self, tensor: TimedTensor, before: Placement, after: Placement) -> Conversion | None:
        if isinstance(before, Shard) and isinstance(after, Partial):
            return None
        kind = kind_between(before, after)
        if kind in (CollectiveKind.SLICE, CollectiveKind.MASK):
            return Conversion(tensor, before, after, Algorithm.PADDED, 0.0)
        cost_s, algorithm = best_algorithm(self.cluster, kind, self.piece_bytes(tensor, before, after, kind))
        return Conversion(tensor, before, after, algorithm, self.wrong("communicate", cost_s) if self.wrong else cost_s)

    def piece_bytes(self, tensor: TimedTensor, before: Placement, after: Placement, kind: CollectiveKind) -> list[int]:
        """Each rank's bytes, as the cluster's costs want them."""
        num_bytes = self.program.values[tensor.value].num_bytes
        num_bytes = num_bytes // 2 if isinstance(tensor.along_time, Shard) else num_bytes
        if kind is CollectiveKind.ALL_REDUCE:
            return [num_bytes] * len(self.ratios)
        cuts = [self._shards(tensor, p.dim, num_bytes) for p in (before, after) if isinstance(p, Shard)]
        return [max(cut[rank] for cut in cuts) for rank in range(len(self.ratios))]

    def _shards(self, tensor: TimedTensor, dim: int, num_bytes: int) -> list[int]:
        units = self.halves.axes.extent_of(tensor.value, dim)
        units = units // 2 if tensor.along_time == Shard(dim) else units
        return [num_bytes * share // max(units, 1) for share in shares(units, self.ratios)]
