"""Runs a plan for all ranks in one process: what its steps mean, in one place, for any kind of numbers.

The algebra says what numbers are: torch's tensors (to test plans and planners without processes), elements of a finite field,
or formulas (to prove plans). The runtime, which has one process for each rank, moves bytes by real collectives instead, and is
tested against this.

A kernel may make the terms of its sum slice by slice while the ring runs. Each rank makes its slices in the kernel's order, adds
each to what has come from the rank before it, and hands that on. If the ring needs the slices in another order, what is added up
is not the sum, and is refused.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from dyorc.errors import PlanError
from dyorc.planner.plan.layout import Coordinate, Region, extents, narrow, overlap, starts, within
from dyorc.planner.plan.plan import Kernel, Plan
from dyorc.planner.plan.steps import Apply, Collective, CollectiveKind, Step, Transfer
from dyorc.planner.program import Argument, Partial, Replicate, Shard
from dyorc.planner.program.graph import locate

Array = TypeVar("Array")


class Algebra(Protocol[Array]):
    """What arrays of some kind of numbers can do. Arrays are indexed by slices as NumPy's are."""

    def compute(
        self,
        op: str,
        arguments: Sequence[Argument],
        keywords: Sequence[tuple[str, Argument]],
        tensors: Mapping[str, Array],
        output_shape: tuple[int, ...],
    ) -> tuple[Array, ...]:
        """Computes one operation."""
        ...

    def zeros(self, shape: tuple[int, ...], like: Array) -> Array:
        """Returns zeros of a shape."""
        ...

    def add(self, left: Array, right: Array) -> Array:
        """Returns the sum of two arrays of one shape."""
        ...

    def concatenate(self, arrays: Sequence[Array], dim: int) -> Array:
        """Joins arrays along a dimension."""
        ...

    def put(self, target: Array, index: tuple[slice, ...], part: Array) -> Array:
        """Returns the target with a part of it replaced; may change and return the same array."""
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """Names one piece: a placed tensor, the rank that holds it, and the part of the work (0 where it does not vary in time)."""

    tensor: str
    rank: int
    part: int


def piece_at(plan: Plan, tensor: str, coordinate: Coordinate) -> Piece:
    """Returns the name of the piece of a placed tensor at a coordinate."""
    mesh = plan.mesh_of(tensor)
    time = mesh.time_axis
    return Piece(tensor, mesh.rank_at(coordinate), plan.part_of(tensor, None if time is None else coordinate[time]))


def piece_in(pieces: Mapping[Piece, Array], piece: Piece) -> Array:
    """Returns a piece.

    Raises:
        PlanError: No step has made it.
    """
    try:
        return pieces[piece]
    except KeyError:
        part = f", part {piece.part}" if piece.part else ""
        raise PlanError(f"rank {piece.rank} needs {piece.tensor}{part}, and no step has made it") from None


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
            region = narrow(self._plan.region(first, coordinate), self._cuts[first], cut.start, cut.stop)
            arguments = locate(step.arguments, starts(region))
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


def pieces_of(plan: Plan, tensor: str, value: Array, algebra: Algebra[Array]) -> dict[Piece, Array]:
    """Cuts a whole value into the pieces of a placed tensor, as a plan's sources lie when its ranks begin."""
    mesh, layout = plan.mesh_of(tensor), plan.tensors[tensor].layout
    pieces: dict[Piece, Array] = {}
    for coordinate in mesh.coordinates:
        cut = value[tuple(slice(a, b) for a, b in plan.region(tensor, coordinate))]  # type: ignore[index]
        is_zero = any(isinstance(p, Partial) and index for p, index in zip(layout, coordinate, strict=True))
        piece = algebra.zeros(extents(plan.region(tensor, coordinate)), value) if is_zero else cut
        pieces.setdefault(piece_at(plan, tensor, coordinate), piece)
    return pieces


def whole_of(plan: Plan, tensor: str, pieces: Mapping[Piece, Array], algebra: Algebra[Array]) -> Array:
    """Puts the pieces of a placed tensor together; of replicas, the first is taken."""
    value = plan.values[plan.tensors[tensor].value]
    whole = tuple((0, extent) for extent in value.shape)
    return _gathered(plan, tensor, whole, None, pieces, algebra)


def interpret(
    plan: Plan,
    sources: Mapping[str, Array],
    algebra: Algebra[Array],
    observe: Callable[[int, Step, Mapping[Piece, Array]], None] | None = None,
) -> dict[str, Array]:
    """Runs a plan for all its ranks.

    Args:
        plan: What to run.
        sources: For each source of the program, the whole value.
        algebra: The kind of numbers.
        observe: Called after each step with its number, the step, and all pieces so far.

    Returns:
        For each result, the whole value.

    Raises:
        PlanError: A step reads a piece that no step has made.
    """
    pieces: dict[Piece, Array] = {}
    for value, tensors in plan.sources.items():
        for tensor in tensors:
            pieces |= pieces_of(plan, tensor, sources[value], algebra)
    kernels = {kernel.first: kernel for kernel in plan.kernels if kernel.overlap is not None}
    first = 0
    for number, step in enumerate(plan.steps):
        if (kernel := kernels.get(number)) is not None and kernel.overlap is not None:
            pieces |= run_overlapped(plan, kernel, pieces, algebra)
            first = number + kernel.overlap.num_steps + 1
        if number >= first:
            pieces |= run_step(plan, step, pieces, algebra)
        if observe:
            observe(number, step, pieces)
    return {value: whole_of(plan, tensor, pieces, algebra) for value, tensor in plan.results.items()}


