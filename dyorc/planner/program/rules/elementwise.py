"""Operations on each element by itself, and constants."""

from collections.abc import Mapping, Sequence

from dyorc.planner.program.rules.rule import BoundNode, Maker, Rule, broadcast, names

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


def pointwise(node: BoundNode) -> Rule:
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


RULES: Mapping[str, Maker] = {
    **dict.fromkeys(_POINTWISE_NAMES.split(), pointwise),
    "full": _full,
    "philox_uniform": _random,
}
