"""Brings a captured program into a normal form with few kinds of operations, so that rules, costs and proofs have less to know.

Copies go, all ways of changing only a shape become `aten.view`, all ways of making a constant tensor become `aten.full`, chains
of views and of permutations become one, what is computed twice is computed once, and what no result needs is not computed.
"""

from collections.abc import Mapping
from dataclasses import replace

from dyorc.planner.program.graph import (
    Argument,
    Dtype,
    Node,
    OutputShape,
    OutputStart,
    TensorProgram,
    Value,
    ValueKind,
    ValueRef,
    inputs_of,
    rename_values,
)
from dyorc.planner.program.randomness import philox

_COPIES = {f"aten.{name}.default" for name in ("alias", "detach", "clone", "lift_fresh", "lift_fresh_copy")}
_VIEWS = {
    "aten.view.default",
    "aten._unsafe_view.default",
    "aten.reshape.default",
    "aten.squeeze.dims",
    "aten.squeeze.dim",
    "aten.squeeze.default",
    "aten.unsqueeze.default",
}
VIEW = "aten.view.default"
PERMUTE = "aten.permute.default"
EXPAND = "aten.expand.default"
FULL = "aten.full.default"
CAT = "aten.cat.default"
COPY = "aten.copy.default"
TO_COPY = "aten._to_copy.default"


def simplify(program: TensorProgram) -> TensorProgram:
    """Returns an equal program in the normal form."""
    return _Simplifier(program).run()


class _Simplifier:
    """Reads the nodes in order, and keeps the needed ones in normal form."""

    def __init__(self, program: TensorProgram) -> None:
        self._program = program
        self._values = dict(program.values)
        self._same: dict[str, str] = {}  # value -> its replacement
        self._kept: list[Node] = []
        self._known: dict[tuple[object, ...], tuple[str, ...]] = {}  # what a node computes -> its outputs
        self._producers: dict[str, Node] = {}

    def run(self) -> TensorProgram:
        for node in self._program.nodes:
            for part in self._as_broadcast(self._read_again(node)):
                self._take(_normal(part, self._values))
        return self._without_dead()

    def _take(self, node: Node) -> None:
        node = self._read_again(node)  # what it reads may have turned out to be something else
        if not self._is_same(node):
            for each in self._as_stack(self._in_one(node)):
                self._keep(each)

    def _as_broadcast(self, node: Node) -> list[Node]:
        """Replaces `copy(target, source)` by the source, in the shape and type of the target."""
        if node.op != COPY:
            return [node]
        target = self._values[node.outputs[0]]
        source = self._values[node.inputs[1]]
        if source.dtype == target.dtype:
            return [replace(node, op=EXPAND, arguments=(ValueRef(source.name), OutputShape()), keywords=())]
        cast = f"{target.name}.cast"
        self._values[cast] = replace(target, name=cast, shape=source.shape)
        keywords = (("dtype", Dtype(target.dtype)),)
        converted = replace(node, name=cast, op=TO_COPY, arguments=(ValueRef(source.name),), keywords=keywords, outputs=(cast,))
        return [converted, replace(node, op=EXPAND, arguments=(ValueRef(cast), OutputShape()), keywords=())]

    def _read_again(self, node: Node) -> Node:
        keywords = tuple((key, rename_values(value, self._same)) for key, value in node.keywords)
        return replace(node, arguments=tuple(rename_values(a, self._same) for a in node.arguments), keywords=keywords)

    def _is_same(self, node: Node) -> bool:
        """Notes that a node's output equals its input, if it does."""
        values = self._values
        if not node.inputs:
            return False
        source, target = values[node.inputs[0]], values[node.outputs[0] or node.inputs[0]]
        alike = source.shape == target.shape and source.dtype == target.dtype
        is_identity = node.op == PERMUTE and node.arguments[1] == tuple(range(len(source.shape)))
        is_identity |= node.op == CAT and len(node.inputs) == 1
        if alike and (node.op in _COPIES or node.op in (VIEW, EXPAND, TO_COPY) or is_identity):
            self._same[node.outputs[0]] = source.name
            return True
        return False

    def _in_one(self, node: Node) -> Node:
        """Joins a view with the view before it, and a permutation with the one before."""
        before = self._producers.get(node.inputs[0]) if node.inputs else None
        if before is None or before.op != node.op or node.op not in (VIEW, PERMUTE):
            return node
        if node.op == VIEW:
            return replace(node, arguments=(before.arguments[0], OutputShape()))
        inner, outer = before.arguments[1], node.arguments[1]
        assert isinstance(inner, tuple)
        assert isinstance(outer, tuple)
        order = tuple(inner[dim] for dim in outer if isinstance(dim, int))
        return replace(node, arguments=(before.arguments[0], order))

    def _as_stack(self, node: Node) -> list[Node]:
        """Makes tensors that are joined along a dimension, which is then split in as many, be joined along a new one.

        Otherwise the outermost axis of the joined dimension would be their number, and no rule could split what is inside.
        """
        cat = self._producers.get(node.inputs[0]) if node.op == VIEW else None
        if cat is None or cat.op != CAT:
            return [node]
        dim = next((a for a in cat.arguments[1:] if isinstance(a, int)), 0)
        shapes = {self._values[name].shape for name in cat.inputs}
        shape = next(iter(shapes))
        dim %= len(shape)
        if len(shapes) > 1 or self._values[node.outputs[0]].shape != (*shape[:dim], len(cat.inputs), *shape[dim:]):
            return [node]
        rows = [f"{node.outputs[0]}.row{index}" for index in range(len(cat.inputs))]
        views: list[Node] = []
        for name, row in zip(cat.inputs, rows, strict=True):
            self._values[row] = replace(
                self._values[name], name=row, shape=(*shape[:dim], 1, *shape[dim:]), kind=ValueKind.ACTIVATION
            )
            views.append(replace(node, name=row, arguments=(ValueRef(name), OutputShape()), outputs=(row,)))
        joined = replace(
            cat, name=node.name, arguments=(tuple(ValueRef(row) for row in rows), dim), outputs=node.outputs, phase=node.phase
        )
        return [*(self._in_one(view) for view in views), joined]

    def _keep(self, node: Node) -> None:
        if self._is_same(node):
            return
        shapes = tuple(self._values[o].shape if o else () for o in node.outputs)
        text = (node.op, node.arguments, node.keywords, shapes, tuple(bool(o) for o in node.outputs))
        if _is_plain(text) and (known := self._known.get(text)):
            self._same.update({mine: other for mine, other in zip(node.outputs, known, strict=True) if mine})
            return
        self._known[text] = node.outputs
        self._kept.append(node)
        self._producers.update({output: node for output in node.outputs if output})

    def _without_dead(self) -> TensorProgram:
        program = self._program

        def now(name: str) -> str:
            return self._same.get(name, name)

        gradients = {parameter: now(value) for parameter, value in program.gradients.items()}
        updates = {target: now(value) for target, value in program.updates.items()}
        outputs = tuple(map(now, program.outputs))
        needed = {now(program.loss), *outputs, *gradients.values(), *updates.values()} - {""}
        nodes: list[Node] = []
        for node in reversed(self._kept):
            if needed.isdisjoint(node.outputs):
                continue
            nodes.append(replace(node, outputs=tuple(output if output in needed else "" for output in node.outputs)))
            needed.update(node.inputs)
        computed = {output for node in nodes for output in node.outputs if output}
        values = {
            name: value
            for name, value in self._values.items()
            if name in computed or (value.kind is not ValueKind.ACTIVATION and (name != philox.STEP or name in updates))
        }
        return replace(
            program,
            values=values,
            nodes=tuple(nodes[::-1]),
            loss=now(program.loss),
            outputs=outputs,
            gradients=gradients,
            updates=updates,
        )


