"""Mistakes of reading: a rule and a definition that take an operation for another, or read its arguments wrongly."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dyorc.planner.program.graph import Argument, Node


@dataclass(frozen=True, kw_only=True)
class Misreading:
    """What a mistake takes an operation for.

    Attributes:
        name: The mistake.
        op: The operation.
        taken_for: Another operation, with its overload, whose arguments these are then; the same if empty.
        arguments: Arguments that are read as others, by position.
        only: How many arguments are read at all.
        without: Keywords that are not read.
    """

    name: str
    op: str
    taken_for: str = ""
    arguments: Mapping[int, Callable[[Any], Argument]] | None = None
    only: int | None = None
    without: tuple[str, ...] = ()

    def misread(self, node: Node) -> Node:
        """The node as the mistake reads it."""
        arguments: list[Argument] = list(node.arguments[: self.only])
        for index, change in (self.arguments or {}).items():
            if index < len(arguments):
                arguments[index] = change(arguments[index])
        keywords = tuple((key, value) for key, value in node.keywords if key not in self.without)
        op = f"aten.{self.taken_for}" if self.taken_for else node.op
        return replace(node, op=op, arguments=tuple(arguments), keywords=keywords)


def _other_dim(dim: Any) -> Argument:
    """The dimension before; of several, of each."""
    return tuple(part - 1 for part in dim) if isinstance(dim, tuple) else dim - 1 if dim is not None else None


def _last(_: Any) -> Argument:
    return (-1,)


def _first_of(dims: Any) -> Argument:
    return dims[:1] if isinstance(dims, tuple) else dims


def _last_of(dims: Any) -> Argument:
    return dims[-1:] if isinstance(dims, tuple) else dims


MISREADINGS = (
    Misreading(name="the largest of a dimension is a sum", op="amax", taken_for="sum.dim_IntList"),
    Misreading(name="the least of a dimension is a sum", op="amin", taken_for="sum.dim_IntList"),
    Misreading(name="a product along a dimension is a sum", op="prod", taken_for="sum.dim_IntList"),
    Misreading(name="scatter adds", op="scatter", taken_for="scatter_add.default"),
    Misreading(name="scatter_add replaces", op="scatter_add", taken_for="scatter.src"),
    Misreading(name="a sum is along other dimensions", op="sum", arguments={1: _other_dim}),
    Misreading(name="a sum is along the first of its dimensions", op="sum", arguments={1: _first_of}),
    Misreading(name="topk is always along the last dimension", op="topk", only=2),
    Misreading(name="sort's keyword dim is not read", op="sort", without=("dim",)),
    Misreading(name="softmax is always along the last dimension", op="_softmax", arguments={1: lambda _: -1}),
    Misreading(name="log_softmax is of each element", op="_log_softmax", taken_for="exp.default"),
    Misreading(name="gather is along another dimension", op="gather", arguments={1: _other_dim}),
    Misreading(name="index_select is along another dimension", op="index_select", arguments={1: _other_dim}),
    Misreading(
        name="roll is flip along the last dimension", op="roll", taken_for="flip.default", arguments={1: lambda _: (-1,)}, only=2
    ),
    Misreading(name="flip is along the first of its dimensions", op="flip", arguments={1: _first_of}),
    Misreading(name="padding is always by zeros", op="constant_pad_nd", only=2),
    Misreading(name="rounded quotients are quotients", op="div", without=("rounding_mode",)),
    Misreading(name="groups of a convolution are ignored", op="convolution", arguments={8: lambda _: 1}),
    Misreading(name="transposed convolutions are plain", op="convolution", arguments={6: lambda _: False}),
    Misreading(name="groups are ignored in gradients", op="convolution_backward", arguments={9: lambda _: 1}),
    Misreading(name="layer_norm is along the last dimension", op="native_layer_norm", arguments={1: _last_of}),
    Misreading(name="cumsum is along another dimension", op="cumsum", arguments={1: _other_dim}),
    Misreading(name="cumsum is of each element", op="cumsum", taken_for="neg.default"),
    Misreading(name="permute's order is taken backwards", op="permute", arguments={1: lambda order: order[::-1]}),
    Misreading(name="select is along another dimension", op="select", arguments={1: _other_dim}),
    Misreading(name="slice is along the dimension before", op="slice", arguments={1: _other_dim}),
    Misreading(name="cat is along another dimension", op="cat", arguments={1: _other_dim}),
    Misreading(name="split is along another dimension", op="split_with_sizes", arguments={2: _other_dim}),
    Misreading(name="relu is linear", op="relu", taken_for="neg.default"),
    Misreading(name="the larger of two is their sum", op="maximum", taken_for="add.Tensor"),
    Misreading(name="a power is a product", op="pow", taken_for="mul.Tensor"),
    Misreading(name="max pooling is of each element", op="max_pool2d_with_indices", taken_for="exp.default"),
    Misreading(name="the lower triangle is of each element", op="tril", taken_for="neg.default"),
    Misreading(name="argmax is always of all elements", op="argmax", only=1),
    Misreading(name="a product of matrices is of elements", op="mm", taken_for="mul.Tensor"),
)
