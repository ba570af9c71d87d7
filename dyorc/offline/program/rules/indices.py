"""Operations that look elements up."""

from collections.abc import Mapping

from dyorc.offline.program.rules.rule import BoundNode, Letters, Maker, Rule, Shape, names, without


def _embedding(node: BoundNode) -> Rule:
    indices = names(len(node.shape("indices")), "i")
    return node.rule({"weight": (None, "e"), "indices": indices}, (*indices, "e"), linear=(("weight",),))


def _embedding_backward(node: BoundNode) -> Rule:
    indices = names(len(node.shape("indices")), "i")
    if node.named["scale_grad_by_freq"]:  # divided by how often an index is there, among all of them
        indices = (None,) * len(indices)
    return node.rule({"grad_output": (*indices, "e"), "indices": indices}, (None, "e"), linear=(("grad_output",),))


def _common(letters: Letters, shape: Shape, other: Shape) -> Letters:
    """The letters of dimensions that have one extent in both shapes."""
    return tuple(letter if a == b else None for letter, a, b in zip(letters, shape, other, strict=True))


def _gather(node: BoundNode) -> Rule | None:
    table, index = node.shape("self"), node.shape("index")
    if len(table) != len(index):  # torch takes a scalar for a row of one element
        return None
    letters = _common(without(names(len(table)), node.integer("dim")), table, index)
    return node.rule({"self": letters, "index": letters}, letters, linear=(("self",),))


def _scatter(node: BoundNode) -> Rule | None:
    table = node.shape("self")
    if any(len(shape) != len(table) for shape in node.inputs[1:]):
        return None
    letters = without(names(len(table)), node.integer("dim"))
    for shape in node.inputs[1:]:
        letters = _common(letters, table, shape)
    return node.rule({"self": letters, "index": letters, "src": letters}, letters)


def _index_select(node: BoundNode) -> Rule:
    letters = without(names(len(node.shape("self"))), node.integer("dim"))
    return node.rule({"self": letters}, letters, linear=(("self",),))


RULES: Mapping[str, Maker] = {
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    "gather": _gather,
    "scatter": _scatter,
    "scatter_add": _scatter,
    "index_select": _index_select,
}
