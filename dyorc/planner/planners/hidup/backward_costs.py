"""What the forward pass makes the backward pass communicate: HiDup's conjugate of each reform, read off the strategies.

An operation that reads a tensor whole and works on a part of its output makes a part of a sum of the tensor's gradient. What is
scattered or exchanged on the way forward is gathered or exchanged on the way back. The search only sorts by this, to decide
which states to keep; what it says of a program's time is counted on the backward nodes themselves.
"""

from bisect import bisect_left

from dyorc.planner.planners.hidup.items import Items, NodeItem, ReductionItem
from dyorc.planner.planners.hidup.microbatch_costs import Conversion, MicrobatchCosts, TimedTensor
from dyorc.planner.program import PARTIAL, REPLICATE, Partial, Placement, Replicate, Shard, Strategy, ValueKind
from dyorc.planner.program.graph import Phase

_HEAVY = frozenset(("mm", "bmm", "convolution", "convolution_backward", "embedding", "embedding_dense_backward"))


class BackwardCosts:
    """Estimates what the backward pass will communicate, and when each forward item no longer matters."""

    def __init__(self, items: Items, costs: MicrobatchCosts) -> None:
        self._items = items
        self._costs = costs
        parameters = [costs.program.values[name].num_bytes for name in costs.program.parameters]
        self._largest_bytes = max(parameters, default=0)
        self._has_gradient = _with_gradients(items)
        forward = [i for i, item in enumerate(items.items) if isinstance(item, NodeItem) and item.node.phase is Phase.FORWARD]
        self.turn = forward[-1] if forward else -1
        """The index of the last item of the forward pass."""
        self._due = self._due_at()

    def of(self, item: NodeItem, strategy: Strategy) -> float:
        """The seconds that the backward pass will communicate because of an item's strategy."""
        if item.node.phase is not Phase.FORWARD or not any(isinstance(placement, Shard) for placement in strategy.outputs):
            return 0.0
        seconds = 0.0
        for tensor, placement in dict(zip(item.inputs, strategy.inputs, strict=True)).items():
            if placement == REPLICATE and tensor.value in self._has_gradient:
                seconds += self._cost(tensor, PARTIAL, REPLICATE)
        return seconds

    def left(self, index: int, ahead_s: float, history: list[float] | None) -> float:
        """What is still to come of it after an item."""
        return ahead_s if history is None else history[min(self._due[index], len(history) - 1)]

    def is_heavy(self, item: NodeItem) -> bool:
        """Whether it is worth communicating more than an operation needs, so that it computes less."""
        return item.node.op.split(".")[1] in _HEAVY

    def shards(self, tensor: TimedTensor, *, is_exact: bool) -> list[Placement]:
        """How a parameter that is used whole may be held in shards: along the dimension with most units, or along any."""
        axes, shape = self._costs.halves.axes, self._costs.program.values[tensor.value].shape
        dims = [dim for dim in range(len(shape)) if axes.extent_of(tensor.value, dim) > 1]
        if not is_exact:
            is_small = self._costs.program.values[tensor.value].num_bytes * 64 < self._largest_bytes
            dims = [] if is_small else sorted(dims, key=lambda dim: -axes.extent_of(tensor.value, dim))[:1]
        return [Shard(dim) for dim in dims]

    def back(self, conversion: Conversion) -> float:
        """The seconds that the backward pass will communicate because of a conversion on the way forward."""
        if conversion.tensor.value not in self._has_gradient:
            return 0.0
        match conversion.before, conversion.after:
            case Partial(), Shard():
                return self._cost(conversion.tensor, conversion.after, REPLICATE)
            case Replicate() | Shard(), Shard():
                return self._cost(conversion.tensor, conversion.after, conversion.before)
            case _:
                return 0.0

    def _cost(self, tensor: TimedTensor, before: Placement, after: Placement) -> float:
        conversion = self._costs.conversion(tensor, before, after)
        return conversion.cost_s if conversion else 0.0

    def _due_at(self) -> list[int]:
        """For each item, up to which item of the forward pass what it caused is still to come."""
        last_read: dict[str, int] = {}
        for index, item in enumerate(self._items.items):
            match item:
                case NodeItem() if index > self.turn:
                    last_read |= {tensor.value: index for tensor in item.inputs}
                case ReductionItem():
                    last_read[item.owner.value] = index
                case _:
                    pass
        releases = [0] * (self.turn + 2)
        for index, item in enumerate(self._items.items[: self.turn + 1]):
            if isinstance(item, NodeItem):
                used = [t for t in (*item.inputs, *item.outputs) if t and t.value in self._has_gradient]
                releases[index] = max((last_read.get(tensor.value, 0) for tensor in used), default=0)
        # release[i] falls with i, roughly: what is used first is needed last. Made monotone from the end.
        for index in range(len(releases) - 2, -1, -1):
            releases[index] = max(releases[index], releases[index + 1])
        falling = [-release for release in releases]
        return [bisect_left(falling, -index) for index in range(len(self._items.items))]


def _with_gradients(items: Items) -> set[str]:
    """The values whose gradients are computed: parameters, and what depends on them, other than integers."""
    values = {tensor.value for tensor, kind in items.sources.items() if kind is ValueKind.PARAMETER}
    for item in items.items:
        if isinstance(item, NodeItem) and item.node.phase is Phase.FORWARD and any(t.value in values for t in item.inputs):
            values.update(output.value for output in item.outputs if output)
    return values
