"""What each operation does with the dimensions of its tensors, in the manner of an einsum.

A rule gives each dimension of each input and output a letter. Dimensions with the same letter go together: split all of them
alike, and the operation on the pieces computes the pieces of its outputs. A letter that only inputs have is summed over: the
pieces' outputs are partial sums. A dimension without a letter must stay whole. From this follow all ways of splitting an
operation (strategies.py). An operation without a rule stays whole, which is never wrong.

Source: the rules restate what ATen documents of each operation; tests compare each with torch on random pieces.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from dyorc.offline.program.graph import Argument, Node, Value

Letters: TypeAlias = tuple[str | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The letters of one node.

    Attributes:
        inputs: For each input, in the order of `Node.inputs`, a letter or None for each dimension.
        outputs: The same for each output.
        linear: Sets of inputs, by index: the outputs are linear in the inputs of a set taken together, so that partial sums of
            exactly these become partial sums of the outputs.
        untouched: Pairs of a letter and an output, by index, that has not the letter and does not depend on what has it.
    """

    inputs: tuple[Letters, ...]
    outputs: tuple[Letters, ...]
    linear: tuple[tuple[int, ...], ...] = ()
    untouched: tuple[tuple[str, int], ...] = ()


Values: TypeAlias = Mapping[str, Value]


def rule_of(node: Node, values: Values) -> Rule | None:
    """Returns the letters of a node, or None if its operation must stay whole."""
    name = node.op.split(".")[1]
    if name in _POINTWISE:
        return _pointwise(node, values)
    make = _RULES.get(name)
    return make(node, values) if make else None


def _shapes(node: Node, values: Values) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    inputs = [values[name].shape for name in node.inputs]
    return inputs, [values[name].shape if name else () for name in node.outputs]


def _names(num_dims: int, prefix: str = "d") -> Letters:
    return tuple(f"{prefix}{dim}" for dim in range(num_dims))


def _without(letters: Letters, *dims: int) -> Letters:
    gone = {dim % len(letters) for dim in dims}
    return tuple(None if dim in gone else letter for dim, letter in enumerate(letters))


def _integer(argument: Argument) -> int:
    assert isinstance(argument, int)
    return argument


def _integers(argument: Argument) -> list[int]:
    return [_integer(part) for part in argument] if isinstance(argument, tuple) else [_integer(argument)]


# -- element by element --------------------------------------------------------------------------------------------------------


_POINTWISE_NAMES = """
    abs add addcdiv addcmul atan2 bitwise_and bitwise_not bitwise_or bitwise_xor ceil clamp clamp_max clamp_min cos div elu
    elu_backward eq erf exp expm1 fill floor fmod ge gelu gelu_backward gt hardtanh hardtanh_backward isinf isnan le leaky_relu
    leaky_relu_backward log log1p logical_and logical_not logical_or logical_xor lt maximum minimum mul ne neg pow reciprocal
    relu remainder round rsqrt rsub sigmoid sigmoid_backward sign silu silu_backward sin sqrt square sub tan tanh tanh_backward
    threshold_backward trunc where _to_copy
"""
_GRADIENT_FIRST_NAMES = """
    elu_backward gelu_backward hardtanh_backward leaky_relu_backward sigmoid_backward silu_backward tanh_backward
    threshold_backward
"""
_POINTWISE = frozenset(_POINTWISE_NAMES.split())
_GRADIENT_FIRST = frozenset(_GRADIENT_FIRST_NAMES.split())
"""The gradients that are linear in their first input, the output's gradient."""


def _pointwise(node: Node, values: Values) -> Rule:
    inputs, outputs = _shapes(node, values)
    out = _names(len(outputs[0]))
    letters = tuple(_broadcast(shape, outputs[0], out) for shape in inputs)
    return Rule(inputs=letters, outputs=(out,), linear=_pointwise_linear(node, values))


def _broadcast(shape: tuple[int, ...], wide: tuple[int, ...], letters: Letters) -> Letters:
    """Letters of an input that is broadcast to a wider shape: what is repeated has none."""
    skipped = len(wide) - len(shape)
    return tuple(
        letter if extent == whole else None
        for extent, whole, letter in zip(shape, wide[skipped:], letters[skipped:], strict=True)
    )


