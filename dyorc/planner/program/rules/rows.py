"""Operations along dimensions that stay whole."""

from collections.abc import Mapping

from dyorc.planner.program.rules import elementwise
from dyorc.planner.program.rules.rule import BoundNode, Maker, Rule, names, without
from dyorc.planner.program.rules.sums import left_of


def _reduction(node: BoundNode) -> Rule:
    """A reduction that is no sum: what it reduces stays whole."""
    if node.name in ("max", "min") and node.has("other"):
        return elementwise.pointwise(node)
    letters, left = left_of(node)
    kept = tuple(letter if letter in left else None for letter in letters)
    return node.rule({"self": kept}, *(left for _ in node.outputs))


def _row(node: BoundNode) -> Rule:
    """Something along one dimension; each output has as many dimensions as the input."""
    letters = without(names(len(node.shape("self"))), node.integer("dim"))
    return node.rule({"self": letters}, *(letters for _ in node.outputs))


def _layer_norm(node: BoundNode) -> Rule:
    num_inner = len(node.integers("normalized_shape"))
    letters = names(len(node.shape("input")) - num_inner) + (None,) * num_inner
    return node.rule({"input": letters}, letters, letters, letters)


RULES: Mapping[str, Maker] = {
    **dict.fromkeys(("amax", "amin", "any", "all", "argmax", "argmin", "prod", "max", "min", "logsumexp"), _reduction),
    **dict.fromkeys(("_softmax", "_log_softmax", "sort", "topk", "cumprod", "cummax", "cummin", "logcumsumexp"), _row),
    "native_layer_norm": _layer_norm,
}
