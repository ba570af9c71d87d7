"""Operations that compute: on single elements, on rows, sums and products, and on planes; and constants."""

from collections.abc import Mapping, Sequence

from dyorc.planner.program.rules.rule import BoundNode, Letters, Maker, Rule, Shape, along, broadcast, names
from dyorc.planner.program.torch_operations import PLANES, num_space_of

_POINTWISE_NAMES = """
    abs acos acosh add addcdiv addcmul asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil clamp
    clamp_max clamp_min copy cos cosh div elu elu_backward eq erf erfc erfinv exp exp2 expm1 fill floor floor_divide fmax fmin
    fmod ge gelu gelu_backward gt hardsigmoid hardsigmoid_backward hardswish hardswish_backward hardtanh hardtanh_backward
    isfinite isinf isnan le leaky_relu leaky_relu_backward lerp log log10 log1p log2 logical_and logical_not logical_or
    logical_xor lt masked_fill maximum minimum mish mish_backward mul nan_to_num ne neg pow reciprocal relu relu6 remainder round
    rsqrt rsub sigmoid sigmoid_backward sign signbit silu silu_backward sin sinh softplus softplus_backward sqrt square sub tan
    tanh tanh_backward threshold threshold_backward trunc where _to_copy
"""
_GRADIENT_FIRST_NAMES = """
    elu_backward gelu_backward hardsigmoid_backward hardswish_backward hardtanh_backward leaky_relu_backward mish_backward
    sigmoid_backward silu_backward softplus_backward tanh_backward threshold_backward
"""
_GRADIENT_FIRST = frozenset(_GRADIENT_FIRST_NAMES.split())
"""The gradients that are linear in their first input, the output's gradient."""


def _pointwise(node: BoundNode) -> Rule:
    """Each element of the output is made of one of each input, which is broadcast."""
    out = names(len(node.outputs[0]))
    letters = tuple(broadcast(shape, node.outputs[0], out) for shape in node.inputs)
    linear = tuple(tuple(index for index, owner in enumerate(node.owners) if owner in each) for each in _linear(node))
    return Rule(inputs=letters, outputs=(out,), linear=tuple(filter(None, linear)))


def _linear(node: BoundNode) -> Sequence[Sequence[str]]:
    """Arguments in which an operation is linear together."""
    if len(set(node.node.inputs)) != len(node.node.inputs):
        return ()
    match node.name:
        case "add" | "sub" | "rsub" if node.has("self") and node.has("other"):
            return (("self", "other"),)
        case "mul":
            return (("self",), ("other",))
        case "div" if node.named.get("rounding_mode") is None:
            return (("self",),)
        case "copy" if _keeps_sums(node):
            return (("src",),)
        case "neg":
            return (("self",),)
        case "where" if node.has("self") and node.has("other"):
            return (("self", "other"),)
        case "_to_copy" if _keeps_sums(node):
            return (("self",),)
        case name if name in _GRADIENT_FIRST:
            return (("grad_output",), ("grad",))
        case _:
            return ()


def _keeps_sums(node: BoundNode) -> bool:
    source, target = node.values[node.node.inputs[-1]], node.values[node.node.outputs[0]]
    return source.dtype != "bool" and target.dtype.startswith(("float", "bfloat"))


def _full(node: BoundNode) -> Rule:
    is_zero = node.named["fill_value"] == 0 and not isinstance(node.named["fill_value"], bool)
    return Rule(inputs=(), outputs=(names(len(node.outputs[0])),), linear=((),) if is_zero else ())  # zeros add up to zeros


def _random(node: BoundNode) -> Rule:
    """A function of the step and of the position in the whole; the maker of a piece knows that."""
    return Rule(inputs=((),), outputs=(names(len(node.outputs[0])),))


def _mm(node: BoundNode) -> Rule:
    return node.rule({"self": ("m", "k"), "mat2": ("k", "n")}, ("m", "n"), linear=(("self",), ("mat2",)))


def _bmm(node: BoundNode) -> Rule:
    return node.rule({"self": ("b", "m", "k"), "mat2": ("b", "k", "n")}, ("b", "m", "n"), linear=(("self",), ("mat2",)))


