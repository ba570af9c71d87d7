"""What each distinct step of a plan says: names, layouts, kinds and arguments."""

from collections.abc import Iterator

from dyorc.errors import PlanError
from dyorc.offline.plan import Apply, Collective, Transfer
from dyorc.offline.plan.build import kind_between
from dyorc.offline.program import Node, Replicate, Shard
from dyorc.offline.program.graph import renamed
from dyorc.offline.verify import report as found
from dyorc.offline.verify.reading import Form, Reading
from dyorc.offline.verify.report import Finding


class Distinct:
    """Checks the forms of a plan's steps."""

    def __init__(self, reading: Reading) -> None:
        self._program = reading.program
        self._plan = reading.plan
        self._spots = reading.spots
        self._fitting: set[tuple[object, ...]] = set()  # where operations ran whose tensors fit each other

    def unknown_names(self, form: Form) -> Iterator[Finding]:
        """Yields the names in a form that are not there: then it cannot be checked."""
        step, number, tensors = form.step, form.number, self._plan.tensors
        for name in (*form.inputs, *form.outputs):
            if name not in tensors:
                yield found.UnknownName(step=number, kind="tensor", name=name)
        if isinstance(step, Apply):
            if step.mesh not in self._plan.meshes:
                yield found.UnknownName(step=number, kind="mesh", name=step.mesh)
            if step.node not in self._program.node_named:
                yield found.UnknownName(step=number, kind="node", name=step.node)

    def check(self, form: Form) -> Iterator[Finding]:
        """Yields what is wrong with a form whose names are there."""
        match form.step:
            case Apply() as step:
                return self._check_apply(form, step)
            case Collective() as step:
                return self._check_collective(form.number, step)
            case Transfer() as step:
                return self._check_transfer(form.number, step)

    def _check_apply(self, form: Form, step: Apply) -> Iterator[Finding]:
        number, node, tensors = form.number, self._program.node_named[step.node], self._plan.tensors
        if not form.is_node:
            yield from self._check_operation(number, node, step)
        outputs = tuple([tensors[tensor].value if tensor else "" for tensor in step.outputs])
        if outputs != node.outputs:
            yield from _compared(number, node, "outputs", node.outputs, outputs)
        spots = self._spots
        key = step.mesh, *[spots[tensor] for tensor in form.inputs], *[spots[tensor] for tensor in form.outputs]
        if key not in self._fitting:
            findings = [*self._check_meshes(form, step), *self._check_shares(form, step)]
            yield from findings
            if not findings:
                self._fitting.add(key)

    def _check_meshes(self, form: Form, step: Apply) -> Iterator[Finding]:
        for tensor in (*form.inputs, *form.outputs):
            if (mesh := self._plan.tensors[tensor].mesh) != step.mesh:
                yield found.WrongMesh(step=form.number, tensor=tensor, expected=step.mesh, found=mesh)

    def _check_operation(self, number: int, node: Node, step: Apply) -> Iterator[Finding]:
        values = {tensor: self._plan.tensors[tensor].value for tensor in step.inputs}
        yield from _compared(number, node, "operation", node.op, step.op)
        arguments = tuple(renamed(argument, values) for argument in step.arguments)
        yield from _compared(number, node, "arguments", node.arguments, arguments)
        keywords = tuple((key, renamed(value, values)) for key, value in step.keywords)
        yield from _compared(number, node, "keywords", node.keywords, keywords)

    def _check_shares(self, form: Form, step: Apply) -> Iterator[Finding]:
        """Along each axis of the mesh, all tensors that it cuts are cut in the same proportion."""
        for index, axis in enumerate(self._plan.meshes[step.mesh].axes):
            first: tuple[str, tuple[int, ...]] | None = None
            for tensor in dict.fromkeys((*form.inputs, *form.outputs)):
                layout = self._plan.tensors[tensor].layout
                placement = layout[index] if index < len(layout) else None
                if isinstance(placement, Shard) and placement.sizes:
                    first = first or (tensor, placement.sizes)
                    one, other = sum(first[1]), sum(placement.sizes)
                    if any(a * other != b * one for a, b in zip(first[1], placement.sizes, strict=True)):
                        yield found.SharesDisagree(step=form.number, axis=axis.name, one=first[0], other=tensor)
                        break

    def _check_collective(self, number: int, step: Collective) -> Iterator[Finding]:
        source, target = self._plan.tensors[step.source], self._plan.tensors[step.target]
        mesh = self._plan.mesh_of(step.source)
        for what, one, other in (("value", source.value, target.value), ("mesh", source.mesh, target.mesh)):
            if one != other:
                yield found.ChangesElsewhere(step=number, what=what, source=one, target=other)
                return
        names = [axis.name for axis in mesh.axes]
        if step.axis not in names:
            yield found.UnknownName(step=number, kind=f"axis of mesh {mesh.name}", name=step.axis)
            return
        index = names.index(step.axis)
        for position, (one, other) in enumerate(zip(source.layout, target.layout, strict=True)):
            if position != index and one != other:
                what = f"placement along {names[position]}"
                yield found.ChangesElsewhere(step=number, what=what, source=str(one), target=str(other))
        before, after = source.layout[index], target.layout[index]
        try:
            is_kind = kind_between(before, after) is step.kind and before != after
        except PlanError:
            is_kind = False
        if not is_kind or (mesh.axes[index].is_time and step.part is not None):
            yield found.WrongKind(step=number, kind=step.kind, axis=step.axis, before=str(before), after=str(after))
        dims = {placement.dim for placement in (before, after) if isinstance(placement, Shard)}
        for inner in range(index + 1, len(source.layout)):
            if isinstance(placement := source.layout[inner], Shard) and placement.dim in dims:
                yield found.InnerCut(step=number, axis=step.axis, inner=names[inner])

    def _check_transfer(self, number: int, step: Transfer) -> Iterator[Finding]:
        source, target = self._plan.tensors[step.source], self._plan.tensors[step.target]
        if source.value != target.value:
            yield found.ChangesElsewhere(step=number, what="value", source=source.value, target=target.value)
        if step.part is None:
            return
        ours, theirs = self._plan.mesh_of(step.source), self._plan.mesh_of(step.target)
        one = Replicate() if ours.time_axis is None else source.layout[ours.time_axis]
        other = Replicate() if theirs.time_axis is None else target.layout[theirs.time_axis]
        if one != other or ours.num_parts != theirs.num_parts:
            yield found.ChangesElsewhere(step=number, what="placement in time", source=str(one), target=str(other))
        for tensor, mesh in ((step.source, ours), (step.target, theirs)):
            layout, time = self._plan.tensors[tensor].layout, mesh.time_axis
            if time is not None and isinstance(cut := layout[time], Shard):
                for outer in range(time):
                    if isinstance(placement := layout[outer], Shard) and placement.dim == cut.dim:
                        yield found.InnerCut(step=number, axis=mesh.axes[outer].name, inner=mesh.axes[time].name)


def _compared(number: int, node: Node, what: str, expected: object, actual: object) -> Iterator[Finding]:
    if repr(expected) != repr(actual):  # 1 == True, and NaN is no NaN
        yield found.WrongOperation(step=number, node=node.name, what=what, expected=_brief(expected), found=_brief(actual))


def _brief(thing: object) -> str:
    text = repr(thing)
    return text if len(text) < 200 else text[:197] + "..."
