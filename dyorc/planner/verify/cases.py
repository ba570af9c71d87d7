"""What a step does, without the names of its tensors: repeated layers, microbatches and stages have the same cases.

A case is all that decides whether a step is right, given that the plan's structure is (structure.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from dyorc.errors import PlanError
from dyorc.planner.plan import Apply, Collective, CollectiveKind, Layout, Step
from dyorc.planner.program import REPLICATE, Argument, Node
from dyorc.planner.program.graph import rename_values
from dyorc.planner.verify.plan_index import PlanIndex, StepForm

FAULTS = (PlanError, ValueError, IndexError, TypeError, KeyError, ZeroDivisionError, AssertionError, StopIteration)
"""What steps may raise on pieces that do not fit."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A placed tensor without its name.

    Attributes:
        shape: Of the whole value.
        dtype: Its type.
        layout: One placement for each axis.
    """

    shape: tuple[int, ...]
    dtype: str
    layout: Layout


@dataclass(frozen=True, slots=True)
class Line:
    """An axis of a mesh without its name.

    Attributes:
        size: How many steps it has.
        is_time: Whether they are parts of the work.
    """

    size: int
    is_time: bool


Reference: TypeAlias = tuple[str, tuple[Argument, ...], tuple[tuple[str, Argument], ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyCase:
    """An operation on pieces; its arguments refer to inputs by their numbers.

    Attributes:
        op: The operation.
        arguments: What it is applied to.
        keywords: The same, by name.
        inputs: What it reads, each once.
        outputs: What it makes; None for an output that no step reads.
        axes: Of its mesh.
        reference: Operation, arguments and keywords of the program's node, if they are others.
    """

    op: str
    arguments: tuple[Argument, ...]
    keywords: tuple[tuple[str, Argument], ...]
    inputs: tuple[Kind, ...]
    outputs: tuple[Kind | None, ...]
    axes: tuple[Line, ...]
    reference: Reference | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCase:
    """A change of placement along one axis."""

    kind: CollectiveKind
    before: Kind
    after: Kind
    axis: int
    axes: tuple[Line, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferCase:
    """A move from mesh to mesh, of all parts of the work at once or of each by itself."""

    source: Kind
    source_axes: tuple[Line, ...]
    target: Kind
    target_axes: tuple[Line, ...]
    in_parts: bool


Case: TypeAlias = ApplyCase | CollectiveCase | TransferCase


class CasesOf:
    """The cases of a plan's steps; equal ones are one object, so that looking one up again costs little."""

    def __init__(self, reading: PlanIndex) -> None:
        self._reading = reading
        self._plan = reading.plan
        self._kinds: list[Kind] = []
        self._numbers: dict[tuple[object, ...], int] = {}  # what decides a kind -> its index
        self._number_of: dict[str, int] = {}
        self._axes: dict[str, tuple[Line, ...]] = {}
        self._cases: dict[tuple[object, ...], Case] = {}
        self._same: dict[Case, Case] = {}

    @cached_property
    def distinct(self) -> Sequence[tuple[int, Step, Case]]:
        """The first step of each case, with its number; without steps that have none, because they do not fit: structure.py
        names those.
        """
        first_of: dict[int, tuple[int, Step, Case]] = {}
        for form in self._reading.distinct:
            try:
                case = self._case(form)
            except FAULTS:
                continue
            first_of.setdefault(id(case), (form.number, form.step, case))
        return tuple(first_of.values())

    def _case(self, form: StepForm) -> Case:
        """Making a case costs more than seeing that there is one already: in another layer, for the most part."""
        key = self._key(form)
        case = self._cases.get(key)
        if case is None:
            made = self._made(form)
            case = self._cases[key] = self._same.setdefault(made, made)
        return case

    def _key(self, form: StepForm) -> tuple[object, ...]:
        step = form.step
        kinds = (
            tuple(map(self._kind_number, form.inputs)),
            tuple(self._kind_number(name) if name else -1 for name in step.outputs),
        )
        if isinstance(step, Apply):
            reference = None if form.is_node else (step.node, *(self._plan.tensors[name].value for name in form.inputs))
            return (step.mesh, kinds, reference, *_numbered(step, form.inputs))
        meshes = self._plan.tensors[step.source].mesh, self._plan.tensors[step.target].mesh
        return (*meshes, kinds, step.part is None, *((step.kind, step.axis) if isinstance(step, Collective) else ()))

    def _made(self, form: StepForm) -> Case:
        step = form.step
        if isinstance(step, Apply):
            return self._apply(form, step)
        source, target = self._kind(step.source), self._kind(step.target)
        mesh = self._plan.mesh_of(step.source)
        if isinstance(step, Collective):
            axis = mesh.axis_index(step.axis)
            return CollectiveCase(kind=step.kind, before=source, after=target, axis=axis, axes=self._lines(mesh.name))
        lines = self._lines(mesh.name), self._lines(self._plan.mesh_of(step.target).name)
        in_parts = step.part is not None
        return TransferCase(source=source, source_axes=lines[0], target=target, target_axes=lines[1], in_parts=in_parts)

    def _apply(self, form: StepForm, step: Apply) -> ApplyCase:
        own = _numbered(step, form.inputs)
        node, reference = self._reading.program.node_named.get(step.node), None
        if node and not form.is_node:
            reference = _numbered(node, [self._plan.tensors[name].value for name in form.inputs])
        return ApplyCase(
            op=own[0],
            arguments=own[1],
            keywords=own[2],
            inputs=tuple(self._kind(name) for name in form.inputs),
            outputs=tuple(self._kind(name) if name else None for name in step.outputs),
            axes=self._lines(step.mesh),
            reference=None if repr(reference) == repr(own) else reference,
        )

    def _kind(self, tensor: str) -> Kind:
        return self._kinds[self._kind_number(tensor)]

    def _kind_number(self, tensor: str) -> int:
        number = self._number_of.get(tensor)
        if number is None:
            placed = self._plan.tensors[tensor]
            value = self._plan.values[placed.value]
            number = self._numbers.setdefault((value.shape, value.dtype, self._reading.spots[tensor]), len(self._kinds))
            if number == len(self._kinds):
                self._kinds.append(Kind(value.shape, value.dtype, placed.layout))
            self._number_of[tensor] = number
        return number

    def _lines(self, mesh: str) -> tuple[Line, ...]:
        if mesh not in self._axes:
            self._axes[mesh] = tuple(Line(axis.size, axis.is_time) for axis in self._plan.meshes[mesh].axes)
        return self._axes[mesh]


def _numbered(thing: Apply | Node, inputs: Sequence[str]) -> Reference:
    numbers = {name: str(index) for index, name in enumerate(inputs)}
    arguments = tuple(rename_values(argument, numbers) for argument in thing.arguments)
    return thing.op, arguments, tuple((key, rename_values(value, numbers)) for key, value in thing.keywords)


def along(case: ApplyCase, axis: int) -> ApplyCase:
    """Returns a case on one axis of its mesh alone."""

    def one(kind: Kind) -> Kind:
        return replace(kind, layout=(kind.layout[axis],))

    return replace(
        case,
        inputs=tuple(one(kind) for kind in case.inputs),
        outputs=tuple(one(kind) if kind else None for kind in case.outputs),
        axes=(case.axes[axis],),
    )


def is_plain(case: ApplyCase) -> bool:
    """Whether every rank does the same with the same tensors, so that there is nothing to prove."""
    kinds = [*case.inputs, *(kind for kind in case.outputs if kind)]
    return case.reference is None and all(placement == REPLICATE for kind in kinds for placement in kind.layout)
