"""Runs the case of a step on pieces that are valid, and compares what it makes with the whole."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from dyorc.planner.plan import Apply, Collective, Coordinate, Layout, Mesh, MeshAxis, Placed, Plan, Provenance, Step, Transfer
from dyorc.planner.plan.interpret import Piece, run_step
from dyorc.planner.plan.layout import extents
from dyorc.planner.program import Partial, Shard, Value, ValueKind
from dyorc.planner.program.graph import locate, rename_values
from dyorc.planner.verify.algebra import NumbersAlgebra
from dyorc.planner.verify.cases import ApplyCase, Case, CollectiveCase, Kind, Line, TransferCase
from dyorc.planner.verify.numbers import Array

Draw: TypeAlias = Callable[[int, int, tuple[int, ...], str], Array]
"""Returns fresh unknowns for an input, by its number, and a term of its sum: of a shape and type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where a case is wrong.

    Attributes:
        output: Which output.
        position: The coordinate on the mesh.
        index: The element, or () if the shapes differ.
        expected: The element or shape of the whole value.
        actual: The element or shape that was computed.
    """

    output: int
    position: Coordinate
    index: tuple[int, ...]
    expected: Any
    actual: Any

    @property
    def is_shape(self) -> bool:
        """Whether the shapes differ."""
        return isinstance(self.expected, tuple)


def differences(case: Case, algebra: NumbersAlgebra, draw: Draw) -> Iterator[Difference]:
    """Runs a case on all its ranks and parts, and yields where its outputs are not what their layouts say.

    Raises:
        UnknownOperationError: The operation has no definition.
        PlanError, ValueError, IndexError, TypeError: It cannot run on these pieces.
    """
    match case:
        case ApplyCase():
            yield from _run_apply(case, algebra, draw)
        case CollectiveCase():
            step = Collective(kind=case.kind, source="0", target="1", axis=str(case.axis))
            yield from _run_move(case.before, case.axes, case.after, case.axes, _in_parts(case, step), algebra, draw)
        case TransferCase():
            time = next((line.size for line in case.source_axes if line.is_time), 1)
            steps = [Transfer(source="0", target="1", part=part) for part in (range(time) if case.in_parts else [None])]
            yield from _run_move(case.source, case.source_axes, case.target, case.target_axes, steps, algebra, draw)


def _in_parts(case: CollectiveCase, step: Collective) -> list[Step]:
    return [step]  # for no part in particular: all of them


def _run_apply(case: ApplyCase, algebra: NumbersAlgebra, draw: Draw) -> Iterator[Difference]:
    outputs = {f"o{index}": kind for index, kind in enumerate(case.outputs) if kind}
    inputs = {f"i{index}": kind for index, kind in enumerate(case.inputs)}
    plan = _plan({"mesh": case.axes}, {name: (kind, "mesh") for name, kind in (inputs | outputs).items()})
    wholes: dict[str, Array] = {}
    pieces: dict[Piece, Array] = {}
    for index, (name, kind) in enumerate(inputs.items()):
        wholes[name], placed = _valid(plan, name, kind, index, algebra, draw)
        pieces |= placed
    names = {str(index): f"i{index}" for index in range(len(case.inputs))}
    arguments = tuple(rename_values(argument, names) for argument in case.arguments)
    keywords = tuple((key, rename_values(value, names)) for key, value in case.keywords)
    shape = next(kind.shape for kind in outputs.values())
    op, positional, named = case.reference or (case.op, case.arguments, case.keywords)
    expected = locate(tuple(rename_values(a, names) for a in positional), (0,) * len(shape))
    whole = algebra.compute(op, expected, tuple((key, rename_values(value, names)) for key, value in named), wholes, shape)
    time = plan.meshes["mesh"].time_axis
    varies = any(plan.varies_in_time(name) for name in plan.tensors)
    names_made = tuple(f"o{index}" if kind else "" for index, kind in enumerate(case.outputs))
    for part in range(case.axes[time].size) if time is not None and varies else [None]:
        step = Apply(node="", op=case.op, arguments=arguments, keywords=keywords, outputs=names_made, mesh="mesh", part=part)
        made = run_step(plan, step, pieces, algebra)
        for name in outputs:  # a replica that another part made must agree, too
            if any(piece in pieces for piece in made if piece.tensor == name):
                yield from _compared(plan, name, int(name[1:]), whole[int(name[1:])], pieces | made, algebra)
        pieces |= made
    for name in outputs:
        yield from _compared(plan, name, int(name[1:]), whole[int(name[1:])], pieces, algebra)


def _run_move(
    source: Kind,
    source_axes: Sequence[Line],
    target: Kind,
    target_axes: Sequence[Line],
    steps: Sequence[Step],
    algebra: NumbersAlgebra,
    draw: Draw,
) -> Iterator[Difference]:
    is_one = isinstance(steps[0], Collective)
    meshes = {"source": source_axes} | ({} if is_one else {"target": target_axes})
    plan = _plan(meshes, {"0": (source, "source"), "1": (target, "source" if is_one else "target")})
    whole, pieces = _valid(plan, "0", source, 0, algebra, draw)
    for step in steps:
        pieces |= run_step(plan, step, pieces, algebra)
    yield from _compared(plan, "1", 0, whole, pieces, algebra)


def _plan(meshes: Mapping[str, Sequence[Line]], tensors: Mapping[str, tuple[Kind, str]]) -> Plan:
    made: dict[str, Mesh] = {}
    num_ranks = 0
    for name, lines in meshes.items():
        axes = tuple(MeshAxis(name=str(index), size=line.size, is_time=line.is_time) for index, line in enumerate(lines))
        size = int(np.prod([axis.size for axis in axes if not axis.is_time]))
        made[name] = Mesh(name=name, axes=axes, ranks=tuple(range(num_ranks, num_ranks + size)))
        num_ranks += size
    values = {n: Value(name=n, shape=k.shape, dtype=k.dtype, kind=ValueKind.ACTIVATION) for n, (k, _) in tensors.items()}
    return Plan(
        program="",
        values=values,
        meshes=made,
        tensors={name: Placed(value=name, mesh=mesh, layout=kind.layout) for name, (kind, mesh) in tensors.items()},
        sources={},
        steps=(),
        results={},
        provenance=Provenance(planner=""),
    )


def _valid(
    plan: Plan, tensor: str, kind: Kind, number: int, algebra: NumbersAlgebra, draw: Draw
) -> tuple[Array, dict[Piece, Array]]:
    """Unknown pieces that are valid for a layout, and the whole value: terms of a sum are unknowns of their own."""
    mesh = plan.mesh_of(tensor)
    terms: dict[Coordinate, Array] = {}
    for term, which in enumerate(_partial_positions(mesh, kind.layout)):
        terms[which] = draw(number, term, kind.shape, kind.dtype)
    whole: Array | None = None
    for term in terms.values():
        whole = term if whole is None else algebra.add(whole, term)
    pieces: dict[Piece, Array] = {}
    for coordinate in mesh.coordinates:
        term = terms[tuple(coordinate[axis] for axis in _partial_axes(kind.layout))]
        cut = tuple(slice(start, stop) for start, stop in plan.region(tensor, coordinate))
        pieces[_piece(plan, tensor, mesh, coordinate)] = term[(*cut, ...)]
    assert whole is not None
    return whole, pieces


def _compared(
    plan: Plan, tensor: str, output: int, whole: Array, pieces: Mapping[Piece, Array], algebra: NumbersAlgebra
) -> Iterator[Difference]:
    """Yields where the pieces that have been made are not those of the whole value."""
    mesh, layout = plan.mesh_of(tensor), plan.tensors[tensor].layout
    partial = _partial_axes(layout)
    if tuple(whole.shape) != plan.values[tensor].shape:
        yield Difference(output=output, position=(), index=(), expected=plan.values[tensor].shape, actual=tuple(whole.shape))
        return
    for start in mesh.coordinates:
        if any(start[axis] for axis in partial):
            continue
        terms = [_at(start, partial, which) for which in _partial_positions(mesh, layout)]
        names = [_piece(plan, tensor, mesh, coordinate) for coordinate in terms]
        if any(name not in pieces for name in names):
            continue  # of a part that comes later; structure.py sees that none is left out
        region = plan.region(tensor, start)
        total: Array | None = None
        for coordinate, name in zip(terms, names, strict=True):
            if tuple(pieces[name].shape) != extents(region):
                shapes = {"expected": extents(region), "actual": tuple(pieces[name].shape)}
                yield Difference(output=output, position=coordinate, index=(), **shapes)
                return
            total = pieces[name] if total is None else algebra.add(total, pieces[name])
        assert total is not None
        expected = whole[(*(slice(a, b) for a, b in region), ...)]
        wrong = np.argwhere(np.asarray(expected != total, dtype=np.bool_))
        for index in wrong[:1]:
            at = tuple(int(i) for i in index)
            yield Difference(output=output, position=start, index=at, expected=expected[at], actual=total[at])


def _partial_axes(layout: Layout) -> list[int]:
    return [axis for axis, placement in enumerate(layout) if isinstance(placement, Partial)]


def _partial_positions(mesh: Mesh, layout: Layout) -> list[Coordinate]:
    return list(product(*(range(mesh.axes[axis].size) for axis in _partial_axes(layout))))


def _at(start: Coordinate, axes: Sequence[int], which: Coordinate) -> Coordinate:
    coordinate = list(start)
    for axis, index in zip(axes, which, strict=True):
        coordinate[axis] = index
    return tuple(coordinate)


def _piece(plan: Plan, tensor: str, mesh: Mesh, coordinate: Coordinate) -> Piece:
    time = mesh.time_axis
    return Piece(tensor, mesh.rank_at(coordinate), plan.part_of(tensor, None if time is None else coordinate[time]))


def num_elements(case: Case) -> int:
    """How many elements all pieces of a case have, about."""
    match case:
        case ApplyCase():
            kinds, axes = [*case.inputs, *(kind for kind in case.outputs if kind)], case.axes
        case CollectiveCase():
            kinds, axes = [case.before, case.after], case.axes
        case TransferCase():
            kinds, axes = [case.source, case.target], (*case.source_axes, *case.target_axes)
    total = 0
    for kind in kinds:
        copies = 1
        for placement, line in zip(kind.layout, axes, strict=False):
            copies *= 1 if isinstance(placement, Shard) else line.size
        total += int(np.prod(kind.shape, dtype=np.int64)) * copies
    return total
