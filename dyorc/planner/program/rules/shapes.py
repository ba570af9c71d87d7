"""Operations that only move elements."""

from collections.abc import Mapping

from dyorc.planner.program.rules.rule import BoundNode, Letters, Maker, Rule, broadcast, names, without

_LINEAR = (("self",),)


def _letters(node: BoundNode) -> Letters:
    return names(len(node.shape("self")))


def _permute(node: BoundNode) -> Rule:
    letters = _letters(node)
    return node.rule({"self": letters}, tuple(letters[dim] for dim in node.integers("dims")), linear=_LINEAR)


def _expand(node: BoundNode) -> Rule:
    out = names(len(node.outputs[0]))
    return node.rule({"self": broadcast(node.shape("self"), node.outputs[0], out)}, out, linear=_LINEAR)


def _part(node: BoundNode) -> Rule:
    """Parts along one dimension, which stays whole."""
    kept = without(_letters(node), node.integer("dim"))
    return node.rule({"self": kept}, *(kept for _ in node.outputs), linear=_LINEAR)


def _select(node: BoundNode) -> Rule:
    letters = _letters(node)
    dim = node.integer("dim") % len(letters)
    return node.rule({"self": without(letters, dim)}, letters[:dim] + letters[dim + 1 :], linear=_LINEAR)


def _cat(node: BoundNode) -> Rule:
    letters = without(names(len(node.outputs[0])), node.integer("dim"))
    return node.rule({"tensors": [letters for _ in node.inputs]}, letters, linear=(("tensors",),))


def _pad(node: BoundNode) -> Rule:
    padding = node.integers("pad")
    padded = [-1 - index // 2 for index, amount in enumerate(padding) if amount]
    kept = without(_letters(node), *padded)
    return node.rule({"self": kept}, kept, linear=_LINEAR if node.named["value"] in (0, None) else ())


def _along(node: BoundNode) -> Rule:
    """Moves elements along dimensions: flip and roll, which without dimensions rolls all elements as one row."""
    letters, dims = _letters(node), node.integers("dims")
    is_flat = node.name == "roll" and not dims
    letters = without(letters, *(range(len(letters)) if is_flat else dims))
    return node.rule({"self": letters}, letters, linear=_LINEAR)


def _matrices(node: BoundNode) -> Rule:
    """Keeps a triangle of each matrix."""
    letters = without(_letters(node), -1, -2)
    return node.rule({"self": letters}, letters, linear=_LINEAR)


def _slice_scatter(node: BoundNode) -> Rule:
    """Writes a part along one dimension, which stays whole."""
    letters = without(_letters(node), node.integer("dim"))
    return node.rule({"self": letters, "src": letters}, letters, linear=(("self", "src"),))


def _select_scatter(node: BoundNode) -> Rule:
    letters = _letters(node)
    dim = node.integer("dim") % len(letters)
    kept = without(letters, dim)
    return node.rule({"self": kept, "src": letters[:dim] + letters[dim + 1 :]}, kept, linear=(("self", "src"),))


def _unfold(node: BoundNode) -> Rule:
    letters = _letters(node)
    if not letters:
        return node.rule({}, (None,), linear=_LINEAR)
    kept = without(letters, node.integer("dimension"))
    return node.rule({"self": kept}, (*kept, None), linear=_LINEAR)


RULES: Mapping[str, Maker] = {
    "permute": _permute,
    "expand": _expand,
    **dict.fromkeys(("slice", "split_with_sizes"), _part),
    "select": _select,
    "slice_scatter": _slice_scatter,
    "select_scatter": _select_scatter,
    "unfold": _unfold,
    "cat": _cat,
    "constant_pad_nd": _pad,
    **dict.fromkeys(("flip", "roll"), _along),
    **dict.fromkeys(("tril", "triu"), _matrices),
}
