"""Sums, and products of matrices."""

from collections.abc import Mapping

from dyorc.planner.program.rules.rule import BoundNode, Letters, Maker, Rule, names, without


def _mm(node: BoundNode) -> Rule:
    return node.rule({"self": ("m", "k"), "mat2": ("k", "n")}, ("m", "n"), linear=(("self",), ("mat2",)))


def _bmm(node: BoundNode) -> Rule:
    return node.rule({"self": ("b", "m", "k"), "mat2": ("b", "k", "n")}, ("b", "m", "n"), linear=(("self",), ("mat2",)))


def left_of(node: BoundNode) -> tuple[Letters, Letters]:
    """Returns the letters of what is reduced along `dim`, and those of the result; without `dim`, everything is reduced."""
    letters = names(len(node.shape("self")))
    gone = {dim % len(letters) for dim in node.integers("dim") if letters} or set(range(len(letters)))
    keeps = bool(node.named.get("keepdim"))
    return letters, tuple(None if dim in gone else letter for dim, letter in enumerate(letters) if keeps or dim not in gone)


def _sum(node: BoundNode) -> Rule:
    letters, left = left_of(node)
    return node.rule({"self": letters}, left, linear=(("self",),))


def _cumsum(node: BoundNode) -> Rule:
    letters = without(names(len(node.shape("self"))), node.integer("dim"))
    return node.rule({"self": letters}, letters, linear=(("self",),))


RULES: Mapping[str, Maker] = {"mm": _mm, "bmm": _bmm, "sum": _sum, "cumsum": _cumsum}
