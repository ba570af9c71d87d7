"""What a kernel of a plan consists of."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from dyorc.errors import PlanError
from dyorc.planner.plan.plan import Kernel, Overlap, Plan
from dyorc.planner.plan.steps import Algorithm, Apply, Collective, CollectiveKind
from dyorc.planner.program import REPLICATE, Axes, Node, Partial, Shard, Strategy, TensorProgram, axes_of, strategies_of

NUM_TERMS = 2
"""How many terms of a sum a rank holds at most that the ring has not taken yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The steps of a kernel.

    Attributes:
        kernel: Which it is.
        products: What makes the terms that are reduced, if the kernel does that, too.
        scatter: The reduce-scatter.
        applies: What runs on the slices, element by element.
        gathers: The all-gathers of some of what that makes.
        dim: Along which the slices are cut.
    """

    kernel: Kernel
    products: tuple[Apply, ...]
    scatter: Collective
    applies: tuple[Apply, ...]
    gathers: tuple[Collective, ...]
    dim: int

    @property
    def reads(self) -> tuple[str, ...]:
        """The placed tensors that the kernel reads from outside."""
        made = {self.scatter.target, *(name for step in (*self.products, *self.applies) for name in step.outputs)}
        names = (name for step in (*self.products, self.scatter, *self.applies) for name in step.inputs if name not in made)
        return tuple(dict.fromkeys(names))

    def kept(self, plan: Plan) -> tuple[str, ...]:
        """The placed tensors that it makes for others, and results; the others never exist whole."""
        inside = range(self.kernel.first, self.kernel.end)
        read = {name for index, step in enumerate(plan.steps) if index not in inside for name in step.inputs}
        read.update(plan.results.values())
        slices = [self.scatter.target, *(name for step in self.applies for name in step.outputs if name)]
        return (*(step.target for step in self.gathers), *(name for name in slices if name in read))

    def live_bytes(self, plan: Plan, bytes_of: Callable[[str], int]) -> int:
        """What is there at most at a time of all that the kernel makes in slices; of one chunk, its part.

        Args:
            plan: Whose kernel it is.
            bytes_of: Returns the bytes of a rank's slice of a placed tensor.
        """
        wanted = {*self.kept(plan), *(step.source for step in self.gathers)}
        last = {name: index for index, step in enumerate(self.applies) for name in (*step.outputs, *step.inputs)}
        held = {self.scatter.target: bytes_of(self.scatter.target)}
        most = sum(held.values())
        for index, step in enumerate(self.applies):
            held |= {name: bytes_of(name) for name in step.outputs if name}
            most = max(most, sum(held.values()))
            held = {name: size for name, size in held.items() if name in wanted or last.get(name, -1) > index}
        return most


def parts_of(plan: Plan, kernel: Kernel) -> Parts:
    """Returns the steps of a kernel.

    Raises:
        PlanError: They are not a reduce-scatter, what runs on its slices, and all-gathers of that, along one axis of ranks; or
            what makes the terms does not fit the ring.
    """
    num_products = 0 if kernel.overlap is None else kernel.overlap.num_steps
    steps = plan.steps[kernel.first : kernel.end]
    products, steps = steps[:num_products], steps[num_products:]
    scatter, others = (steps[0], steps[1:]) if steps else (None, ())
    if not isinstance(scatter, Collective) or scatter.kind is not CollectiveKind.REDUCE_SCATTER:
        raise PlanError(f"{_where(kernel)} does not begin with a reduce-scatter{' after what makes its terms' * bool(products)}")
    applies = tuple(step for step in others if isinstance(step, Apply))
    gathers = tuple(step for step in others if isinstance(step, Collective))
    mesh = plan.mesh_of(scatter.source)
    axis = mesh.axis_index(scatter.axis)
    slices = plan.tensors[scatter.target].layout[axis]
    is_right = all(step.kind is CollectiveKind.ALL_GATHER and step.axis == scatter.axis for step in gathers)
    made = [scatter.target, *(name for step in applies for name in step.outputs if name)]
    is_right &= all(plan.tensors[name].layout[axis] == slices for name in made) and all(g.source in made for g in gathers)
    if others != (*applies, *gathers) or not is_right or not isinstance(slices, Shard) or mesh.time_axis is not None:
        raise PlanError(f"{_where(kernel)} is more than a reduce-scatter, what runs on its slices, and all-gathers of that")
    if kernel.num_chunks < 1:
        raise PlanError(f"{_where(kernel)} has {kernel.num_chunks} chunks")
    parts = Parts(
        kernel=kernel,
        products=tuple(step for step in products if isinstance(step, Apply)),
        scatter=scatter,
        applies=applies,
        gathers=gathers,
        dim=slices.dim,
    )
    if kernel.overlap is not None:
        _check_overlap(plan, parts, kernel.overlap)
    return parts


def ring_order(num_ranks: int) -> tuple[int, ...]:
    """Returns which slice a rank hands on first, second, ... and last keeps, as places along the axis after its own."""
    return tuple(reversed(range(num_ranks)))


_NOT_EACH = "which does not compute element by element"


def _where(kernel: Kernel) -> str:
    return f"the kernel of steps {kernel.first} to {kernel.end - 1}"


def _check_overlap(plan: Plan, parts: Parts, overlap: Overlap) -> None:
    """Refuses terms that are not there when the ring sends them, or that another step reads whole."""
    where, scatter, mesh = _where(parts.kernel), parts.scatter, plan.mesh_of(parts.scatter.source)
    axis = mesh.axis_index(scatter.axis)
    expected = ring_order(mesh.axes[axis].size)
    if overlap.order != expected:
        raise PlanError(f"{where} makes its slices in the order {list(overlap.order)}; the ring sends them in {list(expected)}")
    if scatter.algorithm is not Algorithm.RING:
        raise PlanError(
            f"{where} makes what it reduces while it sends, which only a ring does; its algorithm is {scatter.algorithm}"
        )
    if overlap.num_steps < 1 or len(parts.products) != overlap.num_steps:
        raise PlanError(f"{where} has {len(parts.products)} steps that compute what it reduces, and says {overlap.num_steps}")
    made = {name for step in parts.products for name in step.outputs if name}
    inside = range(parts.kernel.first, parts.kernel.first + overlap.num_steps + 1)
    read = {name for index, step in enumerate(plan.steps) if index not in inside for name in step.inputs}
    if left := made & (read | set(plan.results.values())):
        raise PlanError(f"{where} never has all of {sorted(left)[0]}, which is read elsewhere")
    if scatter.source not in made or not made <= overlap.cuts.keys() or overlap.cuts[scatter.source] != parts.dim:
        raise PlanError(f"{where} does not make {scatter.source} in slices along dimension {parts.dim}")
    for name, dim in overlap.cuts.items():
        placement = plan.tensors[name].layout[axis]
        if isinstance(placement, Shard) and placement.dim == dim:
            raise PlanError(f"{where} cuts {name} along dimension {dim}, which {scatter.axis} has cut already")


def check_kernels(program: TensorProgram, plan: Plan) -> Iterator[tuple[Kernel, str]]:
    """Yields the kernels that would not compute what their steps compute, and why."""
    axes = axes_of(program) if plan.kernels else None
    for kernel in plan.kernels:
        try:
            parts = parts_of(plan, kernel)
        except (PlanError, KeyError) as error:  # a tensor that is not there
            yield kernel, str(error)
            continue
        assert axes is not None
        for step in parts.applies:
            node = program.node_named.get(step.node)
            if node is None or not is_pointwise(program, node, axes):
                yield (
                    kernel,
                    f"{_where(kernel)} runs {step.node} ({step.op}) in chunks, {_NOT_EACH}",
                )
        for step in parts.products:
            node, cuts = program.node_named.get(step.node), (kernel.overlap.cuts if kernel.overlap else {})
            if node is None or not any(way == cuts_in(step, cuts) for way in slicings(program, node, axes)):
                yield kernel, f"{_where(kernel)} runs {step.node} ({step.op}) slice by slice, which cannot be cut so"


Slicing: TypeAlias = tuple[tuple[int | None, ...], tuple[int | None, ...]]
"""Along which dimension each input of an operation, and each output, is cut; None: it is read whole."""


def cuts_in(step: Apply, cuts: Mapping[str, int]) -> Slicing:
    """Returns how a step's tensors are cut."""
    return tuple(cuts.get(name) for name in step.inputs), tuple(cuts.get(name) for name in step.outputs)


