# pyright: reportPrivateUsage=false
"""Mistakes of the simplifier, made inside of it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from dyorc.planner.program import simplify
from dyorc.planner.program.graph import Node, OutputShape
from tests.operators import written
from tests.operators.gathering import gather


def _as_target(self: Any, node: Node) -> list[Node]:
    """Takes what overwrites a tensor for what was there."""
    if node.op != simplify.COPY:
        return [node]
    return [replace(node, op=simplify.EXPAND, arguments=(node.arguments[0], OutputShape()), keywords=())]


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
    "a copy is what it is copied into": (simplify._Simplifier, "_as_broadcast", _as_target),
    "a flipped tensor is a view": (simplify, "_VIEWS", simplify._VIEWS | {"aten.flip.default"}),
    "a rolled tensor is the tensor": (simplify, "_COPIES", simplify._COPIES | {"aten.roll.default"}),
    "permutations are joined backwards": (simplify._Simplifier, "_in_one", _joined_backwards),
    "a converted tensor is the tensor": (simplify._Simplifier, "_is_same", _of_values),
}
"""Mistakes of the simplifier: what they change, and what it becomes."""


def simplified_wrongly(name: str) -> list[str]:
    """Returns which functions' normal form no longer computes what torch does, after a mistake of the simplifier."""
    with patch.object(*SIMPLIFIER[name]):
        return gather(written.functions()).wrong
