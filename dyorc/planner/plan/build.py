"""Builds plans: planners say which strategy each node takes, and the builder places, converts and names the tensors."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dyorc.errors import PlanError
from dyorc.planner.plan.adapters import (
    Adapters,
    Cost,
    Hop,
    Path,
    Spot,
    Tensor,
    bytes_moved,
    inner_cut,
    may_change_time,
    tensor_of,
)
from dyorc.planner.plan.layout import Layout, Mesh, MeshAxis
from dyorc.planner.plan.plan import Inference, Placed, Plan, Provenance
from dyorc.planner.plan.steps import Algorithm, Apply, Collective, Step, Transfer, kind_between
from dyorc.planner.program import Axes, Node, Placement, Replicate, Shard, Strategy, TensorProgram, axes_of
from dyorc.planner.program.graph import rename_values


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """One node on one mesh by one strategy: its parts differ in nothing but their number.

    Attributes:
        node: The node.
        strategies: One for each axis of the mesh.
        varies: Whether its parts are computed each by itself.
        inputs: For each value that it reads, the placed tensor, and the placements that say which one it is.
        step: Of no part.
    """

    node: Node
    strategies: tuple[Strategy, ...]
    varies: bool
    inputs: tuple[tuple[str, str, tuple[Placement, ...]], ...]
    step: Apply


class PlanBuilder:
    """Collects the steps of one plan. Not for several threads.

    What is wanted in some layout gets there by the cheapest collectives and transfers, as the cost function has it: the bytes
    that move, or `seconds_on(cluster)` of adapters.py.
    """

    def __init__(self, program: TensorProgram, axes: Axes | None = None, cost: Cost = bytes_moved) -> None:
        self.program = program
        self.axes = axes or axes_of(program)
        self._adapters = Adapters(cost)
        self._known: dict[str, Tensor] = {}
        self._generations: dict[str, int] = {}  # value -> how often it was forgotten
        self._forms: dict[tuple[str, str], _Form] = {}  # of each node on each mesh
        self._texts: dict[Layout, str] = {}  # how layouts are written: shards of hundreds of ranks take long
        self._meshes: dict[str, Mesh] = {}
        self._tensors: dict[str, Placed] = {}
        self._made: dict[str, set[int]] = {}  # id -> the parts that are made
        self._held: dict[str, list[str]] = {}  # value -> ids, the newest last
        self._sources: dict[str, list[str]] = {}
        self._steps: list[Step] = []
        self._results: dict[str, str] = {}

    def mesh(
        self, name: str, axes: Sequence[MeshAxis], ranks: Sequence[int], ratios: Mapping[str, Sequence[float]] | None = None
    ) -> str:
        """Adds a mesh, and returns its name.

        Args:
            name: Unique in the plan.
            axes: Outermost first.
            ranks: In the order of the axes of space, the last varying fastest.
            ratios: For each axis that divides unevenly, the share of each of its steps.
        """
        self._meshes[name] = Mesh(name=name, axes=tuple(axes), ranks=tuple(ranks))
        self._adapters.divide(self._meshes[name], ratios or {})
        return name

    def layout(self, value: str, mesh: str, placements: Sequence[Placement]) -> Layout:
        """Gives each shard that has no sizes yet its sizes: the axis of the program, divided by the ratios of the mesh's axis.

        Raises:
            PlanError: A dimension cannot be cut so.
        """
        tensor, layout = self._sizes(value), list[Placement]()
        for axis, placement in zip(self._meshes[mesh].axes, placements, strict=True):
            if isinstance(placement, Shard) and placement.sizes is None:
                dim = placement.dim
                placement = self._adapters.shard(tensor, self._meshes[mesh], tuple(layout), dim)
                if placement is None:
                    raise PlanError(
                        f"dimension {dim} of {value}, of extent {tensor.shape[dim]} in units of {tensor.units[dim]}, cannot be "
                        f"cut along {axis.name}: what outer axes leave of it must be equal pieces of whole units"
                    )
            layout.append(placement)
        return tuple(layout)

    def _sizes(self, value: str) -> Tensor:
        tensor = self._known.get(value)
        if tensor is None:
            tensor = self._known[value] = tensor_of(self.program, self.axes, value)
        return tensor

    def source(self, value: str, mesh: str, placements: Sequence[Placement]) -> str:
        """Says how ranks hold a source of the program when they begin, and returns its id."""
        tensor = self._tensor(value, mesh, self.layout(value, mesh, placements))
        if tensor not in self._sources.setdefault(value, []):
            self._sources[value].append(tensor)
        self._made[tensor] = set(range(self._num_parts(tensor)))
        return tensor

    def apply(self, node: Node, mesh: str, strategies: Sequence[Strategy], part: int | None = None) -> None:
        """Adds one part of a node, and before it the steps that bring its inputs into the placements that the strategies ask for.

        Args:
            node: Of the program.
            mesh: Where it runs.
            strategies: One for each axis of the mesh.
            part: Which part of the work, if the mesh has an axis of time.
        """
        form = self._form(node, mesh, tuple(strategies))
        part = part if form.varies else None
        for name, tensor, placements in form.inputs:
            if not self._is_made(tensor, part):
                self.want(name, mesh, placements, part)
        if not all(self._is_made(tensor, part) for tensor in form.step.outputs if tensor):
            self._add(form.step if part is None else replace(form.step, part=part))

    def _form(self, node: Node, mesh: str, strategies: tuple[Strategy, ...]) -> "_Form":
        """What all parts of a node have in common, found once."""
        known = self._forms.get((node.name, mesh))
        if known is not None and known.strategies == strategies and known.node is node:
            return known
        inputs: dict[str, tuple[str, str, tuple[Placement, ...]]] = {}
        for index, name in enumerate(node.inputs):
            placements = tuple(strategy.inputs[index] for strategy in strategies)
            inputs[name] = name, self._tensor(name, mesh, self.layout(name, mesh, placements)), placements
        outputs: list[str] = []
        for index, name in enumerate(node.outputs):
            placements = [strategy.outputs[index] for strategy in strategies]
            outputs.append(self._tensor(name, mesh, self.layout(name, mesh, placements)) if name else "")
        names = {name: tensor for name, tensor, _ in inputs.values()}
        step = Apply(
            node=node.name,
            op=node.op,
            arguments=tuple(rename_values(argument, names) for argument in node.arguments),
            keywords=tuple((key, rename_values(value, names)) for key, value in node.keywords),
            outputs=tuple(outputs),
            mesh=mesh,
        )
        time = self._meshes[mesh].time_axis
        varies = time is not None and not _is_whole(strategies[time])
        form = _Form(node=node, strategies=strategies, varies=varies, inputs=tuple(inputs.values()), step=step)
        self._forms[node.name, mesh] = form
        return form

    def want(self, value: str, mesh: str, placements: Sequence[Placement], part: int | None = None) -> str:
        """Returns the id of a value in a placement on a mesh; adds what brings it there if it is not.

        Raises:
            PlanError: Nothing has made the value yet.
        """
        layout = self.layout(value, mesh, placements)
        wanted = self._tensor(value, mesh, layout)
        if self._is_made(wanted, part):
            return wanted
        source, path = self._nearest(value, Spot(self._meshes[mesh], layout), part)
        for number, hop in enumerate(path.hops):
            needs_all = any(later.axis is not None and later.source.mesh.axes[later.axis].is_time for later in path.hops[number:])
            source = self._taken(source, hop, part, needs_all)
        return source

    def collective(self, source: str, axis: str, after: Placement, part: int | None, algorithm: Algorithm | None = None) -> str:
        """Changes a placed tensor along one axis, and returns the new id."""
        placed, mesh = self._tensors[source], self._meshes[self._tensors[source].mesh]
        index = mesh.axis_index(axis)
        if (inner := inner_cut(placed.layout, index, after)) is not None:
            raise PlanError(
                f"{source} cannot become {after} along {axis}: {mesh.axes[inner].name} cuts the same dimension inside it; "
                "change that first, or put that axis before this one in the mesh"
            )
        layout = (*placed.layout[:index], after, *placed.layout[index + 1 :])
        target = self._tensor(placed.value, placed.mesh, self.layout(placed.value, placed.mesh, layout))
        is_time = mesh.axes[index].is_time
        if not self._is_made(target, None if is_time else part):
            step = Collective(
                kind=kind_between(placed.layout[index], after),
                source=source,
                target=target,
                axis=axis,
                part=None if is_time or not self._varies(source) else part,
            )
            self._add(replace(step, algorithm=algorithm) if algorithm else step)
        return target

    def transfer(self, source: str, mesh: str, placements: Sequence[Placement], part: int | None = None) -> str:
        """Takes a placed tensor to another mesh, and returns the new id: for planners that decide what is sent when."""
        value = self._tensors[source].value
        target = self._tensor(value, mesh, self.layout(value, mesh, placements))
        if not self._is_made(target, part):
            self._add(Transfer(source=source, target=target, part=part if self._varies(target) else None))
        return target

    def forget(self, values: Iterable[str]) -> None:
        """Recomputes values: the first copies are no longer read, so memory need not hold them until then."""
        self._forms.clear()
        for value in values:
            self._generations[value] = self._generations.get(value, 0) + 1
            self._held.pop(value, None)

    def result(self, value: str, mesh: str, placements: Sequence[Placement]) -> str:
        """Says how a result of the program lies in the end, and brings it there."""
        self._results[value] = self.want(value, mesh, placements)
        return self._results[value]

    def build(self, provenance: Provenance, *, target: str = "", cluster: str = "") -> Plan:
        """Returns the plan.

        Raises:
            PlanError: A result of the program has not been placed.
        """
        missing = [name for name in self.program.results if name not in self._results]
        if missing:
            raise PlanError(f"{len(missing)} results of {self.program.name} are not placed, the first is {missing[0]}")
        return self.draft(provenance, target=target, cluster=cluster)

    def draft(self, provenance: Provenance | None = None, *, target: str = "", cluster: str = "") -> Plan:
        """Returns what has been built so far, whether or not all results are placed: for tests, and to cost a plan that grows."""
        used = {tensor for step in self._steps for tensor in (*step.inputs, *step.outputs) if tensor}
        used.update(self._results.values(), *self._sources.values())
        tensors = {name: placed for name, placed in self._tensors.items() if name in used}
        return Plan(
            program=self.program.digest,
            values={placed.value: self.program.values[placed.value] for placed in tensors.values()},
            target=target,
            cluster=cluster,
            meshes=dict(self._meshes),
            tensors=tensors,
            sources={value: tuple(ids) for value, ids in self._sources.items()},
            steps=tuple(self._steps),
            results=dict(self._results),
            provenance=provenance or Provenance(planner=""),
            inference=_inference_of(self.program),
        )

    def _add(self, step: Step) -> str:
        self._steps.append(step)
        for tensor in step.outputs:
            if tensor:
                self._made[tensor] |= {step.part} if self._varies(tensor) and step.part is not None else self._parts(tensor)
                self._held.setdefault(self._tensors[tensor].value, []).append(tensor)
        return step.outputs[0]

    def _taken(self, source: str, hop: Hop, part: int | None, needs_all: bool) -> str:
        """Takes one hop of a path, in all parts of the work if that is needed."""
        if hop.axis is None:
            target = self._tensor(self._tensors[source].value, hop.target.mesh.name, hop.target.layout)
            each = part if not may_change_time(hop.source, hop.target) and self._varies(target) else None
            return target if self._is_made(target, each) else self._add(Transfer(source=source, target=target, part=each))
        axis = hop.source.mesh.axes[hop.axis]
        parts = sorted(self._parts(source)) if needs_all and not axis.is_time and self._varies(source) else [part]
        return [self.collective(source, axis.name, hop.target.layout[hop.axis], each) for each in parts][-1]

    def _nearest(self, value: str, wanted: Spot, part: int | None) -> tuple[str, Path]:
        """Of the placed tensors that hold a value, the one that gets where it is wanted most cheaply; of equals, the newest."""
        held = [*self._sources.get(value, ()), *self._held.get(value, ())]
        nearest: tuple[str, Path] | None = None
        for tensor in reversed(dict.fromkeys(held)):
            spot = Spot(self._meshes[self._tensors[tensor].mesh], self._tensors[tensor].layout)
            if self._is_made(tensor, None if may_change_time(spot, wanted) else part):
                path = self._adapters.path(self._sizes(value), spot, wanted)
                if nearest is None or path.cost < nearest[1].cost:
                    nearest = tensor, path
        if nearest is None:
            raise PlanError(f"{value} is needed on mesh {wanted.mesh.name} and nothing has made it")
        return nearest

    def _tensor(self, value: str, mesh: str, layout: Layout) -> str:
        again = "'" * self._generations.get(value, 0)
        text = self._texts.get(layout)
        if text is None:
            text = self._texts[layout] = "|".join(map(str, layout))
        name = f"{value}{again}@{mesh}:{text}"
        if name not in self._tensors:
            self._tensors[name] = Placed(value=value, mesh=mesh, layout=layout)
            self._made[name] = set()
        return name

    def _varies(self, tensor: str) -> bool:
        placed = self._tensors[tensor]
        time = self._meshes[placed.mesh].time_axis
        return time is not None and not isinstance(placed.layout[time], Replicate)

    def _num_parts(self, tensor: str) -> int:
        return self._meshes[self._tensors[tensor].mesh].num_parts if self._varies(tensor) else 1

    def _parts(self, tensor: str) -> set[int]:
        return set(range(self._num_parts(tensor)))

    def _is_made(self, tensor: str, part: int | None) -> bool:
        if part is None or not self._varies(tensor):
            return self._made[tensor] >= self._parts(tensor)
        return part in self._made[tensor]


def _inference_of(program: TensorProgram) -> Inference | None:
    if not program.outputs:
        return None
    return Inference(
        inputs=program.inputs,
        outputs=program.outputs,
        max_samples=program.values[program.inputs[0]].shape[0],
        batch_dims=program.batch_dims,
        call_structure=program.call_structure,
        answer_structure=program.answer_structure,
    )


def _is_whole(strategy: Strategy) -> bool:
    return all(isinstance(placement, Replicate) for placement in (*strategy.inputs, *strategy.outputs))