def _pointwise_linear(node: Node, values: Values) -> tuple[tuple[int, ...], ...]:
    name, inputs = node.op.split(".")[1], node.inputs
    if len(set(inputs)) != len(inputs):
        return ()
    match name:
        case "add" | "sub" if len(inputs) == 2:
            return ((0, 1),)
        case "mul":
            return tuple((index,) for index in range(len(inputs)))
        case "div" if not any(key == "rounding_mode" for key, _ in node.keywords):
            return ((0,),)
        case "neg":
            return ((0,),)
        case "where" if len(inputs) == 3:
            return ((1, 2),)
        case "_to_copy" if values[inputs[0]].dtype != "bool" and values[node.outputs[0]].dtype.startswith("float"):
            return ((0,),)
        case _ if name in _GRADIENT_FIRST:
            return ((0,),)
        case _:
            return ()


# -- products ------------------------------------------------------------------------------------------------------------------


def _mm(node: Node, values: Values) -> Rule:
    return Rule(inputs=(("m", "k"), ("k", "n")), outputs=(("m", "n"),), linear=_each_of_two(node))


def _bmm(node: Node, values: Values) -> Rule:
    return Rule(inputs=(("b", "m", "k"), ("b", "k", "n")), outputs=(("b", "m", "n"),), linear=_each_of_two(node))


def _each_of_two(node: Node) -> tuple[tuple[int, ...], ...]:
    return ((0,), (1,)) if node.inputs[0] != node.inputs[1] else ()


def _is_plain_convolution(node: Node, transposed: int, groups: int) -> bool:
    return node.arguments[transposed] is False and node.arguments[groups] == 1


def _convolution(node: Node, values: Values) -> Rule:
    space = (None,) * (len(values[node.outputs[0]].shape) - 2)
    bias = (("o",),) if len(node.inputs) == 3 else ()
    if not _is_plain_convolution(node, 6, 8):
        whole = tuple((None,) * len(values[name].shape) for name in node.inputs[1:])
        return Rule(inputs=(("n", None, *space), *whole), outputs=(("n", None, *space),))
    inner = None if bias else "i"  # with a bias, each partial sum would add it
    return Rule(
        inputs=(("n", inner, *space), ("o", inner, *space), *bias),
        outputs=(("n", "o", *space),),
        linear=() if bias else ((0,), (1,)),
    )


def _convolution_backward(node: Node, values: Values) -> Rule:
    space = (None,) * (len(values[node.inputs[0]].shape) - 2)
    o, i = ("o", "i") if _is_plain_convolution(node, 7, 9) else (None, None)
    return Rule(
        inputs=(("n", o, *space), ("n", i, *space), (o, i, *space)),
        outputs=(("n", i, *space), (o, i, *space), (o,)),
        linear=((0,),),
        untouched=(("i", 2),),  # the bias's gradient is a sum of the output's
    )


# -- sums and rows -------------------------------------------------------------------------------------------------------------


def _sum(node: Node, values: Values) -> Rule:
    inputs, outputs = _shapes(node, values)
    letters = _names(len(inputs[0]))
    dims = _integers(node.arguments[1]) if len(node.arguments) > 1 and node.arguments[1] is not None else []
    gone = {dim % len(letters) for dim in dims} or set(range(len(letters)))
    keeps = len(outputs[0]) == len(letters)
    left = tuple(None if dim in gone else letter for dim, letter in enumerate(letters) if keeps or dim not in gone)
    return Rule(inputs=(letters,), outputs=(left,), linear=((0,),))


def _reduction(node: Node, values: Values) -> Rule:
    """A reduction that is no sum: what it reduces stays whole."""
    whole = _sum(node, values)
    left = {letter for letter in whole.outputs[0] if letter}
    letters = tuple(letter if letter in left else None for letter in whole.inputs[0])
    return Rule(inputs=(letters,), outputs=tuple(whole.outputs[0] for _ in node.outputs))


