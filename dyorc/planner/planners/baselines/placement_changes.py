"""The cost, along one axis of a mesh, of holding a value in one more placement.

The price is that of the plan that is built in the end: the cheapest way over collectives (adapters.py), in seconds on a cluster,
so that the latency of each counts, and not only its bytes.
"""

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

from dyorc.errors import PlanError
from dyorc.planner.cluster import Cluster
from dyorc.planner.plan import CollectiveKind, Mesh, MeshAxis
from dyorc.planner.plan.adapters import Adapters, Path, Spot, Tensor, seconds_on, tensor_of
from dyorc.planner.planners.baselines.follow import AxisPlan, Choices
from dyorc.planner.planners.forms import form_of, forms_in, placement_of
from dyorc.planner.program import Placement, Shard

_PS = 1e12
_MOVES_SHARDS = (CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL)


class PlacementChange(NamedTuple):
    """The cost of bringing a value into one more placement.

    Attributes:
        num_gathered: Whether a parameter is moved that should stay where it is.
        moved_ps: The time, in whole picoseconds: sums of these do not depend on the order.
        held: The placements in which the value is held afterwards, as a set of bits.
    """

    num_gathered: int
    moved_ps: int
    held: int


class PlacementChanges:
    """Computes and caches placement changes. Not thread-safe."""

    def __init__(
        self, choices: Choices, outer: Sequence[AxisPlan], axis: MeshAxis, cluster: Cluster, pinned: Iterable[str]
    ) -> None:
        """Begins with nothing known.

        Args:
            choices: The program.
            outer: What happens along the axes outside this one.
            axis: The axis. The mesh is on the first ranks of the cluster.
            cluster: What the price is of.
            pinned: Parameters that should stay where they are, as should what is made of them alone.
        """
        axes = (*(along.axis for along in outer), axis)
        self._mesh = Mesh(name="first", axes=axes, ranks=tuple(range(prod(each.size for each in axes if not each.is_time))))
        self._choices = choices
        self._outer = outer
        self._adapters = Adapters(seconds_on(cluster))
        self._adapters.divide(self._mesh, {along.axis.name: along.ratios for along in outer})
        self._pinned = _made_of(choices, pinned)
        self._spots: dict[tuple[str, int], Spot | None] = {}
        self._known: dict[tuple[str, int, int], PlacementChange | None] = {}

    def into(self, value: str, held: int, wanted: int) -> PlacementChange | None:
        """Returns what it takes until a value that is held in some placements is held in one more; None if nothing leads there.

        Args:
            value: Of the program.
            held: The placements, as a set of bits.
            wanted: The bit of the one more.
        """
        if held & wanted:
            return PlacementChange(0, 0, held)
        key = (value, held, wanted)
        if key not in self._known:
            ways = (self._way(value, held, 1 << form, wanted) for form in forms_in(held))
            self._known[key] = min(filter(None, ways), default=None)
        return self._known[key]

    def _way(self, value: str, held: int, before: int, wanted: int) -> PlacementChange | None:
        path = self._path(value, before, wanted)
        if path is None:
            return None
        for hop in path.hops:
            held |= bit_of(hop.target.layout[-1])
        is_gathered = value in self._pinned and any(hop.kind in _MOVES_SHARDS for hop in path.hops)
        return PlacementChange(int(is_gathered), round(path.cost * _PS), held)

    def _path(self, value: str, before: int, wanted: int) -> Path | None:
        start, end = self._spot(value, before), self._spot(value, wanted)
        if start is None or end is None:
            return None
        try:
            return self._adapters.path(self._tensor(value), start, end)
        except PlanError:
            return None

    def _spot(self, value: str, bit: int) -> Spot | None:
        """Where a value lies; None if it cannot be cut so."""
        if (value, bit) not in self._spots:
            placements = [
                *(along.placement_of(self._choices.program, value) for along in self._outer),
                placement_of(bit.bit_length() - 1),
            ]
            self._spots[value, bit] = self._spot_of(self._tensor(value), placements)
        return self._spots[value, bit]

    def _spot_of(self, tensor: Tensor, placements: Sequence[Placement]) -> Spot | None:
        layout: tuple[Placement, ...] = ()
        for placement in placements:
            if isinstance(placement, Shard) and placement.sizes is None:
                cut = self._adapters.shard(tensor, self._mesh, layout, placement.dim)
                if cut is None:
                    return None
                placement = cut
            layout = (*layout, placement)
        return Spot(self._mesh, layout)

    def _tensor(self, value: str) -> Tensor:
        return tensor_of(self._choices.program, self._choices.axes, value)


def _made_of(choices: Choices, names: Iterable[str]) -> set[str]:
    """Returns names, and all that is made of these values and nothing else, such as the transpose of a matrix."""
    derived = set(names)
    for node in choices.program.nodes:
        if node.inputs and derived.issuperset(node.inputs):
            derived.update(filter(None, node.outputs))
    return derived


def bit_of(placement: Placement) -> int:
    """Returns the bit of a placement in a set of forms."""
    return 1 << form_of(placement)