def _is_plain(argument: tuple[object, ...]) -> bool:
    """Whether it can be looked up: NaN equals nothing, not even itself, and 1 equals True."""
    return "nan" not in repr(argument)


def _normal(node: Node, values: Mapping[str, Value]) -> Node:
    match node.op:
        case op if op in _VIEWS:
            return replace(node, op=VIEW, arguments=(node.arguments[0], OutputShape()))
        case "aten.expand.default":
            return replace(node, arguments=(node.arguments[0], OutputShape()), keywords=())
        case "aten.full.default":
            return _full(node, node.arguments[1], values)
        case "aten.full_like.default":
            return _full(node, node.arguments[1], values)
        case "aten.scalar_tensor.default":
            return _full(node, node.arguments[0], values)
        case philox.UNIFORM:  # of the whole; a plan's ranks draw pieces
            step, draw, shape, _, _, dtype = node.arguments
            return replace(node, arguments=(step, draw, shape, OutputStart(), OutputShape(), dtype))
        case "aten.permute.default":
            order = node.arguments[1]
            assert isinstance(order, tuple)
            return replace(node, arguments=(node.arguments[0], tuple(d % len(order) for d in order if isinstance(d, int))))
        case op if op.startswith("aten.upsample_") and "_backward" in op:  # two shapes of the whole: the second is the result's
            return replace(node, arguments=(*node.arguments[:2], OutputShape(), *node.arguments[3:]))
        case "aten.cat.default":
            return _without_nothing(node, values)
        case _:
            return node


def _without_nothing(node: Node, values: Mapping[str, Value]) -> Node:
    """Leaves out what adds no element: torch lets a tensor of shape [0] be joined with any others, as caches begin with one."""
    parts, *rest = node.arguments
    assert isinstance(parts, tuple)
    kept = tuple(part for part in parts if not (isinstance(part, ValueRef) and values[part.name].shape == (0,)))
    is_same_type = any(isinstance(part, ValueRef) and values[part.name].dtype == values[node.outputs[0]].dtype for part in kept)
    return replace(node, arguments=(kept, *rest)) if is_same_type else node


def _full(node: Node, value: Argument, values: Mapping[str, Value]) -> Node:
    if inputs_of((value,), ()):
        return node
    dtype = Dtype(values[node.outputs[0]].dtype)
    return replace(node, op=FULL, arguments=(OutputShape(), value), keywords=(("dtype", dtype),))
