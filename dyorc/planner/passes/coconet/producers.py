"""What makes the terms of a sum over ranks, if any slice of them can be computed by itself."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dyorc.errors import PlanError
from dyorc.planner.plan import Apply, Plan, Step
from dyorc.planner.plan.kernels import Slicing, slicings
from dyorc.planner.program import Axes, Node, Partial, Shard, TensorProgram, strategies_of


@dataclass(frozen=True, slots=True)
class Producers:
    """Steps that make what is reduced, in order.

    Attributes:
        steps: The steps.
        cuts: For each placed tensor that a slice is or needs a part of only, along which dimension.
    """

    steps: tuple[Apply, ...]
    cuts: Mapping[str, int]


def producers_of(plan: Plan, reducing: Step, dim: int, program: TensorProgram, axes: Axes) -> Producers:
    """Returns a product, and what lies between it and a sum over ranks.

    Args:
        plan: Whose steps are looked through.
        reducing: The step that sums.
        dim: Along which dimension of the sum slices are needed.
        program: What the plan distributes.
        axes: The program's.

    Raises:
        PlanError: There is no product, slices of it cannot be computed by themselves, or something else reads it.
    """
    (reduced,) = reducing.inputs
    search = _Search(program, axes, {reduced: dim}, plan.results.values())
    for step in reversed(plan.steps):
        if step is not reducing:
            search.take(step)
    if not search.has_product:
        raise PlanError(f"overlap: {reduced} is not made by a product that can be computed in slices along dimension {dim}")
    return Producers(tuple(reversed(search.steps)), {name: cut for name, cut in search.cuts.items() if cut is not None})


class _Search:
    """Goes back from a sum, to products and no further."""

    def __init__(self, program: TensorProgram, axes: Axes, cuts: dict[str, int | None], outside: Iterable[str]) -> None:
        self._program = program
        self._axes = axes
        self._outside = set(outside)  # what must be there whole
        self.steps: list[Apply] = []
        self.cuts = cuts
        self.has_product = False

    def take(self, step: Step) -> None:
        """Takes a step if only steps that were taken read what it makes, and if slices of that can be computed."""
        made = [name for name in step.outputs if name]
        way = None
        if isinstance(step, Apply) and len(made) == 1 and self.cuts.get(made[0]) is not None and made[0] not in self._outside:
            way = self._way(step)
        if not isinstance(step, Apply) or way is None:
            self._outside.update(step.inputs)
            return
        self.steps.append(step)
        self.cuts |= zip(step.inputs, way[0], strict=True)
        if self._is_product(self._program.node_named[step.node]):
            self.has_product = True
            self._outside.update(step.inputs)

    def _way(self, step: Apply) -> Slicing | None:
        """How to compute what is wanted of a step from slices that others of its readers want, too."""
        for way in slicings(self._program, self._program.node_named[step.node], self._axes):
            cuts = dict(zip(step.inputs, way[0], strict=True))
            is_one = all(cuts[name] == cut for name, cut in zip(step.inputs, way[0], strict=True))
            fits = all(self.cuts.get(name, cut) == cut for name, cut in cuts.items())
            if is_one and fits and all(self.cuts[name] == cut for name, cut in zip(step.outputs, way[1], strict=True) if name):
                return way
        return None

    def _is_product(self, node: Node) -> bool:
        """Whether it sums products of two tensors over a dimension that both have."""
        for strategy in strategies_of(self._program, node, self._axes):
            num_cut = sum(isinstance(placed, Shard) for placed in strategy.inputs)
            if num_cut > 1 and all(isinstance(p, Partial) for n, p in zip(node.outputs, strategy.outputs, strict=True) if n):
                return True
        return False
