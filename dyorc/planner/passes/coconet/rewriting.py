"""CoCoNeT's transformations, on the steps of a plan: each is an equation between layouts, and refused where it does not hold.

    split      an all-reduce is a reduce-scatter and an all-gather                   AR = AG . RS
    narrow     what is only read in slices is made in slices                         slice f(r) = f(slice r)
    reorder    what runs on the gathered whole runs on slices, and is gathered after     f(AG x, r) = AG f(x, slice r)
    as_slice   what lasts from step to step, or is a result, lies in slices: nothing is gathered for it
    fuse       a reduce-scatter, what runs on its slices, and the all-gathers after it become one kernel, done in chunks
    overlap    the kernel makes what it reduces, too, slice by slice while the ring runs       slice f(x, w) = f(x, slice w)

CoCoNeT's Local, Replicated and Sliced are the placements Partial, Replicate and Shard; which operations may run on slices is what
`strategies_of` says. So a rewritten plan is proved like any other.

Source: CoCoNeT (arXiv 2105.05720, ASPLOS'22), section 3.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dyorc.errors import PlanError
from dyorc.planner.passes.coconet.producers import producers_of
from dyorc.planner.plan import Algorithm, Apply, Collective, CollectiveKind, Kernel, Layout, MeshAxis, Overlap, Placed, Plan, Step
from dyorc.planner.plan.adapters import Adapters, bytes_moved, inner_cut, tensor_of
from dyorc.planner.plan.kernels import is_pointwise, ring_order
from dyorc.planner.plan.steps import kind_between
from dyorc.planner.program import REPLICATE, Partial, Placement, Replicate, Shard, Strategy, TensorProgram, axes_of, strategies_of
from dyorc.planner.program.graph import rename_values


class Rewriting:
    """A plan that is being rewritten. Not for several threads."""

    def __init__(self, plan: Plan, program: TensorProgram) -> None:
        """Begins with a plan of the program.

        Raises:
            PlanError: It is another program's.
        """
        plan.check_program(program)
        self._plan = plan
        self._program = program
        self._axes = axes_of(program)
        self._steps: list[Step] = list(plan.steps)
        self._tensors = dict(plan.tensors)
        self._sources = dict(plan.sources)
        self._results = dict(plan.results)
        self._groups: list[_Group] = []

    def plan(self) -> Plan:
        """Returns the rewritten plan."""
        used = {name for step in self._steps for name in (*step.inputs, *step.outputs)}
        used.update(self._results.values(), *self._sources.values())
        place = {id(step): index for index, step in enumerate(self._steps)}
        kernels = (
            Kernel(place[id(group.steps[0])], place[id(group.steps[-1])] + 1, group.num_chunks, group.overlap)
            for group in self._groups
        )
        return replace(
            self._plan,
            tensors={name: placed for name, placed in self._tensors.items() if name in used},
            steps=tuple(self._steps),
            sources=dict(self._sources),
            results=dict(self._results),
            kernels=tuple(sorted(kernels, key=lambda kernel: kernel.first)),
        )

    def split(self, reduced: str, dim: int | None = None) -> str:
        """Makes an all-reduce a reduce-scatter and an all-gather.

        Args:
            reduced: The placed tensor that the all-reduce makes.
            dim: Along which dimension it is cut; None: the one that can be cut into most.

        Returns:
            The slices.

        Raises:
            PlanError: No all-reduce of ranks makes it, or it cannot be cut.
        """
        step = self._maker(reduced, CollectiveKind.ALL_REDUCE, "split")
        placed, index = self._tensors[step.source], self._axis(step)
        layout = self._sliced(placed, index, dim)
        scattered = self._named(placed, layout)
        at = self._steps.index(step)
        self._steps[at : at + 1] = [
            replace(step, kind=CollectiveKind.REDUCE_SCATTER, target=scattered),
            replace(step, kind=CollectiveKind.ALL_GATHER, source=scattered),
        ]
        return scattered

    def reorder(self, gathered: str) -> tuple[str, ...]:
        """Runs the readers of a gathered tensor on its slices, and gathers their results instead.

        Args:
            gathered: The placed tensor that an all-gather makes.

        Returns:
            The tensors that are gathered now, each from slices.

        Raises:
            PlanError: No all-gather of ranks makes it, nothing reads it, or a reader cannot run on slices.
        """
        gather = self._maker(gathered, CollectiveKind.ALL_GATHER, "reorder")
        readers = [step for step in self._steps if gathered in step.inputs]
        if not readers:
            raise PlanError(f"reorder: nothing reads {gathered}")
        gathered_now: list[str] = []
        changes: list[tuple[Step, list[Step]]] = []
        for step in readers:
            if self._is_inverse(step, gather):
                self._steps.remove(step)
                self._rename(step.outputs[0], gather.source)
                continue
            if not isinstance(step, Apply):
                raise PlanError(f"reorder: {gathered} is read by {_description(step)}, which is no computation")
            changes.append((step, self._on_slices(step, gather, gathered_now)))
        for step, instead in changes:
            at = self._steps.index(step)
            self._steps[at : at + 1] = instead
        self._drop_unread([gathered])
        return tuple(gathered_now)

    def narrow(self, cut: str) -> None:
        """Makes the producer of a tensor that is only read in slices compute the slices alone: slice f(r) = f(slice r).

        Args:
            cut: The slices.

        Raises:
            PlanError: They are not cut out of the whole, the whole is read, too, or what makes it cannot run on slices.
        """
        cutting = self._maker(cut, CollectiveKind.SLICE, "narrow")
        whole, index = cutting.source, self._axis(cutting)
        slices = self._tensors[cut].layout[index]
        step = next((step for step in self._steps if whole in step.outputs), None)
        if not isinstance(step, Apply) or len([name for name in step.outputs if name]) > 1:
            raise PlanError(f"narrow: {whole} is made by {_description(step) if step else 'no step'}, which makes no slices")
        if whole in self._results.values() or any(whole in other.inputs for other in self._steps if other is not cutting):
            raise PlanError(f"narrow: all of {whole} is read")
        assert isinstance(slices, Shard)
        ways = (way for way in self._ways(step, slices, index) if way.outputs[0] == Shard(slices.dim))
        if (strategy := next(ways, None)) is None:
            raise PlanError(f"narrow: {_description(step)} cannot make slices along dimension {slices.dim}")
        names, before = self._inputs(step, strategy, slices, cutting, index)
        at = self._steps.index(step)
        self._steps[at : at + 1] = [*before, replace(_with_inputs(step, names), outputs=(cut,))]
        self._steps.remove(cutting)

    def as_slice(self, name: str) -> None:
        """Keeps a source that the step changes, or a result, in slices from step to step.

        Args:
            name: A state or parameter of the program, or a result.

        Raises:
            PlanError: It is neither, or something reads the whole of it.
        """
        result = self._program.updates.get(name, name)
        if result not in self._results:
            raise PlanError(f"as_slice: {name} is neither changed by the step nor a result of {self._program.name}")
        gather = self._maker(self._results[result], CollectiveKind.ALL_GATHER, f"as_slice {name}")
        layout = self._tensors[gather.source].layout
        if name in self._sources:
            self._hold_slices(name, layout)
        self._results[result] = gather.source
        self._drop_unread([gather.target])

    def fuse(self, scattered: str, num_chunks: int = 4) -> None:
        """Makes one kernel of a reduce-scatter, all that runs on its slices, and the all-gathers of what that makes.

        Args:
            scattered: The placed tensor that the reduce-scatter makes.
            num_chunks: Into how many chunks each slice is cut: one is computed while another is on its way.

        Raises:
            PlanError: No reduce-scatter makes it, or something else must run in between.
        """
        first = self._maker(scattered, CollectiveKind.REDUCE_SCATTER, "fuse")
        chain: list[Step] = [first]
        made = {scattered}
        for step in self._steps[self._steps.index(first) + 1 :]:
            is_gather = isinstance(step, Collective) and step.kind is CollectiveKind.ALL_GATHER and step.axis == first.axis
            if not made.isdisjoint(step.inputs) and (is_gather or (isinstance(step, Apply) and self._is_pointwise(step))):
                chain.append(step)
                made.update(() if is_gather else filter(None, step.outputs))
        chain[1:1] = self._only_for(chain)
        outputs = {name for step in chain for name in step.outputs if name}
        last = max(self._steps.index(step) for step in chain)
        between = [step for step in self._steps[:last] if step not in chain]
        for step in between:
            if not outputs.isdisjoint(step.inputs):
                raise PlanError(
                    f"fuse: {_description(step)} reads {sorted(outputs & set(step.inputs))[0]} before the kernel ends"
                )
        ordered = [chain[0], *(s for s in chain if isinstance(s, Apply)), *(s for s in chain[1:] if isinstance(s, Collective))]
        self._steps = [*between, *ordered, *(step for step in self._steps[last + 1 :] if step not in chain)]
        self._groups.append(_Group(ordered, num_chunks))

    def overlap(self, scattered: str) -> None:
        """Moves the producer into the kernel, which computes slice by slice in the ring's order, while the ring runs.

        Args:
            scattered: The placed tensor that the kernel's reduce-scatter makes.

        Raises:
            PlanError: No kernel makes it, no product makes what is reduced, or slices of that cannot be computed by themselves.
        """
        first = self._maker(scattered, CollectiveKind.REDUCE_SCATTER, "overlap")
        group = next((group for group in self._groups if group.steps[0] is first), None)
        if group is None:
            raise PlanError(f"overlap: {scattered} is not made by a kernel: fuse it first")
        index = self._axis(first)
        slices = self._tensors[scattered].layout[index]
        assert isinstance(slices, Shard)
        plan = replace(self._plan, steps=tuple(self._steps), results=self._results, tensors=self._tensors)
        made = producers_of(plan, first, slices.dim, self._program, self._axes)
        ring = replace(first, algorithm=Algorithm.RING)
        kept = [step for step in self._steps if all(step is not other for other in made.steps)]
        at = next(number for number, step in enumerate(kept) if step is first)
        self._steps = [*kept[:at], *made.steps, ring, *kept[at + 1 :]]
        group.steps[:1] = [*made.steps, ring]
        group.overlap = Overlap(num_steps=len(made.steps), order=ring_order(self._mesh_axis(first).size), cuts=made.cuts)

    def is_read(self, tensor: str) -> bool:
        """Whether a step reads a placed tensor."""
        return any(tensor in step.inputs for step in self._steps)

    def is_read_by_one(self, tensor: str) -> bool:
        """Whether one step reads a placed tensor that is no result, and computes element by element."""
        readers = [step for step in self._steps if tensor in step.inputs]
        return (
            len(readers) == 1
            and tensor not in self._results.values()
            and isinstance(readers[0], Apply)
            and self._is_pointwise(readers[0])
        )

    @property
    def cuts(self) -> tuple[str, ...]:
        """The slices that are cut out of wholes by ranks, the last first."""
        steps = (step for step in reversed(self._steps) if isinstance(step, Collective))
        return tuple(s.target for s in steps if s.kind is CollectiveKind.SLICE and not self._mesh_axis(s).is_time)

    def is_gathered(self, result: str) -> bool:
        """Whether a result of the program is gathered from slices in the end."""
        name = self._results[result]
        makers = [step for step in self._steps if name in step.outputs]
        return all(isinstance(step, Collective) and step.kind is CollectiveKind.ALL_GATHER for step in makers) and bool(makers)

    # -- what the transformations share ------------------------------------------------------------------------------------

    def _maker(self, tensor: str, kind: CollectiveKind, transformation: str) -> Collective:
        for step in self._steps:
            if tensor in step.outputs:
                if isinstance(step, Collective) and step.kind is kind and not self._mesh_axis(step).is_time:
                    return step
                raise PlanError(f"{transformation}: {tensor} is made by {_description(step)}, and a {kind} of ranks was expected")
        raise PlanError(f"{transformation}: no step makes {tensor}, and a {kind} of ranks was expected")

    def _mesh_axis(self, step: Collective) -> MeshAxis:
        mesh = self._plan.meshes[self._tensors[step.source].mesh]
        return mesh.axes[mesh.axis_index(step.axis)]

    def _axis(self, step: Collective) -> int:
        return self._plan.meshes[self._tensors[step.source].mesh].axis_index(step.axis)

    def _sliced(self, placed: Placed, index: int, wanted: int | None) -> Layout:
        """The layout with slices along an axis of the mesh: of the wanted dimension, or of the one that has most units."""
        value, mesh = self._program.values[placed.value], self._plan.meshes[placed.mesh]
        tensor = tensor_of(self._program, self._axes, value.name)
        dims = range(len(value.shape)) if wanted is None else [wanted] if wanted < len(value.shape) else []
        for dim in sorted(dims, key=lambda dim: -(value.shape[dim] // tensor.units[dim])):
            shard = Adapters(bytes_moved).shard(tensor, mesh, placed.layout[:index], dim)
            if shard and inner_cut(placed.layout, index, shard) is None:
                return (*placed.layout[:index], shard, *placed.layout[index + 1 :])
        raise PlanError(f"split: {placed.value}, of shape {list(value.shape)}, cannot be cut along {mesh.axes[index].name}")

    def _named(self, placed: Placed, layout: Layout) -> str:
        name = f"{placed.value}@{placed.mesh}:{'|'.join(map(str, layout))}"
        while name in self._tensors and self._tensors[name].layout != layout:
            name += "~"
        self._tensors[name] = replace(placed, layout=layout)
        return name

    def _on_slices(self, step: Apply, gather: Collective, gathered: list[str]) -> list[Step]:
        """The steps that replace one which reads the gathered whole."""
        index = self._axis(gather)
        slices = self._tensors[gather.source].layout[index]
        assert isinstance(slices, Shard)
        strategy = self._way(step, gather, slices, index)
        names, before = self._inputs(step, strategy, slices, gather, index)
        after: list[Step] = []
        outputs: list[str] = []
        for name, placement in zip(step.outputs, strategy.outputs, strict=True):
            if not name or isinstance(placement, Replicate):
                outputs.append(name)
                continue
            new: Placement = Shard(placement.dim, slices.sizes) if isinstance(placement, Shard) else placement
            layout = self._tensors[name].layout
            outputs.append(self._named(self._tensors[name], (*layout[:index], new, *layout[index + 1 :])))
            kind = kind_between(new, REPLICATE)
            after.append(replace(gather, kind=kind, source=outputs[-1], target=name))
            gathered += [name] if kind is CollectiveKind.ALL_GATHER else []
        return [*before, replace(_with_inputs(step, names), outputs=tuple(outputs)), *after]

    def _inputs(
        self, step: Apply, strategy: Strategy, slices: Shard, like: Collective, index: int
    ) -> tuple[dict[str, str], list[Step]]:
        """What a step reads instead to run by a strategy, and the steps that cut it."""
        names, before = dict[str, str](), list[Step]()
        for name, wanted in zip(step.inputs, strategy.inputs, strict=True):
            if isinstance(wanted, Shard):
                names[name] = self._slice(name, Shard(wanted.dim, slices.sizes), like, index, before)
        return names, before

    def _way(self, step: Apply, gather: Collective, slices: Shard, index: int) -> Strategy:
        for name in step.inputs:
            if isinstance(self._tensors[name].layout[index], Partial):
                raise PlanError(f"reorder: {step.node} reads {name}, which is local: a sum over ranks cannot be sliced")
        for strategy in self._ways(step, slices, index):
            placements = {p for name, p in zip(step.inputs, strategy.inputs, strict=True) if name == gather.target}
            if placements == {Shard(slices.dim)}:
                return strategy
        raise PlanError(f"reorder: {step.node} ({step.op}) cannot run on slices of {gather.target} along dimension {slices.dim}")

    def _ways(self, step: Apply, slices: Shard, index: int) -> Iterator[Strategy]:
        """The ways to run a step whose inputs are there, or can be cut out of what is there."""
        for strategy in strategies_of(self._program, self._program.node_named[step.node], self._axes):
            if all(self._can_be(n, p, slices, index) for n, p in zip(step.inputs, strategy.inputs, strict=True)):
                yield strategy

    def _is_inverse(self, step: Step, gather: Collective) -> bool:
        """Whether a step cuts out again what was gathered."""
        is_cut = isinstance(step, Collective) and step.kind is CollectiveKind.SLICE
        return is_cut and self._tensors[step.outputs[0]].layout == self._tensors[gather.source].layout

    def _rename(self, old: str, new: str) -> None:
        for index, step in enumerate(self._steps):
            if old in step.inputs:
                self._steps[index] = _with_inputs(step, {old: new}) if isinstance(step, Apply) else replace(step, source=new)

    def _can_be(self, name: str, wanted: Placement, slices: Shard, index: int) -> bool:
        placed = self._tensors[name]
        if isinstance(wanted, Shard):
            now = placed.layout[index]
            fits = self._program.values[placed.value].shape[wanted.dim] == sum(slices.sizes or ())
            is_free = inner_cut(placed.layout, index, wanted) is None
            return fits and is_free and (isinstance(now, Replicate) or now == Shard(wanted.dim, slices.sizes))
        return placed.layout[index] == wanted

    def _slice(self, name: str, wanted: Shard, gather: Collective, index: int, before: list[Step]) -> str:
        """The slices of a tensor: the slices it is gathered from, or slices cut out of the whole."""
        placed = self._tensors[name]
        layout = (*placed.layout[:index], wanted, *placed.layout[index + 1 :])
        if placed.layout == layout:
            return name
        for step in self._steps:
            same = isinstance(step, Collective) and step.axis == gather.axis and self._tensors[step.target].layout == layout
            if name in step.outputs and isinstance(step, Collective) and self._tensors[step.source].layout == layout:
                return step.source
            if same and isinstance(step, Collective) and step.source == name and step.kind is CollectiveKind.SLICE:
                return step.target
        cut = self._named(placed, layout)
        before.append(replace(gather, kind=CollectiveKind.SLICE, source=name, target=cut))
        return cut

    def _hold_slices(self, name: str, layout: Layout) -> None:
        cuts: list[Step] = []
        (whole,) = self._sources[name]
        for step in self._steps:
            if whole in step.inputs:
                if not isinstance(step, Collective) or self._tensors[step.target].layout != layout:
                    raise PlanError(f"as_slice: {_description(step)} reads all of {name}")
                cuts.append(step)
        self._steps = [step for step in self._steps if step not in cuts]
        targets = dict.fromkeys(step.outputs[0] for step in cuts)
        self._sources[name] = tuple(targets) or (self._named(self._tensors[whole], layout),)

    def _drop_unread(self, tensors: Iterable[str]) -> None:
        for tensor in tensors:
            if tensor not in self._results.values() and not self.is_read(tensor):
                self._steps = [step for step in self._steps if tensor not in step.outputs]

    def _only_for(self, chain: Sequence[Step]) -> list[Step]:
        """What runs on slices before a kernel, and that only the kernel reads."""
        index = self._axis(chain[0]) if isinstance(chain[0], Collective) else 0
        slices = self._tensors[chain[0].outputs[0]].layout[index]
        steps: list[Step] = []
        for step in reversed(self._steps):
            if not isinstance(step, Apply) or step in chain or not self._is_pointwise(step):
                continue
            made = [name for name in step.outputs if name]
            inside = [*steps, *chain]
            readers = [other for other in self._steps if not set(made).isdisjoint(other.inputs)]
            is_slice = all(self._tensors[name].layout[index] == slices for name in made)
            if readers and is_slice and all(r in inside for r in readers) and not set(made) & set(self._results.values()):
                steps.insert(0, step)
        return steps

    def _is_pointwise(self, step: Apply) -> bool:
        return is_pointwise(self._program, self._program.node_named[step.node], self._axes)


@dataclass(slots=True)
class _Group:
    """The steps of a kernel that is being made."""

    steps: list[Step]
    num_chunks: int
    overlap: Overlap | None = None


def _with_inputs(step: Apply, names: Mapping[str, str]) -> Apply:
    """A step that reads other placed tensors."""
    arguments = tuple(rename_values(argument, names) for argument in step.arguments)
    return replace(step, arguments=arguments, keywords=tuple((key, rename_values(value, names)) for key, value in step.keywords))


def _description(step: Step) -> str:
    match step:
        case Apply():
            return f"{step.node} ({step.op})"
        case Collective():
            return f"a {step.kind} along {step.axis}"
        case _:
            return "a transfer"
