"""Brings the case of a step to small shapes and a small mesh, with the same structure.

What stays: which dimensions have equal extents, which are 1, which axis cuts which dimension inside which other, and whether
some rank's share is nothing. What shrinks: an uncut dimension to a few elements, at least two; a cut one to the sum
of small shares, 2 and 1 where shares may differ. An axis keeps two steps, or three if shares of nothing occur. Numbers among
the arguments that speak of extents (where a slice ends) shrink along with the dimension that they speak of.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from typing import TypeAlias, cast

from dyorc.planner.plan.layout import Layout
from dyorc.planner.program import Argument, Shard, ValueRef
from dyorc.planner.program.torch_operations import PLANES, num_space_of
from dyorc.planner.verify.cases import ApplyCase, Case, CollectiveCase, Kind, Line, TransferCase

Spot: TypeAlias = tuple[int, int]
"""A tensor, by its number (inputs first), and a dimension."""


def shrink(case: Case, uncut: int) -> Case | None:
    """Returns a case of the same structure on small shapes, or None if there is no way to make it smaller.

    Args:
        case: Whose shares are known to agree.
        uncut: The largest extent of a dimension that no axis cuts.
    """
    match case:
        case ApplyCase():
            return _apply(case, uncut)
        case CollectiveCase():
            return _collective(case, uncut)
        case TransferCase():
            return _transfer(case, uncut)


@dataclass(slots=True)
class _Marks:
    """Dimensions whose small extents an operation's arguments decide."""

    fixed: dict[Spot, int] = field(default_factory=dict[Spot, int])
    arguments: dict[int, Argument] = field(default_factory=dict[int, Argument])
    factors: dict[Spot, list[int]] = field(default_factory=dict[Spot, list[int]])  # of dimensions that are products
    is_possible: bool = True


def _shares(layouts: Sequence[Layout], axes: Sequence[Line]) -> list[tuple[int, ...]] | None:
    """For each axis its small shares; None if some axis cuts the same dimension inside uneven shares."""
    shares: list[tuple[int, ...]] = []
    for index, axis in enumerate(axes):
        cuts = [(layout, p) for layout in layouts if isinstance(p := layout[index], Shard)]
        has_inner = any(isinstance(i, Shard) and i.dim == p.dim for layout, p in cuts for i in layout[index + 1 :])
        has_nothing = any(0 in (p.sizes or ()) and sum(p.sizes or ()) for _, p in cuts)
        if axis.size == 1:
            shares.append((1,))
        elif has_inner or not cuts:
            if has_nothing:
                return None
            shares.append((1, 1))
        else:
            shares.append((2, 0, 1) if has_nothing else (2, 1))
    return shares


def _cut_as(layout: Layout, shape: Sequence[int], shares: Sequence[tuple[int, ...]]) -> Layout | None:
    """The layout with sizes for a small shape."""
    left, made = list(shape), list(layout)
    for index, placement in enumerate(layout):
        if isinstance(placement, Shard):
            total = sum(shares[index])
            if left[placement.dim] % total:
                return None
            unit = left[placement.dim] // total
            made[index] = Shard(placement.dim, tuple(share * unit for share in shares[index]))
            left[placement.dim] = shares[index][0] * unit
    return tuple(made)


def _extent(whole: int, cutters: set[int], shares: Sequence[tuple[int, ...]], uncut: int) -> int:
    if whole <= 1:
        return whole
    return prod(sum(shares[axis]) for axis in cutters) if cutters else min(whole, uncut)


# -- operations ----------------------------------------------------------------------------------------------------------------


