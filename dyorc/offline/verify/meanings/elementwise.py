"""Operations on each element by itself, and constants."""

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from dyorc.offline.program.graph import Dtype, OutputShape
from dyorc.offline.verify.meanings.call import Call, Meaning
from dyorc.offline.verify.numbers import Array, Numbers

_TRUTH_NAMES = "eq ne lt le gt ge isinf isnan isfinite signbit logical_and logical_or logical_xor logical_not"
_TRUTHS = frozenset(_TRUTH_NAMES.split())
_POINTWISE_NAMES = """
    abs acos acosh asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil clamp clamp_max clamp_min
    clamp_tensor cos cosh elu erf erfc erfinv exp exp2 expm1 floor floor_divide fmax fmin fmod gelu hardsigmoid hardswish
    hardtanh leaky_relu log log10 log1p log2 log_sigmoid_forward maximum minimum mish nan_to_num pow reciprocal relu relu6
    remainder round rsqrt sigmoid sign silu sin sinh softplus sqrt square tan tanh threshold trunc
"""
_POINTWISE = frozenset(_POINTWISE_NAMES.split()) | _TRUTHS
_FROM_GRADIENT_NAMES = """
    elu_backward gelu_backward hardtanh_backward leaky_relu_backward sigmoid_backward silu_backward tanh_backward
    threshold_backward softplus_backward hardswish_backward hardsigmoid_backward mish_backward
"""
_FROM_GRADIENT = frozenset(_FROM_GRADIENT_NAMES.split())
"""Linear in their first input, the output's gradient."""


def _pointwise(numbers: Numbers, call: Call) -> Array:
    arrays = call.arrays
    is_truth = call.op in _TRUTHS or (call.op.startswith("bitwise") and all(a.dtype == np.bool_ for a in arrays))
    return numbers.function(call.tag, arrays, is_truth=is_truth)


def _from_gradient(numbers: Numbers, call: Call) -> Array:
    gradient, *others = call.arrays
    return numbers.multiply(gradient, numbers.function(call.tag, others))


def negated(numbers: Numbers, array: Array) -> Array:
    """Returns the negative numbers."""
    return numbers.multiply(numbers.scalar(-1), array)


def _sum_of_two(numbers: Numbers, call: Call) -> Array:
    left, right = call.operand(0, numbers), call.operand(1, numbers)
    alpha = call.plain(2, "alpha", 1)
    if call.op == "rsub":
        left, right = right, left
    if alpha != 1:
        scale = numbers.scalar(cast(float, alpha))
        left, right = (numbers.multiply(scale, left), right) if call.op == "rsub" else (left, numbers.multiply(scale, right))
    return numbers.add(left, right if call.op == "add" else negated(numbers, right))


def _mul(numbers: Numbers, call: Call) -> Array:
    return numbers.multiply(call.operand(0, numbers), call.operand(1, numbers))


def _div(numbers: Numbers, call: Call) -> Array:
    if call.keywords.get("rounding_mode") is not None:
        return _pointwise(numbers, call)
    return numbers.multiply(call.operand(0, numbers), numbers.function("inverse", [call.operand(1, numbers)]))


def _neg(numbers: Numbers, call: Call) -> Array:
    return negated(numbers, call.array(0))


def _where(numbers: Numbers, call: Call) -> Array:
    return numbers.choose(call.array(0), call.operand(1, numbers), call.operand(2, numbers))


def _to_copy(numbers: Numbers, call: Call) -> Array:
    array, target = call.array(0), call.keywords.get("dtype")
    name = target.name if isinstance(target, Dtype) else "float"
    if name == "bool":
        return numbers.function("is not zero", [array], is_truth=True)
    if name.startswith(("float", "bfloat", "complex")) or array.dtype == np.bool_:
        return numbers.add(array, numbers.scalar(0))
    return numbers.function("whole part", [array])


def _addcmul(numbers: Numbers, call: Call) -> Array:
    base, left, right = (call.operand(index, numbers) for index in range(3))
    if call.op == "addcdiv":
        right = numbers.function("inverse", [right])
    scale = numbers.scalar(cast(float, call.plain(3, "value", 1)))
    return numbers.add(base, numbers.multiply(scale, numbers.multiply(left, right)))


def _lerp(numbers: Numbers, call: Call) -> Array:
    start, end, weight = (call.operand(index, numbers) for index in range(3))
    return numbers.add(start, numbers.multiply(weight, numbers.add(end, negated(numbers, start))))


def _copy(numbers: Numbers, call: Call) -> Array:
    return call.array(0)


def _full(numbers: Numbers, call: Call) -> Array:
    shape = call.plain(0)
    extents = call.shape if isinstance(shape, OutputShape) else tuple(call.integers(0))
    return np.broadcast_to(call.operand(1, numbers), extents)


def _arange(numbers: Numbers, call: Call) -> Array:
    numbered = [argument for argument in call.arguments if isinstance(argument, int | float)]
    start, stop, step = (0, numbered[0], 1) if len(numbered) == 1 else (*numbered, 1)[:3]
    del stop
    return _counted(numbers, [start + step * index for index in range(call.shape[0])])


def _counted(numbers: Numbers, elements: Sequence[float]) -> Array:
    return np.stack([numbers.scalar(element) for element in elements]) if elements else np.zeros((0,), dtype=np.int64)


def _random(numbers: Numbers, call: Call) -> Array:
    """A function of the step and of the position in the whole, another one for each draw."""
    step, start = call.array(0), call.integers(3)
    draw = (call.op, call.plain(1), call.plain(2), call.plain(5))
    positions = [
        np.expand_dims(_counted(numbers, range(begin, begin + extent)), [d for d in range(len(start)) if d != dim])
        for dim, (begin, extent) in enumerate(zip(start, call.shape, strict=True))
    ]
    return np.broadcast_to(numbers.function(draw, [step, *positions]), call.shape)


MEANINGS: Mapping[str, Meaning] = {
    **dict.fromkeys(_POINTWISE, _pointwise),
    **dict.fromkeys(_FROM_GRADIENT, _from_gradient),
    **dict.fromkeys(("add", "sub", "rsub"), _sum_of_two),
    "mul": _mul,
    "div": _div,
    "neg": _neg,
    "where": _where,
    "_to_copy": _to_copy,
    **dict.fromkeys(("addcmul", "addcdiv"), _addcmul),
    "lerp": _lerp,
    **dict.fromkeys(("clone", "alias", "detach"), _copy),
    "full": _full,
    "arange": _arange,
    "philox_uniform": _random,
}
