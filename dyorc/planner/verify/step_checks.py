"""What the steps of a plan say (names, layouts, kinds, arguments), and that each piece is made once, before it is read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dyorc.errors import PlanError
from dyorc.planner.plan import Apply, Collective, Step, Transfer
from dyorc.planner.plan.build import kind_between
from dyorc.planner.program import Node, Partial, Replicate, Shard
from dyorc.planner.program.graph import rename_values
from dyorc.planner.verify.plan_index import PlanIndex, StepForm
from dyorc.planner.verify.report import Finding, FindingKind, pieces_text


class FormChecks:
    """Checks the forms of a plan's steps."""

    def __init__(self, reading: PlanIndex) -> None:
        self._program = reading.program
        self._plan = reading.plan
        self._spots = reading.spots
        self._fitting: set[tuple[object, ...]] = set()  # where operations ran whose tensors fit each other

    def unknown_names(self, form: StepForm) -> Iterator[Finding]:
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

    def check(self, form: StepForm) -> Iterator[Finding]:
        """Yields what is wrong with a form whose names are there."""
        match form.step:
            case Apply() as step:
                return self._check_apply(form, step)
            case Collective() as step:
                return self._check_collective(form.number, step)
            case Transfer() as step:
                return self._check_transfer(form.number, step)

    def _check_apply(self, form: StepForm, step: Apply) -> Iterator[Finding]:
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

    def _check_meshes(self, form: StepForm, step: Apply) -> Iterator[Finding]:
        for tensor in (*form.inputs, *form.outputs):
            if (mesh := self._plan.tensors[tensor].mesh) != step.mesh:
                detail = f"{step.mesh}, and {tensor} lies on {mesh}"
                yield Finding(kind=FindingKind.WRONG_MESH, step=form.number, subject=tensor, detail=detail)

    def _check_operation(self, number: int, node: Node, step: Apply) -> Iterator[Finding]:
        values = {tensor: self._plan.tensors[tensor].value for tensor in step.inputs}
        yield from _compare(number, node, "operation", node.op, step.op)
        arguments = tuple(rename_values(argument, values) for argument in step.arguments)
        yield from _compare(number, node, "arguments", node.arguments, arguments)
        keywords = tuple((key, rename_values(value, values)) for key, value in step.keywords)
        yield from _compare(number, node, "keywords", node.keywords, keywords)

    def _check_shares(self, form: StepForm, step: Apply) -> Iterator[Finding]:
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


_Pieces: TypeAlias = Sequence[tuple[str, int]]
"""Placed tensors and parts of the work; of a tensor that does not vary in time, part 0."""


@dataclass(slots=True)
class _Use:
    """What steps of one form read and make.

    Attributes:
        reads: Each tensor, with the number of its parts.
        makes: The same.
        num_parts: The most of them.
        max_part: What the number of a step's part must be below.
        sums: What they make that is a sum along time.
    """

    reads: _Pieces
    makes: _Pieces
    num_parts: int
    max_part: int
    sums: tuple[str, ...]


