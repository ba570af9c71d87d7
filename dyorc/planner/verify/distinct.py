"""What each distinct step of a plan says: names, layouts, kinds and arguments."""

from collections.abc import Iterator

from dyorc.errors import PlanError
from dyorc.planner.plan import Apply, Collective, Transfer
from dyorc.planner.plan.build import kind_between
from dyorc.planner.program import Node, Replicate, Shard
from dyorc.planner.program.graph import renamed
from dyorc.planner.verify.reading import Form, Reading
from dyorc.planner.verify.report import Finding, FindingKind


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
                yield Finding(kind=FindingKind.UNKNOWN_NAME, step=number, subject=name, detail="tensor")
        if isinstance(step, Apply):
            if step.mesh not in self._plan.meshes:
                yield Finding(kind=FindingKind.UNKNOWN_NAME, step=number, subject=step.mesh, detail="mesh")
            if step.node not in self._program.node_named:
                yield Finding(kind=FindingKind.UNKNOWN_NAME, step=number, subject=step.node, detail="node")

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
            yield from _compare(number, node, "outputs", node.outputs, outputs)
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
                detail = f"{step.mesh}, and {tensor} lies on {mesh}"
                yield Finding(kind=FindingKind.WRONG_MESH, step=form.number, subject=tensor, detail=detail)

    def _check_operation(self, number: int, node: Node, step: Apply) -> Iterator[Finding]:
        values = {tensor: self._plan.tensors[tensor].value for tensor in step.inputs}
        yield from _compare(number, node, "operation", node.op, step.op)
        arguments = tuple(renamed(argument, values) for argument in step.arguments)
        yield from _compare(number, node, "arguments", node.arguments, arguments)
        keywords = tuple((key, renamed(value, values)) for key, value in step.keywords)
        yield from _compare(number, node, "keywords", node.keywords, keywords)

    def _check_shares(self, form: Form, step: Apply) -> Iterator[Finding]:
        """Along each axis of the mesh, all tensors that it cuts are cut in the same proportion."""
        for index, axis in enumerate(self._plan.meshes[step.mesh].axes):
            first: tuple[str, tuple[int, ...]] | None = None
            for tensor in dict.fromkeys((*form.inputs, *form.outputs)):
                layout = self._plan.tensors[tensor].layout
                placement = layout[index] if index < len(layout) else None
                if isinstance(placement, Shard) and placement.sizes:
                    first = first or (tensor, placement.sizes)
                    first_total, total = sum(first[1]), sum(placement.sizes)
                    if any(a * total != b * first_total for a, b in zip(first[1], placement.sizes, strict=True)):
                        detail = f"{first[0]} and {tensor}"
                        yield Finding(kind=FindingKind.SHARES_DISAGREE, step=form.number, subject=axis.name, detail=detail)
                        break

    def _check_collective(self, number: int, step: Collective) -> Iterator[Finding]:
        source, target = self._plan.tensors[step.source], self._plan.tensors[step.target]
        mesh = self._plan.mesh_of(step.source)
        for subject, before, after in (("value", source.value, target.value), ("mesh", source.mesh, target.mesh)):
            if before != after:
                yield _changed(number, subject, before, after)
                return
        names = [axis.name for axis in mesh.axes]
        if step.axis not in names:
            detail = f"axis of mesh {mesh.name}"
            yield Finding(kind=FindingKind.UNKNOWN_NAME, step=number, subject=step.axis, detail=detail)
            return
        index = names.index(step.axis)
        for position, (before, after) in enumerate(zip(source.layout, target.layout, strict=True)):
            if position != index and before != after:
                yield _changed(number, f"placement along {names[position]}", before, after)
        before, after = source.layout[index], target.layout[index]
        try:
            is_kind = kind_between(before, after) is step.kind and before != after
        except PlanError:
            is_kind = False
        if not is_kind or (mesh.axes[index].is_time and step.part is not None):
            subject, detail = f"{step.kind} along {step.axis}", f"{before} into {after}"
            yield Finding(kind=FindingKind.WRONG_KIND, step=number, subject=subject, detail=detail)
        dims = {placement.dim for placement in (before, after) if isinstance(placement, Shard)}
        for inner in range(index + 1, len(source.layout)):
            if isinstance(placement := source.layout[inner], Shard) and placement.dim in dims:
                yield Finding(kind=FindingKind.INNER_CUT, step=number, subject=step.axis, detail=names[inner])

    def _check_transfer(self, number: int, step: Transfer) -> Iterator[Finding]:
        source, target = self._plan.tensors[step.source], self._plan.tensors[step.target]
        if source.value != target.value:
            yield _changed(number, "value", source.value, target.value)
        if step.part is None:
            return
        ours, theirs = self._plan.mesh_of(step.source), self._plan.mesh_of(step.target)
        before = Replicate() if ours.time_axis is None else source.layout[ours.time_axis]
        after = Replicate() if theirs.time_axis is None else target.layout[theirs.time_axis]
        if before != after or ours.num_parts != theirs.num_parts:
            yield _changed(number, "placement in time", before, after)
        for tensor, mesh in ((step.source, ours), (step.target, theirs)):
            layout, time = self._plan.tensors[tensor].layout, mesh.time_axis
            if time is not None and isinstance(cut := layout[time], Shard):
                for outer in range(time):
                    if isinstance(placement := layout[outer], Shard) and placement.dim == cut.dim:
                        axis, inner = mesh.axes[outer].name, mesh.axes[time].name
                        yield Finding(kind=FindingKind.INNER_CUT, step=number, subject=axis, detail=inner)


def _changed(number: int, subject: str, before: object, after: object) -> Finding:
    detail = f"{before}, and of its target {after}"
    return Finding(kind=FindingKind.CHANGES_ELSEWHERE, step=number, subject=subject, detail=detail)


def _compare(number: int, node: Node, field: str, expected: object, actual: object) -> Iterator[Finding]:
    if repr(expected) != repr(actual):  # 1 == True, and NaN is no NaN
        detail = f"{field} of node {node.name}: expected {_shorten(expected)}, found {_shorten(actual)}"
        yield Finding(kind=FindingKind.WRONG_OPERATION, step=number, subject=node.name, detail=detail)


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) < 200 else text[:197] + "..."