def _reduced(node: BoundNode) -> tuple[Letters, Letters]:
    """The letters of what is reduced along `dim`, and those of the result; without `dim`, everything is reduced."""
    letters = names(len(node.shape("self")))
    reduced = {dim % len(letters) for dim in node.integers("dim") if letters} or set(range(len(letters)))
    keeps = bool(node.named.get("keepdim"))
    return letters, tuple(None if dim in reduced else letter for dim, letter in enumerate(letters) if keeps or dim not in reduced)


def _sum(node: BoundNode) -> Rule:
    letters, left = _reduced(node)
    return node.rule({"self": letters}, left, linear=(("self",),))


def _cumsum(node: BoundNode) -> Rule:
    return along(node, node.integer("dim"), linear=(("self",),))


def _reduction(node: BoundNode) -> Rule:
    """A reduction that is no sum: what it reduces stays whole."""
    if node.name in ("max", "min") and node.has("other"):
        return _pointwise(node)
    letters, left = _reduced(node)
    kept = tuple(letter if letter in left else None for letter in letters)
    return node.rule({"self": kept}, *(left for _ in node.outputs))


def _row(node: BoundNode) -> Rule:
    """Something along one dimension; each output has as many dimensions as the input."""
    return along(node, node.integer("dim"))


def _layer_norm(node: BoundNode) -> Rule:
    num_inner = len(node.integers("normalized_shape"))
    letters = names(len(node.shape("input")) - num_inner) + (None,) * num_inner
    return node.rule({"input": letters}, letters, letters, letters)


def _is_plain(node: BoundNode) -> bool:
    return node.named["transposed"] is False and node.named["groups"] == 1


def _convolution(node: BoundNode) -> Rule | None:
    space = (None,) * (len(node.shape("weight")) - 2)
    if len(node.shape("input")) != len(node.shape("weight")):
        return None  # one sample, without a dimension for it
    if not _is_plain(node):
        return node.rule({"input": ("n", None, *space)}, ("n", None, *space))
    has_bias = node.has("bias")
    inner = None if has_bias else "i"  # with a bias, each partial sum would add it
    return node.rule(
        {"input": ("n", inner, *space), "weight": ("o", inner, *space), "bias": ("o",)},
        ("n", "o", *space),
        linear=() if has_bias else (("input",), ("weight",)),
    )


def _convolution_backward(node: BoundNode) -> Rule | None:
    space = (None,) * (len(node.shape("weight")) - 2)
    if len(node.shape("input")) != len(node.shape("weight")):
        return None
    o, i = ("o", "i") if _is_plain(node) else (None, None)
    return node.rule(
        {"grad_output": ("n", o, *space), "input": ("n", i, *space), "weight": (o, i, *space)},
        ("n", i, *space),
        (o, i, *space),
        (o,),
        linear=(("grad_output",),),
        untouched=(("i", 2),),  # the bias's gradient is a sum of the output's
    )


def _planes(node: BoundNode) -> Rule:
    """Works on each plane of each sample by itself: pooling, and its gradients; `[channels, ...]` is one sample."""
    num_space = num_space_of(node.name)

    def letters(shape: Shape) -> Letters:
        return (*("n", "c")[num_space + 2 - len(shape) :], *(None,) * num_space)

    return Rule(inputs=tuple(map(letters, node.inputs)), outputs=tuple(map(letters, node.outputs)))


RULES: Mapping[str, Maker] = {
    **dict.fromkeys(_POINTWISE_NAMES.split(), _pointwise),
    "full": _full,
    "philox_uniform": _random,
    "mm": _mm,
    "bmm": _bmm,
    "sum": _sum,
    "cumsum": _cumsum,
    **dict.fromkeys(("amax", "amin", "any", "all", "argmax", "argmin", "prod", "max", "min", "logsumexp"), _reduction),
    **dict.fromkeys(("_softmax", "_log_softmax", "sort", "topk", "cumprod", "cummax", "cummin", "logcumsumexp"), _row),
    "native_layer_norm": _layer_norm,
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    **dict.fromkeys(PLANES, _planes),
}