def run_step(plan: Plan, step: Step, pieces: Mapping[Piece, Array], algebra: Algebra[Array]) -> dict[Piece, Array]:
    """Runs one step on all ranks, and returns the pieces that it makes."""
    match step:
        case Apply():
            return _apply(plan, step, pieces, algebra)
        case Collective():
            return _collective(plan, step, pieces, algebra)
        case Transfer():
            return _transfer(plan, step, pieces, algebra)


def _apply(plan: Plan, step: Apply, pieces: Mapping[Piece, Array], algebra: Algebra[Array]) -> dict[Piece, Array]:
    mesh, made = plan.meshes[step.mesh], dict[Piece, Array]()
    for rank in mesh.ranks:
        inputs = {name: piece_in(pieces, Piece(name, rank, plan.part_of(name, step.part))) for name in step.inputs}
        coordinate = mesh.coordinate_of(rank, step.part)
        first = next(output for output in step.outputs if output)
        region = plan.region(first, coordinate)
        arguments = locate(step.arguments, starts(region))
        results = algebra.compute(step.op, arguments, step.keywords, inputs, extents(region))
        for output, result in zip(step.outputs, results, strict=True):
            if output:
                made[Piece(output, rank, plan.part_of(output, step.part))] = result
    return made


def _collective(plan: Plan, step: Collective, pieces: Mapping[Piece, Array], algebra: Algebra[Array]) -> dict[Piece, Array]:
    mesh, made = plan.mesh_of(step.source), dict[Piece, Array]()
    axis, time = mesh.axis_index(step.axis), mesh.time_axis
    before, after = plan.tensors[step.source].layout[axis], plan.tensors[step.target].layout[axis]
    for line in mesh.lines(axis):
        if time is not None and time != axis and step.part is not None and line[0][time] != step.part:
            continue
        sources = [piece_in(pieces, piece_at(plan, step.source, coordinate)) for coordinate in line]
        for index, coordinate in enumerate(line):
            match step.kind:
                case CollectiveKind.ALL_REDUCE | CollectiveKind.REDUCE_SCATTER:
                    piece = _sum(sources, algebra)
                case CollectiveKind.ALL_GATHER | CollectiveKind.ALL_TO_ALL:
                    assert isinstance(before, Shard)
                    piece = algebra.concatenate(sources, before.dim)
                case CollectiveKind.SLICE | CollectiveKind.MASK:
                    piece = sources[index]
            if step.kind is CollectiveKind.MASK and index:
                piece = algebra.zeros(plan.piece_shape(step.target, coordinate), piece)
            elif isinstance(after, Shard):
                piece = _cut(piece, after, index)
            made.setdefault(piece_at(plan, step.target, coordinate), piece)
    return made


def _transfer(plan: Plan, step: Transfer, pieces: Mapping[Piece, Array], algebra: Algebra[Array]) -> dict[Piece, Array]:
    mesh, layout, made = plan.mesh_of(step.target), plan.tensors[step.target].layout, dict[Piece, Array]()
    time = mesh.time_axis if step.part is not None else None  # one part's term of a sum over time stays that part's term
    for coordinate in mesh.coordinates:
        name = piece_at(plan, step.target, coordinate)
        if name in made or (step.part is not None and name.part != step.part):
            continue
        region = plan.region(step.target, coordinate)
        if any(isinstance(p, Partial) and coordinate[axis] and axis != time for axis, p in enumerate(layout)):
            made[name] = algebra.zeros(extents(region), next(iter(pieces.values())))
        else:
            made[name] = _gathered(plan, step.source, region, step.part, pieces, algebra)
    return made


def _gathered(
    plan: Plan, tensor: str, region: Region, part: int | None, pieces: Mapping[Piece, Array], algebra: Algebra[Array]
) -> Array:
    """Puts a region of a value together from the pieces of a placed tensor: copies of parts, and sums of partial sums."""
    mesh, layout = plan.mesh_of(tensor), plan.tensors[tensor].layout
    gathered: Array | None = None
    for coordinate in mesh.coordinates:
        is_copy = any(isinstance(p, Replicate) and index for p, index in zip(layout, coordinate, strict=True))
        if is_copy or (part is not None and mesh.time_axis is not None and coordinate[mesh.time_axis] != part):
            continue
        piece = piece_in(pieces, piece_at(plan, tensor, coordinate))
        gathered = algebra.zeros(extents(region), piece) if gathered is None else gathered
        outer = plan.region(tensor, coordinate)
        if (common := overlap(region, outer)) is not None:
            index = within(common, region)
            here, there = (..., *index), (..., *within(common, outer))  # with an ellipsis, a scalar's part is an array, too
            gathered = algebra.put(gathered, index, algebra.add(gathered[here], piece[there]))  # type: ignore[index]
    if gathered is None:
        raise PlanError(f"{tensor} has no pieces")
    return gathered


def _sum(arrays: Sequence[Array], algebra: Algebra[Array]) -> Array:
    total = arrays[0]
    for array in arrays[1:]:
        total = algebra.add(total, array)
    return total


def _cut(piece: Array, placement: Shard, index: int) -> Array:
    assert placement.sizes is not None
    start = sum(placement.sizes[:index])
    cut = (slice(None),) * placement.dim + (slice(start, start + placement.sizes[index]),)
    return piece[cut]  # type: ignore[index]