class StepWalk:
    """Goes through the steps in order, and notes what has been made."""

    def __init__(self, reading: PlanIndex) -> None:
        self._reading = reading
        self._plan = reading.plan
        self._distinct = FormChecks(reading)
        self._num_parts = _num_parts(reading)
        self._sums = _sums(reading)
        self._made: dict[tuple[str, int], int] = {}  # piece -> step, -1 for sources
        self._missing: list[tuple[int, _Pieces]] = []
        self._terms: dict[str, StepForm] = {}  # a sum along time -> what makes its terms
        self._findings: list[Finding] = []

    def run(self) -> list[Finding]:
        """Returns what is wrong with the order of the steps, and with what each says."""
        self._findings += self._begin()
        uses: dict[StepForm, _Use | None] = {}
        for number, form in enumerate(self._reading.forms):
            if form.number == number:
                uses[form] = self._use(form)
            if (use := uses[form]) is not None:
                self._take(number, self._plan.steps[number], form, use)
        self._findings += self._classify_missing()
        self._findings += self._end()
        return self._findings

    def _use(self, form: StepForm) -> _Use | None:
        """Checks what steps of a form say; returns None if they name what is not there."""
        findings = list(self._distinct.unknown_names(form))
        if findings:
            self._findings += findings
            return None
        self._findings += self._distinct.check(form)
        parts, spots, step = self._num_parts, self._reading.spots, form.step
        reads, makes = [(name, parts[name]) for name in form.inputs], [(name, parts[name]) for name in form.outputs]
        num_parts = max([num for _, num in (*reads, *makes)], default=1)
        mesh = self._plan.meshes[step.mesh] if isinstance(step, Apply) else self._plan.mesh_of(step.source)
        sums = tuple([name for name in form.outputs if spots[name] in self._sums]) if isinstance(step, Apply) else ()
        return _Use(reads, makes, num_parts, max(num_parts, mesh.num_parts), sums)

    def _take(self, number: int, step: Step, form: StepForm, use: _Use) -> None:
        part, made = step.part, self._made
        for tensor in use.sums:
            self._check_term(number, tensor, form)
        if part is None:
            is_wrong = use.num_parts > 1 and isinstance(step, Apply)
        else:
            is_wrong = not 0 <= part < use.max_part
        if is_wrong:
            kind, detail = FindingKind.WRONG_PART, str(use.num_parts)
            self._findings.append(Finding(kind=kind, step=number, subject=str(part), detail=detail))
        elif missing := [piece for piece in _touched(use.reads, part) if piece not in made]:
            self._missing.append((number, missing))
        for piece in _touched(use.makes, part):
            if made.setdefault(piece, number) != number:
                self._note_again(number, step, piece)

    def _note_again(self, number: int, step: Step, piece: tuple[str, int]) -> None:
        """A tensor that does not vary in time may be made again by the same step for another part, which changes nothing."""
        first, last = self._made[piece], self._findings[-1] if self._findings else None
        before = self._plan.steps[first] if first >= 0 and self._num_parts[piece[0]] == 1 else None
        if isinstance(before, Apply) and isinstance(step, Apply) and before.part != step.part and before.node == step.node:
            return
        if not (last and last.kind is FindingKind.MADE_TWICE and last.step == number):
            detail = "ranks begin with" if first < 0 else f"step {first} makes"
            self._findings.append(Finding(kind=FindingKind.MADE_TWICE, step=number, subject=piece[0], detail=detail))

    def _check_term(self, number: int, tensor: str, form: StepForm) -> None:
        """The terms of a sum along time must come from the same tensors."""
        first = self._terms.setdefault(tensor, form)
        if first is not form:
            detail = str(first.number)
            self._findings.append(Finding(kind=FindingKind.MIXED_PARTS, step=number, subject=tensor, detail=detail))

    def _begin(self) -> Iterator[Finding]:
        for value, tensors in self._plan.sources.items():
            if value not in self._reading.program.values or value in self._reading.program.producers:
                yield Finding(kind=FindingKind.BAD_SOURCE, subject=value, detail="it is no source of the program")
                continue
            for tensor in tensors:
                if tensor not in self._plan.tensors or self._plan.tensors[tensor].value != value:
                    yield Finding(kind=FindingKind.BAD_SOURCE, subject=value, detail=f"{tensor} is no placed tensor of it")
                else:
                    self._made.update(dict.fromkeys(_all_parts(tensor, self._num_parts[tensor]), -1))

    def _end(self) -> Iterator[Finding]:
        for value in self._reading.program.results:
            tensor = self._plan.results.get(value)
            if tensor is None or tensor not in self._plan.tensors:
                yield Finding(kind=FindingKind.MISSING_RESULT, subject=value, detail="it is not placed")
            elif self._plan.tensors[tensor].value != value:
                reason = f"{tensor} is a placed tensor of {self._plan.tensors[tensor].value}"
                yield Finding(kind=FindingKind.MISSING_RESULT, subject=value, detail=reason)
            elif missing := [part for _, part in _all_parts(tensor, self._num_parts[tensor]) if (tensor, part) not in self._made]:
                yield Finding(kind=FindingKind.MISSING_RESULT, subject=value, detail=f"parts {missing} of {tensor} are not made")

    def _classify_missing(self) -> Iterator[Finding]:
        """Says of pieces that were missing whether they are made later, or not at all."""
        for number, pieces in self._missing:
            for tensor in dict.fromkeys(tensor for tensor, _ in pieces):
                parts = tuple(part for name, part in pieces if name == tensor)
                later = [self._made[tensor, part] for part in parts if (tensor, part) in self._made]
                kind = FindingKind.SCHEDULE_HAZARD if later else FindingKind.MISSING_PRODUCER
                detail = str(max(later)) if later else ""
                yield Finding(kind=kind, step=number, subject=pieces_text(tensor, parts), detail=detail)


def _num_parts(reading: PlanIndex) -> dict[str, int]:
    """How many parts each tensor has: one if it does not vary in time."""
    plan, known = reading.plan, dict[int, int]()
    for name, spot in reading.spots.items():
        if spot not in known:
            known[spot] = plan.mesh_of(name).num_parts if plan.varies_in_time(name) else 1
    return {name: known[spot] for name, spot in reading.spots.items()}


def _sums(reading: PlanIndex) -> set[int]:
    """The spots of tensors that are sums along time."""
    plan, spots = reading.plan, set[int]()
    for name, spot in reading.spots.items() if any(mesh.time_axis is not None for mesh in plan.meshes.values()) else ():
        time = plan.mesh_of(name).time_axis
        if time is not None and isinstance(plan.tensors[name].layout[time], Partial):
            spots.add(spot)
    return spots


def _touched(tensors: _Pieces, part: int | None) -> _Pieces:
    """The pieces that a step of a part reads or makes; of all parts, if it is of none."""
    if part is not None:
        return [(name, part if num_parts > 1 else 0) for name, num_parts in tensors]
    return [piece for name, num_parts in tensors for piece in _all_parts(name, num_parts)]


def _all_parts(tensor: str, num_parts: int) -> _Pieces:
    return [(tensor, part) for part in range(num_parts)]
