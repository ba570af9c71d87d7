"""What each operation does with the dimensions of its tensors, in the manner of an einsum.

A rule gives each dimension of each input and output a letter. Dimensions with the same letter go together: split all of them
alike, and the operation on the pieces computes the pieces of its outputs. A letter that only inputs have is summed over: the
pieces' outputs are partial sums. A dimension without a letter must stay whole. From this follow all ways of splitting an
operation (strategies.py). An operation without a rule stays whole, which is never wrong.

Source: the rules restate what ATen documents of each operation; tests compare each with torch on random pieces.
"""

from collections.abc import Mapping

from dyorc.planner.program.graph import Node
from dyorc.planner.program.rules import arithmetic_rules, movement_rules
from dyorc.planner.program.rules.rule import BoundNode, Letters, Maker, Rule, Values

_RULES: Mapping[str, Maker] = {**arithmetic_rules.RULES, **movement_rules.RULES}

__all__ = ["Letters", "Rule", "Values", "operations_with_rules", "rule_of"]


def operations_with_rules() -> frozenset[str]:
    """Returns the names of all operations that have a rule, without namespace and overload."""
    return frozenset(_RULES)


def rule_of(node: Node, values: Values) -> Rule | None:
    """Returns the letters of a node, or None if its operation must stay whole."""
    make = _RULES.get(node.op.split(".")[1])
    return make(BoundNode(node, values)) if make else None