def _row(node: Node, values: Values) -> Rule:
    """Something along one dimension, which stays whole; each output has as many dimensions as the input."""
    inputs, outputs = _shapes(node, values)
    dim = next((a for a in node.arguments[1:] if isinstance(a, int) and not isinstance(a, bool)), -1)
    letters = _without(_names(len(inputs[0])), dim)
    return Rule(inputs=(letters,), outputs=tuple(letters if shape else () for shape in outputs))


def _topk(node: Node, values: Values) -> Rule:
    inputs, _ = _shapes(node, values)
    dim = _integer(node.arguments[2]) if len(node.arguments) > 2 else -1
    letters = _without(_names(len(inputs[0])), dim)
    return Rule(inputs=(letters,), outputs=tuple(letters for _ in node.outputs))


def _layer_norm(node: Node, values: Values) -> Rule:
    inputs, _ = _shapes(node, values)
    num_inner = len(_integers(node.arguments[1]))
    num_outer = len(inputs[0]) - num_inner
    letters = _names(num_outer) + (None,) * num_inner
    others = tuple((None,) * len(shape) for shape in inputs[1:])
    return Rule(inputs=(letters, *others), outputs=(letters, letters, letters))


# -- indices -------------------------------------------------------------------------------------------------------------------


def _embedding(node: Node, values: Values) -> Rule:
    indices = _names(len(values[node.inputs[1]].shape), "i")
    return Rule(inputs=((None, "e"), indices), outputs=((*indices, "e"),), linear=((0,),))


def _embedding_backward(node: Node, values: Values) -> Rule:
    indices = _names(len(values[node.inputs[1]].shape), "i")
    return Rule(inputs=((*indices, "e"), indices), outputs=((None, "e"),), linear=((0,),))


def _gather(node: Node, values: Values) -> Rule:
    inputs, _ = _shapes(node, values)
    letters = _without(_names(len(inputs[0])), _integer(node.arguments[1]))
    letters = tuple(x if a == b else None for x, a, b in zip(letters, inputs[0], inputs[1], strict=True))
    return Rule(inputs=(letters, letters), outputs=(letters,), linear=((0,),))


def _scatter(node: Node, values: Values) -> Rule:
    inputs, _ = _shapes(node, values)
    letters = _without(_names(len(inputs[0])), _integer(node.arguments[1]))
    for shape in inputs[1:]:
        letters = tuple(x if a == b else None for x, a, b in zip(letters, inputs[0], shape, strict=True))
    return Rule(inputs=tuple(letters for _ in inputs), outputs=(letters,))


def _index_select(node: Node, values: Values) -> Rule:
    inputs, _ = _shapes(node, values)
    letters = _without(_names(len(inputs[0])), _integer(node.arguments[1]))
    return Rule(inputs=(letters, (None,)), outputs=(letters,), linear=((0,),))


# -- shapes --------------------------------------------------------------------------------------------------------------------


def _permute(node: Node, values: Values) -> Rule:
    letters = _names(len(values[node.inputs[0]].shape))
    return Rule(inputs=(letters,), outputs=(tuple(letters[dim] for dim in _integers(node.arguments[1])),), linear=((0,),))


def _expand(node: Node, values: Values) -> Rule:
    inputs, outputs = _shapes(node, values)
    out = _names(len(outputs[0]))
    return Rule(inputs=(_broadcast(inputs[0], outputs[0], out),), outputs=(out,), linear=((0,),))


def _part(node: Node, values: Values) -> Rule:
    """A slice along one dimension, which stays whole."""
    letters = _names(len(values[node.inputs[0]].shape))
    dim = _integer(node.arguments[1]) if len(node.arguments) > 1 else 0
    kept = _without(letters, dim)
    return Rule(inputs=(kept,), outputs=(kept,), linear=((0,),))


def _select(node: Node, values: Values) -> Rule:
    letters = _names(len(values[node.inputs[0]].shape))
    dim = _integer(node.arguments[1]) % len(letters)
    return Rule(inputs=(_without(letters, dim),), outputs=(letters[:dim] + letters[dim + 1 :],), linear=((0,),))