def _apply(case: ApplyCase, uncut: int) -> ApplyCase | None:
    kinds = dict(enumerate([*case.inputs, *case.outputs]))
    tensors = {number: kind for number, kind in kinds.items() if kind is not None}
    shares = _shares([kind.layout for kind in tensors.values()], case.axes)
    marks = _MARKS.get(case.op.split(".")[1], _no_marks)(case)
    if shares is None or not marks.is_possible or (case.reference and marks.arguments):
        return None
    factors = {(t, d): marks.factors.get((t, d), [extent]) for t, kind in tensors.items() for d, extent in enumerate(kind.shape)}
    cutters: dict[int, set[int]] = {}  # extent of a factor -> the axes that cut it
    for number, kind in tensors.items():
        for axis, placement in enumerate(kind.layout):
            if isinstance(placement, Shard):
                if (number, placement.dim) in marks.fixed:
                    return None
                outermost = next((e for e in factors[number, placement.dim] if e != 1), 1)
                cutters.setdefault(outermost, set()).add(axis)

    def shrunk(number: int) -> Kind | None:
        kind = tensors[number]
        shape = tuple(
            marks.fixed[number, dim]
            if (number, dim) in marks.fixed
            else prod(_extent(factor, cutters.get(factor, set()), shares, uncut) for factor in factors[number, dim])
            for dim in range(len(kind.shape))
        )
        layout = _cut_as(kind.layout, shape, shares)
        return None if layout is None else Kind(shape, kind.dtype, layout)

    made = {number: shrunk(number) for number in tensors}
    if None in made.values():
        return None
    num_inputs = len(case.inputs)
    return replace(
        case,
        arguments=tuple(marks.arguments.get(index, argument) for index, argument in enumerate(case.arguments)),
        inputs=tuple(kind for number in range(num_inputs) if (kind := made[number])),
        outputs=tuple(made.get(num_inputs + index) for index in range(len(case.outputs))),
        axes=tuple(replace(line, size=len(share)) for line, share in zip(case.axes, shares, strict=True)),
    )


def _no_marks(case: ApplyCase) -> _Marks:
    return _Marks()


def _number(argument: Argument) -> int:
    return int(cast(int, argument))


def _numbers(argument: Argument) -> list[int]:
    return [_number(part) for part in argument] if isinstance(argument, tuple) else [_number(argument)]


def _first(case: ApplyCase) -> tuple[int, tuple[int, ...]]:
    """The number and shape of the tensor that is the first argument."""
    argument = case.arguments[0]
    number = int(argument.name) if isinstance(argument, ValueRef) else 0
    return number, case.inputs[number].shape


def _at(case: ApplyCase, index: int, default: Argument) -> Argument:
    return case.arguments[index] if index < len(case.arguments) else default


def _every_output(case: ApplyCase, dim: int, extents: Sequence[int]) -> dict[Spot, int]:
    start = len(case.inputs)
    return {(start + index, dim): extents[index % len(extents)] for index, kind in enumerate(case.outputs) if kind}


