"""What a kernel means that makes the terms of its sum slice by slice while the ring runs: for all ranks, hop by hop.

Each rank makes its slices in the kernel's order, adds each to what has come from the rank before it, and hands that on. So if
the order is not the one in which the ring needs the slices, what is added up here is not the sum, and is refused.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic

from dyorc.errors import PlanError
from dyorc.planner.plan.algebra import Algebra, Array, Piece, piece_at, piece_in
from dyorc.planner.plan.layout import Coordinate, extents, narrowed, starts
from dyorc.planner.plan.plan import Kernel, Plan
from dyorc.planner.plan.steps import Apply, Collective
from dyorc.planner.program import Shard
from dyorc.planner.program.graph import located


def run_overlapped(plan: Plan, kernel: Kernel, pieces: Mapping[Piece, Array], algebra: Algebra[Array]) -> dict[Piece, Array]:
    """Runs what makes a kernel's terms, and its reduce-scatter, and returns the slices.

    Raises:
        PlanError: It is no such kernel, or a rank adds another slice than the one that comes.
    """
    overlap, made = kernel.overlap, dict[Piece, Array]()
    assert overlap is not None
    scatter = plan.steps[kernel.first + overlap.num_steps]
    if not isinstance(scatter, Collective):
        raise PlanError(f"step {kernel.first + overlap.num_steps} reduces nothing")
    axis = plan.mesh_of(scatter.source).axis_index(scatter.axis)
    slices = plan.tensors[scatter.target].layout[axis]
    assert isinstance(slices, Shard)
    terms = _Terms(plan, kernel, pieces, algebra)
    for line in plan.mesh_of(scatter.source).lines(axis):
        bounds = [plan.region(scatter.target, coordinate)[slices.dim] for coordinate in line]
        base = plan.region(scatter.source, line[0])[slices.dim][0]
        cuts = [slice(start - base, stop - base) for start, stop in bounds]
        totals = _ring_sums(overlap.order, lambda at, which, line=line, cuts=cuts: terms.make(line[at], cuts[which]), algebra)
        for coordinate, total in zip(line, totals, strict=True):
            made[piece_at(plan, scatter.target, coordinate)] = total
    return made


class _Terms(Generic[Array]):
    """Makes ranks' terms of slices."""

    def __init__(self, plan: Plan, kernel: Kernel, pieces: Mapping[Piece, Array], algebra: Algebra[Array]) -> None:
        assert kernel.overlap is not None
        self._plan = plan
        self._steps = plan.steps[kernel.first : kernel.first + kernel.overlap.num_steps]
        self._cuts = kernel.overlap.cuts
        self._pieces = pieces
        self._algebra = algebra

    def make(self, coordinate: Coordinate, cut: slice) -> Array:
        made: dict[str, Array] = {}
        for step in self._steps:
            assert isinstance(step, Apply)
            inputs = {name: made[name] if name in made else self._part(name, coordinate, cut) for name in step.inputs}
            first = next(name for name in step.outputs if name)
            region = narrowed(self._plan.region(first, coordinate), self._cuts[first], cut.start, cut.stop)
            arguments = located(step.arguments, starts(region))
            results = self._algebra.compute(step.op, arguments, step.keywords, inputs, extents(region))
            made |= {name: result for name, result in zip(step.outputs, results, strict=True) if name}
        return next(reversed(made.values()))

    def _part(self, name: str, coordinate: Coordinate, cut: slice) -> Array:
        whole = piece_in(self._pieces, piece_at(self._plan, name, coordinate))
        return whole[(slice(None),) * self._cuts[name] + (cut,)] if name in self._cuts else whole  # type: ignore[index]


def _ring_sums(order: Sequence[int], make: Callable[[int, int], Array], algebra: Algebra[Array]) -> list[Array]:
    """What each rank holds after the last hop. `make` makes a rank's term of a slice, both by their places along the axis."""
    num = len(order)
    passing = [((at + order[0]) % num, make(at, (at + order[0]) % num)) for at in range(num)]
    for offset in order[1:]:
        arriving = [passing[at - 1] for at in range(num)]
        passing = []
        for at, (which, total) in enumerate(arriving):
            if (own := (at + offset) % num) != which:
                raise PlanError(f"the rank at {at} makes slice {own} of a sum while slice {which} comes round the ring")
            passing.append((own, algebra.add(total, make(at, own))))
    return [total for _, total in passing]
