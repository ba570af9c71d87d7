"""The content of a plan file as structs, and the conversion of plans to it and back. plan_file.py reads and writes files."""

from collections.abc import Callable, Hashable, Sequence
from math import isfinite
from typing import Any, Generic, Literal, TypeVar, assert_never

import msgspec

from dyorc.core.plan_head import FORMAT, VERSION, InferenceRow, MeshRow
from dyorc.errors import PlanError
from dyorc.planner.plan.layout import Mesh, MeshAxis
from dyorc.planner.plan.layout_text import layout_of
from dyorc.planner.plan.plan import Inference, Kernel, Limit, ModuleCheck, Network, Overlap, Placed, Plan, Provenance, SearchEnd
from dyorc.planner.plan.steps import Algorithm, Apply, ChannelKind, Collective, CollectiveKind, Edge, Step, Transfer
from dyorc.planner.program import Argument, Value, ValueKind, ValueRef
from dyorc.planner.program.graph import Dtype, OutputShape, OutputStart

_NO_OUTPUT = -1
"""The index of an output that no step reads."""

Row = TypeVar("Row", bound=Hashable)


class ValueRow(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A value of the program."""

    name: str
    shape: list[int]
    dtype: str
    kind: ValueKind


class TensorRow(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A placed tensor: indices into the tables, and its id."""

    value: int
    mesh: int
    layout: int
    id: str


class OperationRow(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A node and its arguments, in which `{"input": 0}` is the first input of the step."""

    node: str
    op: str
    arguments: list[Any]
    keywords: list[tuple[str, Any]]


class StepRow(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What every step's row begins with."""


class ApplyRow(StepRow, tag="apply"):
    """An `Apply`."""

    operation: int
    inputs: list[int]
    outputs: list[int]
    mesh: int
    part: int | None


class TransferRow(StepRow, tag="transfer"):
    """A `Transfer`."""

    source: int
    target: int
    part: int | None


class CollectiveRow(StepRow, tag="collective"):
    """A `Collective`."""

    kind: CollectiveKind
    source: int
    target: int
    axis: str
    part: int | None
    algorithm: Algorithm


class ProvenanceRow(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Where the plan comes from; how its search ended, if not by itself."""

    planner: str
    seed: int
    cost_s: float | None
    search_s: float | None
    notes: dict[str, str]
    ended: SearchEnd = SearchEnd.FINISHED


class LimitRow(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """What a machine may send to another."""

    source: str
    target: str
    interface: str
    bytes_per_s: float


class NetworkRow(msgspec.Struct, forbid_unknown_fields=True):
    """The limits of the network."""

    is_strict: bool
    limits: list[LimitRow]


class ModuleCheckRow(msgspec.Struct, forbid_unknown_fields=True):
    """How the program was compared with its module."""

    num_seeds: int
    dtype: Literal["float64", "own"]
    num_results: int
    largest_difference: float


class KernelRow(msgspec.Struct, array_like=True, forbid_unknown_fields=True, omit_defaults=True):
    """A kernel; what makes the terms of its sum is a number of steps, their order, and where tensors are cut."""

    first: int
    end: int
    num_chunks: int
    overlap: tuple[int, list[int], list[tuple[int, int]]] | None = None


class Document(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """All that stands in a plan's file."""

    format: str
    version: int
    digest: str
    program: str
    target: str
    cluster: str
    provenance: ProvenanceRow
    network: NetworkRow | None
    meshes: list[MeshRow]
    values: list[ValueRow]
    layouts: list[str]
    tensors: list[TensorRow]
    sources: list[tuple[str, list[int]]]
    results: list[tuple[str, int]]
    operations: list[OperationRow]
    steps: list[ApplyRow | CollectiveRow | TransferRow]
    inference: InferenceRow | None = None
    kernels: list[KernelRow] = []
    edges: list[tuple[int, int, int, ChannelKind, int]] = []
    """Of transfers: the number of the step, the rank that sends, the one that receives, how, and the slot."""
    module_check: ModuleCheckRow | None = None


class _Table(Generic[Row]):
    """Numbers what is put into it, in the order in which it first comes."""

    def __init__(self, rows: Sequence[Row] = ()) -> None:
        self._numbers = {row: number for number, row in enumerate(rows)}

    def number(self, row: Row) -> int:
        return self._numbers.setdefault(row, len(self._numbers))

    @property
    def rows(self) -> list[Row]:
        return list(self._numbers)


# -- writing -------------------------------------------------------------------------------------------------------------------


def document_of(plan: Plan) -> Document:
    """Returns a plan's document, without its digest."""
    return _Writer(plan).document()


class _Writer:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._meshes = _Table(sorted(plan.meshes))
        self._values = _Table(sorted(plan.values))
        self._tensors = _Table(sorted(plan.tensors))
        self._layouts = _Table[str]()
        self._operations = _Table[tuple[Hashable, ...]]()
        self._rows: list[OperationRow] = []

    def document(self) -> Document:
        plan, provenance = self._plan, self._plan.provenance
        tensors = [self._tensor(name) for name in self._tensors.rows]
        steps = [self._step(step) for step in plan.steps]
        return Document(
            format=FORMAT,
            version=VERSION,
            digest="",
            program=plan.program,
            target=plan.target,
            cluster=plan.cluster,
            provenance=ProvenanceRow(
                planner=provenance.planner,
                seed=provenance.seed,
                cost_s=provenance.cost_s,
                search_s=provenance.search_s,
                notes=dict(sorted(provenance.notes.items())),
                ended=provenance.ended,
            ),
            network=_network_row(plan.network),
            meshes=[_mesh_row(plan.meshes[name]) for name in self._meshes.rows],
            values=[
                ValueRow(name, list(value.shape), value.dtype, value.kind)
                for name in self._values.rows
                for value in [plan.values[name]]
            ],
            layouts=self._layouts.rows,
            tensors=tensors,
            sources=[(value, [self._tensors.number(t) for t in ids]) for value, ids in sorted(plan.sources.items())],
            results=[(value, self._tensors.number(tensor)) for value, tensor in sorted(plan.results.items())],
            operations=self._rows,
            steps=steps,
            inference=None if plan.inference is None else _inference_row(plan.inference),
            module_check=None if plan.module_check is None else _module_check_row(plan.module_check),
            kernels=[self._kernel(kernel) for kernel in plan.kernels],
            edges=[
                (number, edge.source, edge.target, edge.kind, edge.slot)
                for number, step in enumerate(plan.steps)
                if isinstance(step, Transfer)
                for edge in step.edges
            ],
        )

    def _tensor(self, name: str) -> TensorRow:
        placed = self._plan.tensors[name]
        layout = self._layouts.number("|".join(map(str, placed.layout)))
        return TensorRow(self._values.number(placed.value), self._meshes.number(placed.mesh), layout, name)

    def _kernel(self, kernel: Kernel) -> KernelRow:
        row = KernelRow(kernel.first, kernel.end, kernel.num_chunks)
        if (made := kernel.overlap) is not None:
            cuts = sorted((self._tensors.number(name), dim) for name, dim in made.cuts.items())
            row.overlap = (made.num_steps, list(made.order), cuts)
        return row

    def _step(self, step: Step) -> ApplyRow | CollectiveRow | TransferRow:
        number = self._tensors.number
        match step:
            case Apply():
                outputs = [number(tensor) if tensor else _NO_OUTPUT for tensor in step.outputs]
                inputs = [number(tensor) for tensor in step.inputs]
                return ApplyRow(self._operation(step), inputs, outputs, self._meshes.number(step.mesh), step.part)
            case Collective():
                source, target = number(step.source), number(step.target)
                return CollectiveRow(step.kind, source, target, step.axis, step.part, step.algorithm)
            case Transfer():
                return TransferRow(number(step.source), number(step.target), step.part)
            case _:
                assert_never(step)

    def _operation(self, step: Apply) -> int:
        counter = iter(range(len(step.inputs)))
        arguments = [_written(argument, counter.__next__) for argument in step.arguments]
        keywords = [(key, _written(value, counter.__next__)) for key, value in step.keywords]
        row = OperationRow(step.node, step.op, arguments, keywords)
        number = self._operations.number((msgspec.json.encode(row),))
        if number == len(self._rows):
            self._rows.append(row)
        return number


def _module_check_row(check: ModuleCheck) -> ModuleCheckRow:
    return ModuleCheckRow(
        num_seeds=check.num_seeds,
        dtype=check.dtype,
        num_results=check.num_results,
        largest_difference=check.largest_difference,
    )


def _inference_row(inference: Inference) -> InferenceRow:
    return InferenceRow(
        inputs=list(inference.inputs),
        outputs=list(inference.outputs),
        max_samples=inference.max_samples,
        batch_dims={name: list(dims) for name, dims in sorted(inference.batch_dims.items())},
        is_proved=inference.is_proved,
        call_structure=inference.call_structure,
        answer_structure=inference.answer_structure,
    )


def _network_row(network: Network | None) -> NetworkRow | None:
    if network is None:
        return None
    rows = [LimitRow(limit.source, limit.target, limit.interface, limit.bytes_per_s) for limit in network.limits]
    return NetworkRow(network.is_strict, rows)


def _mesh_row(mesh: Mesh) -> MeshRow:
    return MeshRow(mesh.name, [(axis.name, axis.size, axis.is_time) for axis in mesh.axes], list(mesh.ranks))


def _written(argument: Argument, next_input: Callable[[], int]) -> Any:
    match argument:
        case ValueRef():
            return {"input": next_input()}
        case OutputShape():
            return {"shape": "output"}
        case OutputStart():
            return {"start": "output"}
        case Dtype(name):
            return {"dtype": name}
        case tuple():
            return [_written(part, next_input) for part in argument]
        case float() if not isfinite(argument):
            return {"float": str(argument)}  # JSON has no words for these
        case _:
            return argument


# -- reading -------------------------------------------------------------------------------------------------------------------


def plan_of(document: Document) -> Plan:
    """Returns the plan of a document.

    Raises:
        PlanError: A row names what is not there.
    """
    return _Reader(document).plan()


class _Reader:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._layouts = [layout_of(text, f"layouts[{number}]") for number, text in enumerate(document.layouts)]
        self._edges: dict[int, list[Edge]] = {}
        for number, source, target, kind, slot in document.edges:
            if not isinstance(_at(document.steps, number, "edges: step"), TransferRow):
                raise PlanError(f"edges: expected the number of a transfer, found {number}")
            self._edges.setdefault(number, []).append(Edge(source=source, target=target, kind=kind, slot=slot))

    def plan(self) -> Plan:
        document, origin = self._document, self._document.provenance
        return Plan(
            program=document.program,
            values={
                row.name: Value(name=row.name, shape=tuple(row.shape), dtype=row.dtype, kind=row.kind) for row in document.values
            },
            target=document.target,
            cluster=document.cluster,
            meshes={row.name: _mesh(row) for row in document.meshes},
            tensors={row.id: self._tensor(row, f"tensors[{number}]") for number, row in enumerate(document.tensors)},
            sources={value: tuple(self._id(t, f"sources of {value}") for t in tensors) for value, tensors in document.sources},
            steps=tuple(self._step(row, number) for number, row in enumerate(document.steps)),
            results={value: self._id(tensor, f"the result {value}") for value, tensor in document.results},
            provenance=Provenance(
                planner=origin.planner,
                seed=origin.seed,
                cost_s=origin.cost_s,
                search_s=origin.search_s,
                ended=origin.ended,
                notes=origin.notes,
            ),
            network=_network(document.network),
            inference=None if document.inference is None else _inference(document.inference),
            module_check=None if document.module_check is None else _module_check(document.module_check),
            kernels=tuple(self._kernel(row, f"kernels[{number}]") for number, row in enumerate(document.kernels)),
        )

    def _tensor(self, row: TensorRow, place: str) -> Placed:
        mesh = _at(self._document.meshes, row.mesh, f"{place}: mesh")
        layout = _at(self._layouts, row.layout, f"{place}: layout")
        if len(layout) != len(mesh.axes):
            raise PlanError(
                f"{place}: expected {len(mesh.axes)} placements, one for each axis of {mesh.name}; found {len(layout)}"
            )
        return Placed(value=_at(self._document.values, row.value, f"{place}: value").name, mesh=mesh.name, layout=layout)

    def _kernel(self, row: KernelRow, place: str) -> Kernel:
        if row.overlap is None:
            return Kernel(row.first, row.end, row.num_chunks)
        num_steps, order, cuts = row.overlap
        made = Overlap(num_steps=num_steps, order=tuple(order), cuts={self._id(t, place): dim for t, dim in cuts})
        return Kernel(row.first, row.end, row.num_chunks, made)

    def _id(self, number: int, place: str) -> str:
        return _at(self._document.tensors, number, f"{place}: tensor").id

    def _step(self, row: ApplyRow | CollectiveRow | TransferRow, number: int) -> Step:
        place = f"steps[{number}]"
        match row:
            case ApplyRow():
                return self._apply(row, place)
            case CollectiveRow():
                return Collective(
                    kind=row.kind,
                    source=self._id(row.source, place),
                    target=self._id(row.target, place),
                    axis=row.axis,
                    part=row.part,
                    algorithm=row.algorithm,
                )
            case TransferRow():
                return Transfer(
                    source=self._id(row.source, place),
                    target=self._id(row.target, place),
                    part=row.part,
                    edges=tuple(self._edges.get(number, ())),
                )
            case _:
                assert_never(row)

    def _apply(self, row: ApplyRow, place: str) -> Apply:
        operation = _at(self._document.operations, row.operation, f"{place}: operation")
        inputs = [self._id(tensor, place) for tensor in row.inputs]
        if all(tensor == _NO_OUTPUT for tensor in row.outputs):
            raise PlanError(f"{place}: {operation.op} of node {operation.node} has no output")
        return Apply(
            node=operation.node,
            op=operation.op,
            arguments=tuple(_read(argument, inputs, place) for argument in operation.arguments),
            keywords=tuple((key, _read(value, inputs, place)) for key, value in operation.keywords),
            outputs=tuple(self._id(tensor, place) if tensor != _NO_OUTPUT else "" for tensor in row.outputs),
            mesh=_at(self._document.meshes, row.mesh, f"{place}: mesh").name,
            part=row.part,
        )


_Item = TypeVar("_Item")


def _at(table: Sequence[_Item], number: int, place: str) -> _Item:
    if not 0 <= number < len(table):
        raise PlanError(f"{place}: expected a number below {len(table)}, found {number}")
    return table[number]


def _module_check(row: ModuleCheckRow) -> ModuleCheck:
    return ModuleCheck(
        num_seeds=row.num_seeds, dtype=row.dtype, num_results=row.num_results, largest_difference=row.largest_difference
    )


def _inference(row: InferenceRow) -> Inference:
    return Inference(
        inputs=tuple(row.inputs),
        outputs=tuple(row.outputs),
        max_samples=row.max_samples,
        batch_dims={name: tuple(dims) for name, dims in row.batch_dims.items()},
        is_proved=row.is_proved,
        call_structure=row.call_structure,
        answer_structure=row.answer_structure,
    )


def _network(row: NetworkRow | None) -> Network | None:
    if row is None:
        return None
    limits = tuple(
        Limit(source=limit.source, target=limit.target, interface=limit.interface, bytes_per_s=limit.bytes_per_s)
        for limit in row.limits
    )
    return Network(limits=limits, is_strict=row.is_strict)


def _mesh(row: MeshRow) -> Mesh:
    axes = tuple(MeshAxis(name=name, size=size, is_time=is_time) for name, size, is_time in row.axes)
    return Mesh(name=row.name, axes=axes, ranks=tuple(row.ranks))


def _read(argument: Any, inputs: Sequence[str], place: str) -> Argument:
    match argument:
        case {"input": int(number)}:
            return ValueRef(_at(inputs, number, f"{place}: input"))
        case {"shape": "output"}:
            return OutputShape()
        case {"start": "output"}:
            return OutputStart()
        case {"dtype": str(name)}:
            return Dtype(name)
        case {"float": "inf" | "-inf" | "nan" as name}:
            return float(name)
        case list():
            return tuple(_read(part, inputs, place) for part in argument)  # pyright: ignore[reportUnknownVariableType]
        case None | bool() | int() | float() | str():
            return argument
        case _:
            raise PlanError(f"{place}: expected an argument, found {argument!r}")
