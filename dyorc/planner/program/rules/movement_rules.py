"""Operations that only move elements, or look them up."""

from collections.abc import Mapping

import numpy as np

from dyorc.planner.program.rules.rule import BoundNode, Letters, Maker, Rule, Shape, along, broadcast, names, without

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
    return along(node, node.integer("dim"), linear=_LINEAR)


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
    return along(node, *padded, linear=_LINEAR if node.named["value"] in (0, None) else ())


def _shift(node: BoundNode) -> Rule:
    """Moves elements along dimensions: flip and roll, which without dimensions rolls all elements as one row."""
    dims = node.integers("dims")
    is_flat = node.name == "roll" and not dims
    return along(node, *(range(len(node.shape("self"))) if is_flat else dims), linear=_LINEAR)


def _matrices(node: BoundNode) -> Rule:
    """Keeps a triangle of each matrix."""
    return along(node, -1, -2, linear=_LINEAR)


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


def _embedding(node: BoundNode) -> Rule:
    indices = names(len(node.shape("indices")), "i")
    return node.rule({"weight": (None, "e"), "indices": indices}, (*indices, "e"), linear=(("weight",),))


def _embedding_backward(node: BoundNode) -> Rule:
    indices = names(len(node.shape("indices")), "i")
    if node.named["scale_grad_by_freq"]:
        indices = (None,) * len(indices)  # how often an index occurs is known of all of them
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


def _scattered(node: BoundNode) -> tuple[tuple[str, ...], ...]:
    is_sum = node.named.get("reduce") in (None, "add", "sum") and node.named.get("include_self") is not False
    return (("self", "src"),) if node.has("src") and is_sum else ()


def _scatter(node: BoundNode) -> Rule | None:
    table = node.shape("self")
    if any(len(shape) != len(table) for shape in node.inputs[1:]):
        return None
    letters = without(names(len(table)), node.integer("dim"))
    for shape in node.inputs[1:]:
        letters = _common(letters, table, shape)
    return node.rule({"self": letters, "index": letters, "src": letters}, letters, linear=_scattered(node))


class _Indexing:
    """What `x[i, :, j]` does with the dimensions of `x`: those of the indices stand in place of what they index."""

    def __init__(self, node: BoundNode) -> None:
        self.letters = names(len(node.shape("self")))
        listed = node.named["indices"]
        assert isinstance(listed, tuple)
        self.at = [dim for dim, index in enumerate(listed) if index is not None]
        owners = node.owners
        self.shapes = [shape for shape, owner in zip(node.inputs, owners, strict=True) if owner == "indices"]
        self.is_mask = any(
            node.values[name].dtype in ("bool", "uint8")
            for name, owner in zip(node.node.inputs, owners, strict=True)
            if owner == "indices"
        )
        self.wide = tuple(np.broadcast_shapes(*self.shapes))
        self.wide_letters = names(len(self.wide), "i")

    @property
    def kept(self) -> Letters:
        return without(self.letters, *self.at)

    @property
    def index_letters(self) -> list[Letters]:
        return [broadcast(shape, self.wide, self.wide_letters) for shape in self.shapes]

    @property
    def result(self) -> Letters:
        """The dimensions of the indices come first, unless the indexed ones lie side by side."""
        left = [letter for dim, letter in enumerate(self.letters) if dim not in self.at]
        is_one_block = self.at == list(range(self.at[0], self.at[0] + len(self.at)))
        start = self.at[0] if is_one_block else 0
        return (*left[:start], *self.wide_letters, *left[start:])


def _index(node: BoundNode) -> Rule | None:
    parts = _Indexing(node)
    if parts.is_mask:
        return None
    return node.rule({"self": parts.kept, "indices": parts.index_letters}, parts.result, linear=(("self",),))


def _index_put(node: BoundNode) -> Rule | None:
    parts = _Indexing(node)
    if parts.is_mask:
        return None
    extents = dict(zip(parts.letters, node.shape("self"), strict=True)) | dict(zip(parts.wide_letters, parts.wide, strict=True))
    values, wide = node.shape("values"), tuple(extents[letter] for letter in parts.result)
    skipped = max(len(values) - len(wide), 0)  # more dimensions of extent 1 than the result
    letters = (*(None,) * skipped, *broadcast(values[skipped:], wide, parts.result))
    letters = tuple(None if letter in parts.wide_letters else letter for letter in letters)
    return node.rule({"self": parts.kept, "values": letters}, parts.kept, linear=(("self", "values"),))


RULES: Mapping[str, Maker] = {
    "permute": _permute,
    "expand": _expand,
    **dict.fromkeys(("slice", "split_with_sizes", "index_select"), _part),
    "select": _select,
    "slice_scatter": _slice_scatter,
    "select_scatter": _select_scatter,
    "unfold": _unfold,
    "cat": _cat,
    "constant_pad_nd": _pad,
    **dict.fromkeys(("flip", "roll"), _shift),
    **dict.fromkeys(("tril", "triu"), _matrices),
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    "gather": _gather,
    "scatter": _scatter,
    "scatter_add": _scatter,
    "scatter_reduce": _scatter,
    **dict.fromkeys(("index", "_unsafe_index"), _index),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), _index_put),
}