def _of_view(case: ApplyCase) -> _Marks:
    """Splits the dimensions of both shapes into common factors, where they have some."""
    target = next(kind for kind in case.outputs if kind)
    marks = _Marks()
    sides = [(0, case.inputs[0].shape), (len(case.inputs), target.shape)]
    if prod(target.shape) == 0 or prod(case.inputs[0].shape) != prod(target.shape):
        marks.is_possible = False
        return marks
    ends = [sorted({prod(shape[:dim]) for dim in range(len(shape) + 1)}) for _, shape in sides]
    bounds = sorted({*ends[0], *ends[1]})
    if any(large % small for small, large in pairwise(bounds)):
        marks.is_possible = False
        return marks
    for number, shape in sides:
        for dim in range(len(shape)):
            inside = [b for b in bounds if prod(shape[:dim]) <= b <= prod(shape[: dim + 1])]
            marks.factors[number, dim] = [b // a for a, b in pairwise(inside)] or [1]
    return marks


def _of_slice(case: ApplyCase) -> _Marks:
    number, shape = _first(case)
    dim = _number(_at(case, 1, 0)) % len(shape)
    extent, step = shape[dim], _number(_at(case, 4, 1))
    start = _bounded(_at(case, 2, None), 0, extent)
    end = max(_bounded(_at(case, 3, None), extent, extent), start)
    if step == 1:
        small = [min(gap, 2) for gap in (start, end - start, extent - end)]
        bounds, kept = (small[0], small[0] + small[1]), small[1]
    else:
        kept = min(-(-(end - start) // step), 2)
        small = [min(start, 2), kept * step]
        bounds = (small[0], sum(small))
    fixed = {(number, dim): sum(small), **_every_output(case, dim, [kept])}
    return _Marks(fixed=fixed, arguments={1: dim, 2: bounds[0], 3: bounds[1], 4: step})


def _bounded(argument: Argument, default: int, extent: int) -> int:
    if argument is None:
        return default
    bound = _number(argument)
    return min(max(bound + extent if bound < 0 else bound, 0), extent)


def _of_select(case: ApplyCase) -> _Marks:
    number, shape = _first(case)
    dim = _number(case.arguments[1]) % len(shape)
    index, extent = _number(case.arguments[2]) % shape[dim], min(shape[dim], 3)
    small = extent - 1 if index == shape[dim] - 1 else min(index, 1)
    return _Marks(fixed={(number, dim): extent}, arguments={2: small})


def _of_split(case: ApplyCase) -> _Marks:
    number, shape = _first(case)
    dim = _number(_at(case, 2, 0)) % len(shape)
    sizes = [min(size, 2) for size in _numbers(case.arguments[1])]
    return _Marks(fixed={(number, dim): sum(sizes), **_every_output(case, dim, sizes)}, arguments={1: tuple(sizes)})


def _of_cat(case: ApplyCase) -> _Marks:
    joined = [int(part.name) for part in cast(tuple[ValueRef, ...], case.arguments[0])]
    dim = _number(_at(case, 1, 0)) % len(case.inputs[joined[0]].shape)
    small = {(number, dim): min(case.inputs[number].shape[dim], 2) for number in joined}
    return _Marks(fixed={**small, **_every_output(case, dim, [sum(small[number, dim] for number in joined)])})


def _of_stack(case: ApplyCase) -> _Marks:
    target = next(kind for kind in case.outputs if kind)
    dim = _number(_at(case, 1, 0)) % len(target.shape)
    return _Marks(fixed=_every_output(case, dim, [target.shape[dim]]))


def _of_pad(case: ApplyCase) -> _Marks:
    number, shape = _first(case)
    padding, marks = _numbers(case.arguments[1]), _Marks()
    small = list(padding)
    for pair in range(len(padding) // 2):
        dim = len(shape) - 1 - pair
        before, after = padding[2 * pair : 2 * pair + 2]
        if before or after:
            small[2 * pair], small[2 * pair + 1] = max(min(before, 2), -1), max(min(after, 2), -1)
            extent = min(shape[dim], 4)
            marks.fixed[number, dim] = extent
            marks.fixed |= _every_output(case, dim, [extent + small[2 * pair] + small[2 * pair + 1]])
    marks.arguments[1] = tuple(small)
    return marks


def _of_embedding_backward(case: ApplyCase) -> _Marks:
    num = min(_number(case.arguments[2]), 3)
    return _Marks(fixed=_every_output(case, 0, [num]), arguments={2: num})


def _of_topk(case: ApplyCase) -> _Marks:
    number, shape = _first(case)
    dim = _number(_at(case, 2, -1)) % len(shape)
    kept = min(_number(case.arguments[1]), 2)
    return _Marks(fixed={(number, dim): min(shape[dim], 3), **_every_output(case, dim, [kept])}, arguments={1: kept})


def _of_roll(case: ApplyCase) -> _Marks:
    number, shape = _first(case)
    dims, shifts = _numbers(_at(case, 2, ())), _numbers(case.arguments[1])
    marks = _Marks(is_possible=bool(dims), arguments={1: tuple(1 if shift else 0 for shift in shifts)})
    for dim in dims:
        marks.fixed |= {
            (number, dim % len(shape)): min(shape[dim], 3),
            **_every_output(case, dim % len(shape), [min(shape[dim], 3)]),
        }
    return marks


def _of_slice_scatter(case: ApplyCase) -> _Marks:
    if case.keywords:
        return _Marks(is_possible=False)
    inner = _of_slice(replace(case, arguments=(case.arguments[0], *case.arguments[2:]), outputs=()))
    dim, start, end, step = (_number(inner.arguments[index]) for index in range(1, 5))
    source = int(cast(ValueRef, case.arguments[1]).name)
    extent = next(iter(inner.fixed.values()))
    fixed = {**inner.fixed, (source, dim): len(range(start, end, step)), **_every_output(case, dim, [extent])}
    return _Marks(fixed=fixed, arguments={index + 1: argument for index, argument in inner.arguments.items()})


def _of_select_scatter(case: ApplyCase) -> _Marks:
    if case.keywords:
        return _Marks(is_possible=False)
    inner = _of_select(replace(case, arguments=(case.arguments[0], *case.arguments[2:])))
    dim = _number(case.arguments[2]) % len(_first(case)[1])
    extent = next(iter(inner.fixed.values()))
    return _Marks(fixed={**inner.fixed, **_every_output(case, dim, [extent])}, arguments={3: inner.arguments[2]})


def _of_unfold(case: ApplyCase) -> _Marks:
    number, shape = _first(case)
    if case.keywords or not shape:
        return _Marks(is_possible=False)
    dim = _number(case.arguments[1]) % len(shape)
    size, step = (min(_number(argument), 2) for argument in case.arguments[2:4])
    num = min((shape[dim] - _number(case.arguments[2])) // _number(case.arguments[3]) + 1, 2)
    fixed = {(number, dim): size + step * (num - 1), **_every_output(case, dim, [num])}
    return _Marks(fixed={**fixed, **_every_output(case, len(shape), [size])}, arguments={2: size, 3: step})


def _of_planes(case: ApplyCase) -> _Marks:
    """The geometry of planes is unknown, so they may have any."""
    name = case.op.split(".")[1]
    longest = max(len(kind.shape) for kind in case.inputs)
    num_space = num_space_of(name) if name in PLANES else longest - 2
    return _Marks(
        fixed={
            (number, dim): min(kind.shape[dim], 2)
            for number, kind in enumerate([*case.inputs, *case.outputs])
            if kind and len(kind.shape) > num_space
            for dim in range(len(kind.shape) - num_space, len(kind.shape))
        }
    )


_MARKS: Mapping[str, Callable[[ApplyCase], _Marks]] = {
    "view": _of_view,
    "slice": _of_slice,
    "select": _of_select,
    "slice_scatter": _of_slice_scatter,
    "select_scatter": _of_select_scatter,
    "unfold": _of_unfold,
    "split_with_sizes": _of_split,
    "cat": _of_cat,
    "stack": _of_stack,
    "constant_pad_nd": _of_pad,
    "embedding_dense_backward": _of_embedding_backward,
    "topk": _of_topk,
    "roll": _of_roll,
    "convolution": _of_planes,
    "convolution_backward": _of_planes,
    **dict.fromkeys(PLANES, _of_planes),
}


# -- communication -------------------------------------------------------------------------------------------------------------


def _cutters_of(layouts: Sequence[Layout], num_dims: int) -> list[set[int]]:
    cutters: list[set[int]] = [set() for _ in range(num_dims)]
    for layout in layouts:
        for axis, placement in enumerate(layout):
            if isinstance(placement, Shard):
                cutters[placement.dim].add(axis)
    return cutters


def _collective(case: CollectiveCase, uncut: int) -> CollectiveCase | None:
    before, after, axis = case.before, case.after, case.axis
    shares = _shares([before.layout, after.layout], case.axes)
    if shares is None:
        return None
    cutters = _cutters_of([before.layout, after.layout], len(before.shape))
    shape = tuple(_extent(e, cutters[dim], shares, uncut) for dim, e in enumerate(before.shape))
    source, target = before.layout[axis], after.layout[axis]
    is_again = isinstance(source, Shard) and isinstance(target, Shard) and source.dim == target.dim
    turned = [share[::-1] if index == axis and is_again else share for index, share in enumerate(shares)]
    layouts = _cut_as(before.layout, shape, shares), _cut_as(after.layout, shape, turned)
    if layouts[0] is None or layouts[1] is None:
        return None
    return replace(
        case,
        before=Kind(shape, before.dtype, layouts[0]),
        after=Kind(shape, before.dtype, layouts[1]),
        axes=tuple(replace(line, size=len(share)) for line, share in zip(case.axes, shares, strict=True)),
    )


def _transfer(case: TransferCase, uncut: int) -> TransferCase | None:
    source, target = case.source, case.target
    ours, theirs = _shares([source.layout], case.source_axes), _shares([target.layout], case.target_axes)
    if ours is None or theirs is None:
        return None
    if case.in_parts:
        times = [next((i for i, line in enumerate(axes) if line.is_time), None) for axes in (case.source_axes, case.target_axes)]
        if (source_time := times[0]) is not None and (target_time := times[1]) is not None:  # one axis of time for both
            ours[source_time] = theirs[target_time] = (1, 1) if case.source_axes[source_time].size > 1 else (1,)
    num_dims = len(source.shape)
    cuts = _cutters_of([source.layout], num_dims), _cutters_of([target.layout], num_dims)
    shape = tuple(
        _extent(e, cuts[0][dim], ours, 1) * _extent(e, cuts[1][dim], theirs, 1)
        if e > 1 and cuts[0][dim] | cuts[1][dim]
        else min(e, uncut)
        for dim, e in enumerate(source.shape)
    )
    layouts = _cut_as(source.layout, shape, ours), _cut_as(target.layout, shape, theirs)
    if layouts[0] is None or layouts[1] is None:
        return None
    return replace(
        case,
        source=Kind(shape, source.dtype, layouts[0]),
        target=Kind(shape, source.dtype, layouts[1]),
        source_axes=tuple(replace(line, size=len(s)) for line, s in zip(case.source_axes, ours, strict=True)),
        target_axes=tuple(replace(line, size=len(s)) for line, s in zip(case.target_axes, theirs, strict=True)),
    )
