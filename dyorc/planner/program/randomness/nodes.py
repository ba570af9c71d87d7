"""Draws in programs: which node is which draw of the step."""

from dataclasses import replace

from dyorc.planner.program.graph import Node
from dyorc.planner.program.randomness.philox import UNIFORM

_DRAW = 1  # among the operator's arguments


def draw_of(node: Node) -> int | None:
    """Returns the number of the draw that a node is, or None if it draws nothing."""
    draw = node.arguments[_DRAW] if node.op == UNIFORM else None
    return draw if isinstance(draw, int) else None


def with_draw(node: Node, draw: int) -> Node:
    """Returns a node that draws as another draw of the step."""
    return replace(node, arguments=(*node.arguments[:_DRAW], draw, *node.arguments[_DRAW + 1 :]))