def slicings(program: TensorProgram, node: Node, axes: Axes) -> Iterator[Slicing]:
    """Yields the ways to compute any part of what a node makes from the same part of some inputs, and all of the others."""
    for strategy in strategies_of(program, node, axes):
        if not all(isinstance(placed, Shard) for name, placed in zip(node.outputs, strategy.outputs, strict=True) if name):
            continue
        placed = list(zip((*node.inputs, *node.outputs), (*strategy.inputs, *strategy.outputs), strict=True))
        cuts = tuple(p.dim if isinstance(p, Shard) else None for _, p in placed)
        # in whole units only, where a dimension is a product of several
        units = [
            axes.extent_of(name, dim) == program.values[name].shape[dim]
            for (name, _), dim in zip(placed, cuts, strict=True)
            if name and dim is not None
        ]
        if all(units) and not any(isinstance(p, Partial) for _, p in placed):
            yield cuts[: len(node.inputs)], cuts[len(node.inputs) :]


def is_pointwise(program: TensorProgram, node: Node, axes: Axes) -> bool:
    """Whether each element of what a node makes depends on the elements at its place only, so that any part of it can be run."""
    shapes = {program.values[name].shape for name in node.outputs if name}
    if len(shapes) != 1:
        return False
    shape = shapes.pop()
    strategies = strategies_of(program, node, axes)
    return all(any(_cuts_alike(program, node, s, dim) for s in strategies) for dim, extent in enumerate(shape) if extent > 1)


def _cuts_alike(program: TensorProgram, node: Node, strategy: Strategy, dim: int) -> bool:
    """Whether a strategy cuts a dimension of the output, and the same one of every input that has it."""
    shape = next(program.values[name].shape for name in node.outputs if name)
    if any(placed != Shard(dim) for name, placed in zip(node.outputs, strategy.outputs, strict=True) if name):
        return False
    for name, placed in zip(node.inputs, strategy.inputs, strict=True):
        own = program.values[name].shape
        at = dim - len(shape) + len(own)  # shapes are aligned at their ends
        if placed != (REPLICATE if at < 0 or own[at] == 1 else Shard(at)) or (at >= 0 and own[at] not in (1, shape[dim])):
            return False
    return True
