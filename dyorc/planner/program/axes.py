"""Which dimensions of all the program's tensors are the same axis, and in what units each may be split.

A view turns two dimensions into their product and back: a tensor `[batch * sequence, hidden]` is split like `[batch, sequence,
hidden]`, in whole sequences. So each dimension is a product of axes, outermost first, and splitting a dimension means splitting
its outermost axis. All dimensions that some rule, somewhere in the program, ties together share their axes; so one share of an
axis fits everywhere, however uneven it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from dyorc.planner.program.graph import Node, TensorProgram
from dyorc.planner.program.rules import Rule, rule_of
from dyorc.planner.program.simplify import VIEW


@dataclass(frozen=True, kw_only=True)
class Axes:
    """The axes of a program.

    Attributes:
        extents: Of each axis; axes are numbered from 0.
        outermost: For each value, for each dimension, its outermost axis; None for a dimension of extent 1.
    """

    extents: tuple[int, ...]
    outermost: Mapping[str, tuple[int | None, ...]]

    def extent_of(self, value: str, dim: int) -> int:
        """In how many units a dimension may be split: the extent of its outermost axis."""
        axis = self.outermost[value][dim]
        return 1 if axis is None else self.extents[axis]


@lru_cache(maxsize=8)
def axes_of(program: TensorProgram) -> Axes:
    """Finds the axes of a program."""
    ties = _Ties(program)
    for node in program.nodes:
        if node.op == VIEW:
            ties.tie_view(node)
        elif rule := rule_of(node, program.values):
            ties.tie(node, rule)
    for gradient, parameter in ((g, p) for p, g in program.gradients.items()):
        ties.tie_alike(gradient, parameter)
    for before, after in program.updates.items():
        ties.tie_alike(before, after)
    return ties.axes()


class _Dim:
    """A dimension, or a factor of one: it is another, or a product of others, or an axis by itself."""

    __slots__ = ("extent", "factors", "same")

    def __init__(self, extent: int) -> None:
        self.extent = extent
        self.same: _Dim | None = None
        self.factors: list[_Dim] | None = None


def _root_of(dim: _Dim) -> _Dim:
    while dim.same is not None:
        if dim.same.same is not None:
            dim.same = dim.same.same
        dim = dim.same
    return dim


class _Ties:
    """Ties dimensions together, by union and find."""

    def __init__(self, program: TensorProgram) -> None:
        self._program = program
        self._dims = {name: [_Dim(extent) for extent in value.shape] for name, value in program.values.items()}

    def tie(self, node: Node, rule: Rule) -> None:
        first: dict[str, _Dim] = {}
        names = (*node.inputs, *node.outputs)
        for name, letters in zip(names, (*rule.inputs, *rule.outputs), strict=True):
            for dim, letter in zip(self._dims[name] if name else (), letters, strict=bool(name)):
                if letter:
                    _unite(first.setdefault(letter, dim), dim)

    def tie_alike(self, first: str, second: str) -> None:
        for left, right in zip(self._dims[first], self._dims[second], strict=True):
            _unite(left, right)

    def tie_view(self, node: Node) -> None:
        """Goes through both shapes from the left, and ties groups of dimensions whose products agree."""
        left = [dim for dim in self._dims[node.inputs[0]] if dim.extent != 1]
        right = [dim for dim in self._dims[node.outputs[0]] if dim.extent != 1]
        if prod(dim.extent for dim in left) == 0:
            return
        while left and right:
            num_left = num_right = 1
            size_left, size_right = left[0].extent, right[0].extent
            while size_left != size_right:
                if size_left < size_right:
                    size_left *= left[num_left].extent
                    num_left += 1
                else:
                    size_right *= right[num_right].extent
                    num_right += 1
            _align(left[:num_left], right[:num_right])
            left, right = left[num_left:], right[num_right:]

    def axes(self) -> Axes:
        numbers: dict[_Dim, int] = {}
        outermost: dict[str, tuple[int | None, ...]] = {}
        for name, dims in self._dims.items():
            axes: list[int | None] = []
            for dim in dims:
                leaf = _outermost(dim)
                axes.append(None if leaf.extent == 1 else numbers.setdefault(leaf, len(numbers)))
            outermost[name] = tuple(axes)
        return Axes(extents=tuple(dim.extent for dim in numbers), outermost=outermost)


def _outermost(dim: _Dim) -> _Dim:
    dim = _root_of(dim)
    while dim.factors is not None:
        dim = _root_of(next((factor for factor in dim.factors if _root_of(factor).extent != 1), dim.factors[0]))
    return dim


def _unite(first: _Dim, second: _Dim) -> None:
    """Makes two dimensions one, if their factors allow it; otherwise they stay two, and no strategy splits both."""
    first, second = _root_of(first), _root_of(second)
    if first is second or first.extent != second.extent:
        return
    if first.factors is None:
        first.same = second
    elif second.factors is None:
        second.same = first
    else:
        _align(first.factors, second.factors)


def _align(left: list[_Dim], right: list[_Dim]) -> None:
    """Ties two products of the same size, and cuts factors where those of the other side end."""
    left, right = [*left], [*right]
    while left and right:
        first, second = _root_of(left.pop(0)), _root_of(right.pop(0))
        if first.extent == second.extent:
            _unite(first, second)
        elif first.extent > second.extent and first.extent % second.extent == 0:
            left[:0] = _cut(first, second.extent)
            right.insert(0, second)
        elif second.extent > first.extent and second.extent % first.extent == 0:
            right[:0] = _cut(second, first.extent)
            left.insert(0, first)
        else:
            return


def _cut(dim: _Dim, outer: int) -> list[_Dim]:
    """The factors of a dimension, which is cut in two if it has none."""
    if dim.factors is None:
        dim.factors = [_Dim(outer), _Dim(dim.extent // outer)]
    return dim.factors