def _split(node: Node, values: Values) -> Rule:
    letters = _names(len(values[node.inputs[0]].shape))
    dim = _integer(node.arguments[2]) if len(node.arguments) > 2 else 0
    kept = _without(letters, dim)
    return Rule(inputs=(kept,), outputs=tuple(kept for _ in node.outputs), linear=((0,),))


def _cat(node: Node, values: Values) -> Rule:
    inputs, outputs = _shapes(node, values)
    dim = _integer(node.arguments[1]) if len(node.arguments) > 1 else 0
    letters = _without(_names(len(outputs[0])), dim)
    linear = (tuple(range(len(inputs))),) if len(set(node.inputs)) == len(inputs) else ()
    return Rule(inputs=tuple(letters for _ in inputs), outputs=(letters,), linear=linear)


def _pad(node: Node, values: Values) -> Rule:
    letters = list(_names(len(values[node.inputs[0]].shape)))
    padding = _integers(node.arguments[1])
    for pair in range(len(padding) // 2):
        if padding[2 * pair] or padding[2 * pair + 1]:
            letters[-1 - pair] = ""
    kept = tuple(letter or None for letter in letters)
    is_zero = len(node.arguments) < 3 or node.arguments[2] == 0
    return Rule(inputs=(kept,), outputs=(kept,), linear=((0,),) if is_zero else ())


def _along(node: Node, values: Values) -> Rule:
    """Moves elements along the dimensions that its last argument names: flip and roll."""
    letters = _names(len(values[node.inputs[0]].shape))
    is_flat = node.op == "aten.roll.default" and len(node.arguments) < 3  # without dimensions, it rolls all elements as one row
    letters = _without(letters, *(range(len(letters)) if is_flat else _integers(node.arguments[len(node.arguments) - 1])))
    return Rule(inputs=(letters,), outputs=(letters,), linear=((0,),))


def _matrices(node: Node, values: Values) -> Rule:
    """Keeps a triangle of each matrix."""
    letters = _without(_names(len(values[node.inputs[0]].shape)), -1, -2)
    return Rule(inputs=(letters,), outputs=(letters,), linear=((0,),))


def _full(node: Node, values: Values) -> Rule:
    return Rule(inputs=(), outputs=(_names(len(values[node.outputs[0]].shape)),))


def _random(node: Node, values: Values) -> Rule:
    """A function of the step and of the position in the whole, which whoever makes a piece knows."""
    return Rule(inputs=((),), outputs=(_names(len(values[node.outputs[0]].shape)),))


def _planes(node: Node, values: Values) -> Rule:
    """Works on each plane of each sample by itself: pooling, and its gradients."""

    def letters(shape: tuple[int, ...]) -> Letters:
        return ("n", "c", *(None,) * (len(shape) - 2)) if len(shape) > 2 else (None,) * len(shape)

    inputs, outputs = _shapes(node, values)
    return Rule(inputs=tuple(letters(shape) for shape in inputs), outputs=tuple(letters(shape) for shape in outputs))


_RULES: dict[str, Callable[[Node, Values], Rule]] = {
    "mm": _mm,
    "bmm": _bmm,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "sum": _sum,
    "amax": _reduction,
    "amin": _reduction,
    "any": _reduction,
    "all": _reduction,
    "argmax": _reduction,
    "prod": _reduction,
    "_softmax": _row,
    "_log_softmax": _row,
    "cumsum": _row,
    "sort": _row,
    "topk": _topk,
    "native_layer_norm": _layer_norm,
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    "gather": _gather,
    "scatter": _scatter,
    "scatter_add": _scatter,
    "index_select": _index_select,
    "permute": _permute,
    "expand": _expand,
    "slice": _part,
    "select": _select,
    "split_with_sizes": _split,
    "cat": _cat,
    "constant_pad_nd": _pad,
    "flip": _along,
    "roll": _along,
    "tril": _matrices,
    "triu": _matrices,
    "full": _full,
    "philox_uniform": _random,
    "max_pool2d_with_indices": _planes,
    "max_pool2d_with_indices_backward": _planes,
    "avg_pool2d": _planes,
    "avg_pool2d_backward": _planes,
    "_adaptive_avg_pool2d": _planes,
    "_adaptive_avg_pool2d_backward": _planes,
}
