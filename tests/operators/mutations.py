# pyright: reportPrivateUsage=false, since mistakes are made inside
"""Mistakes on purpose, each the same in the planners' rule and in the verifier's definition, so that a proof would hold.

Most are misreadings: both take the operation for another, or read its arguments wrongly. Nothing but torch can tell.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from dyorc.offline.program import axes, rules, simplify, strategies
from dyorc.offline.program.graph import Argument, Node, Value
from dyorc.offline.program.rules import Rule
from dyorc.offline.verify import algebra
from dyorc.offline.verify.meanings import Call, Meaning, meaning_of
from dyorc.offline.verify.meanings.call import Result
from dyorc.offline.verify.numbers import Numbers
from tests.operators import gathering, written
from tests.operators.results import Result as Outcome
from tests.operators.results import check_meaning, check_rule
from tests.operators.samples import OperationSample


@dataclass(frozen=True, kw_only=True)
class Misreading:
    """What a mistake takes an operation for.

    Attributes:
        name: The mistake.
        op: The operation.
        taken_for: Another operation, with the same arguments, or the same.
        arguments: Arguments that are read as others, by position; one behind the last is added.
        only: How many arguments are read at all.
        without: Keywords that are not read.
        linear: Inputs in which the rule takes it to be linear besides.
    """

    name: str
    op: str
    taken_for: str = ""
    arguments: Mapping[int, Callable[[Any], Argument]] | None = None
    only: int | None = None
    without: tuple[str, ...] = ()
    linear: tuple[int, ...] = ()

    def read(self, arguments: tuple[Argument, ...]) -> tuple[Argument, ...]:
        """The arguments as the mistake reads them."""
        read = list(arguments[: self.only])
        for index, change in (self.arguments or {}).items():
            if index < len(read):
                read[index] = change(read[index])
        return tuple(read)


def _other_dim(dim: Any) -> Argument:
    """The dimension before; of several, of each."""
    return tuple(part - 1 for part in dim) if isinstance(dim, tuple) else dim - 1 if dim is not None else None


def _first_of(dims: Any) -> Argument:
    return dims[:1] if isinstance(dims, tuple) else dims


def _last_of(dims: Any) -> Argument:
    return dims[-1:] if isinstance(dims, tuple) else dims


MISREADINGS = (
    Misreading(name="the largest of a dimension is a sum", op="amax", taken_for="sum"),
    Misreading(name="the least of a dimension is a sum", op="amin", taken_for="sum"),
    Misreading(name="a product along a dimension is a sum", op="prod", taken_for="sum"),
    Misreading(name="scatter adds", op="scatter", taken_for="scatter_add", linear=(0,)),
    Misreading(name="scatter_add replaces", op="scatter_add", taken_for="scatter"),
    Misreading(name="a sum is along other dimensions", op="sum", arguments={1: _other_dim}),
    Misreading(name="a sum is along the first of its dimensions", op="sum", arguments={1: _first_of}),
    Misreading(name="topk is always along the last dimension", op="topk", only=2),
    Misreading(name="sort's keyword dim is not read", op="sort", without=("dim",)),
    Misreading(name="softmax is always along the last dimension", op="_softmax", arguments={1: lambda _: -1}),
    Misreading(name="log_softmax is of each element", op="_log_softmax", taken_for="exp"),
    Misreading(name="gather is along another dimension", op="gather", arguments={1: _other_dim}),
    Misreading(name="index_select is along another dimension", op="index_select", arguments={1: _other_dim}),
    Misreading(name="roll is flip along the last dimension", op="roll", taken_for="flip", arguments={1: lambda _: (-1,)}, only=2),
    Misreading(name="flip is along the first of its dimensions", op="flip", arguments={1: _first_of}),
    Misreading(name="padding is always by zeros", op="constant_pad_nd", only=2),
    Misreading(name="rounded quotients are quotients", op="div", without=("rounding_mode",)),
    Misreading(name="groups of a convolution are ignored", op="convolution", arguments={8: lambda _: 1}),
    Misreading(name="transposed convolutions are plain", op="convolution", arguments={6: lambda _: False}),
    Misreading(name="groups are ignored in gradients", op="convolution_backward", arguments={9: lambda _: 1}),
    Misreading(name="layer_norm is along the last dimension", op="native_layer_norm", arguments={1: _last_of}),
    Misreading(name="cumsum is along another dimension", op="cumsum", arguments={1: _other_dim}),
    Misreading(name="cumsum is of each element", op="cumsum", taken_for="neg"),
    Misreading(name="permute's order is taken backwards", op="permute", arguments={1: lambda order: order[::-1]}),
    Misreading(name="select is along another dimension", op="select", arguments={1: _other_dim}),
    Misreading(name="slice is along the dimension before", op="slice", arguments={1: _other_dim}),
    Misreading(name="cat is along another dimension", op="cat", arguments={1: _other_dim}),
    Misreading(name="split is along another dimension", op="split_with_sizes", arguments={2: _other_dim}),
    Misreading(name="relu is linear", op="relu", taken_for="neg"),
    Misreading(name="the larger of two is their sum", op="maximum", taken_for="add"),
    Misreading(name="a power is a product", op="pow", taken_for="mul"),
    Misreading(name="max pooling is of each element", op="max_pool2d_with_indices", taken_for="exp"),
    Misreading(name="the lower triangle is of each element", op="tril", taken_for="neg"),
    Misreading(name="argmax is always of all elements", op="argmax", taken_for="argmax", only=1),
    Misreading(name="a product of matrices is of elements", op="mm", taken_for="mul"),
)


@contextmanager
def made(mistake: Misreading) -> Generator[None]:
    """Makes a mistake in rules and definitions alike while in the context."""
    right_rule, right_meaning = rules.rule_of, meaning_of
    taken_for = mistake.taken_for or mistake.op

    def rule(node: Node, values: Mapping[str, Value]) -> Rule | None:
        if node.op.split(".")[1] != mistake.op:
            return right_rule(node, values)
        keywords = tuple((key, value) for key, value in node.keywords if key not in mistake.without)
        library, _, overload = node.op.split(".")
        node = replace(node, op=f"{library}.{taken_for}.{overload}", arguments=mistake.read(node.arguments), keywords=keywords)
        found = right_rule(node, values)
        return replace(found, linear=(*found.linear, mistake.linear)) if found and mistake.linear else found

    def meaning(op: str) -> Meaning:
        if op.split(".")[1] != mistake.op:
            return right_meaning(op)

        def mistaken(numbers: Numbers, call: Call) -> Result:
            keywords = {key: value for key, value in call.keywords.items() if key not in mistake.without}
            read = replace(call, op=taken_for, arguments=mistake.read(call.arguments), keywords=keywords)
            return right_meaning(f"aten.{taken_for}.default")(numbers, read)

        return mistaken

    with ExitStack() as stack:
        for module in (axes, strategies, gathering):
            stack.enter_context(patch.object(module, "rule_of", rule))
        stack.enter_context(patch.object(algebra, "meaning_of", meaning))
        stack.callback(axes.axes_of.cache_clear)
        axes.axes_of.cache_clear()
        yield


def noticed_by(mistake: Misreading, samples: Iterable[OperationSample]) -> list[str]:
    """Returns which comparisons with torch notice a mistake: of the rule, of the definition."""
    by: dict[str, None] = {}
    with made(mistake):
        for sample in samples:
            if sample.name == mistake.op and len(by) < 2:
                for name, check in (("rule", check_rule), ("definition", check_meaning)):
                    outcome = Outcome()
                    if name not in by:
                        check(sample, outcome)
                    if outcome.wrong:
                        by[name] = None
    return list(by)


def _joined_backwards(self: Any, node: Node) -> Node:
    """Joins two permutations in the wrong order."""
    before = self._producers.get(node.inputs[0]) if node.inputs else None
    if before is None or before.op != node.op or node.op != simplify.PERMUTE:
        return node
    inner: Any = before.arguments[1]
    outer: Any = node.arguments[1]
    return replace(node, arguments=(before.arguments[0], tuple(outer[dim] for dim in inner)))


def _of_values(self: Any, node: Node) -> bool:
    """Takes what has the same shape for the same, whatever its type."""
    values = self._values
    if node.op == "aten._to_copy.default" and values[node.inputs[0]].shape == values[node.outputs[0]].shape:
        self._same[node.outputs[0]] = node.inputs[0]
        return True
    return False


SIMPLIFIER: Mapping[str, tuple[object, str, object]] = {
    "a copy is what it is copied into": (simplify, "_COPIES", simplify._COPIES | {"aten.copy.default"}),
    "a flipped tensor is a view": (simplify, "_VIEWS", simplify._VIEWS | {"aten.flip.default"}),
    "a triangle is the whole": (simplify, "_COPIES", simplify._COPIES | {"aten.tril.default"}),
    "permutations are joined backwards": (simplify._Simplifier, "_in_one", _joined_backwards),
    "a converted tensor is the tensor": (simplify._Simplifier, "_is_same", _of_values),
}
"""Mistakes of the simplifier: what they change, and what it becomes."""


def simplified_wrongly(name: str) -> list[str]:
    """Returns which functions' normal form no longer computes what torch does, after a mistake of the simplifier."""
    with patch.object(*SIMPLIFIER[name]):
        return gathering.gather(written.functions()).wrong
