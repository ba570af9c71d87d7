"""Operations on each element by itself, and constants."""

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from dyorc.planner.program.graph import Argument, Dtype, OutputShape
from dyorc.planner.verify.meanings.call import Meaning, OperationCall
from dyorc.planner.verify.numbers import Array, Numbers

_TRUTH_NAMES = "eq ne lt le gt ge isinf isnan isfinite signbit logical_and logical_or logical_xor logical_not"
_TRUTHS = frozenset(_TRUTH_NAMES.split())
_POINTWISE_NAMES = """
    abs acos acosh asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or bitwise_xor ceil clamp clamp_max clamp_min
    clamp_tensor cos cosh elu erf erfc erfinv exp exp2 expm1 floor floor_divide fmax fmin fmod gelu hardsigmoid hardswish
    hardtanh leaky_relu log log10 log1p log2 maximum minimum mish nan_to_num pow reciprocal relu relu6
    remainder round rsqrt sigmoid sign silu sin sinh softplus sqrt square tan tanh threshold trunc
"""
_POINTWISE = frozenset(_POINTWISE_NAMES.split()) | _TRUTHS
_FROM_GRADIENT_NAMES = """
    elu_backward gelu_backward hardtanh_backward leaky_relu_backward sigmoid_backward silu_backward tanh_backward
    threshold_backward softplus_backward hardswish_backward hardsigmoid_backward mish_backward
"""
_FROM_GRADIENT = frozenset(_FROM_GRADIENT_NAMES.split())
"""Linear in their first input, the output's gradient."""


def _pointwise(numbers: Numbers, call: OperationCall) -> Array:
    arrays = call.arrays
    is_truth = call.op in _TRUTHS or (call.op.startswith("bitwise") and all(a.dtype == np.bool_ for a in arrays))
    return numbers.function(call.tag, arrays, is_truth=is_truth)


def _from_gradient(numbers: Numbers, call: OperationCall) -> Array:
    gradient, *others = call.arrays
    return numbers.multiply(gradient, numbers.function(call.tag, others))


def negate(numbers: Numbers, array: Array) -> Array:
    """Returns the negative numbers."""
    return numbers.multiply(numbers.scalar(-1), array)


def _truth(numbers: Numbers, call: OperationCall) -> Array:
    return numbers.function(call.tag, call.arrays, is_truth=True)


def _sum_of_two(numbers: Numbers, call: OperationCall) -> Array:
    left, right = call.operand("self", numbers), call.operand("other", numbers)
    if left.dtype == right.dtype == np.bool_:  # torch takes the sum of truths for whether either is one
        return _truth(numbers, call)
    alpha = call.plain("alpha", 1)
    if call.op == "rsub":
        left, right = right, left
    if alpha != 1:
        scale = numbers.scalar(cast(float, alpha))
        right = numbers.multiply(scale, right)
    return numbers.add(left, right if call.op == "add" else negate(numbers, right))


def _mul(numbers: Numbers, call: OperationCall) -> Array:
    return numbers.multiply(call.operand("self", numbers), call.operand("other", numbers))


def _div(numbers: Numbers, call: OperationCall) -> Array:
    if call.plain("rounding_mode") is not None:
        return _pointwise(numbers, call)
    return numbers.multiply(call.operand("self", numbers), numbers.function("inverse", [call.operand("other", numbers)]))


def _neg(numbers: Numbers, call: OperationCall) -> Array:
    return negate(numbers, call.array("self"))


def _where(numbers: Numbers, call: OperationCall) -> Array:
    return numbers.choose(call.array("condition"), call.operand("self", numbers), call.operand("other", numbers))


def _to_copy(numbers: Numbers, call: OperationCall) -> Array:
    array, target = call.array("self"), call.plain("dtype")
    name = target.name if isinstance(target, Dtype) else "float"
    if name == "bool":
        return numbers.function("is not zero", [array], is_truth=True)
    if name.startswith(("float", "bfloat", "complex")) or array.dtype == np.bool_:
        return numbers.add(array, numbers.scalar(0))
    return numbers.function("whole part", [array])


def _addcmul(numbers: Numbers, call: OperationCall) -> Array:
    base, left, right = (call.operand(name, numbers) for name in ("self", "tensor1", "tensor2"))
    if call.op == "addcdiv":
        right = numbers.function("inverse", [right])
    scale = numbers.scalar(cast(float, call.plain("value", 1)))
    return numbers.add(base, numbers.multiply(scale, numbers.multiply(left, right)))


def _lerp(numbers: Numbers, call: OperationCall) -> Array:
    start, end, weight = (call.operand(name, numbers) for name in ("self", "end", "weight"))
    return numbers.add(start, numbers.multiply(weight, numbers.add(end, negate(numbers, start))))


def _overwritten(numbers: Numbers, call: OperationCall) -> Array:
    source = call.operand("src" if call.op == "copy" else "value", numbers)
    return np.broadcast_to(source, call.array("self").shape)


def _masked_fill(numbers: Numbers, call: OperationCall) -> Array:
    array, value = call.array("self"), call.operand("value", numbers)
    if array.dtype == np.bool_ and value.dtype != np.bool_:
        value = numbers.function("is not zero", [value], is_truth=True)
    return numbers.choose(call.array("mask"), value, array)


def _copy(numbers: Numbers, call: OperationCall) -> Array:
    return call.array("self")


def _full(numbers: Numbers, call: OperationCall) -> Array:
    shape = call.plain("size")
    extents = call.shape if isinstance(shape, OutputShape) else tuple(call.integers("size"))
    is_tensor = call.has("fill_value")
    constant = call.array("fill_value") if is_tensor else numbers.scalar(_as_type(call.plain("fill_value"), call))
    return np.broadcast_to(constant, extents)


def _as_type(argument: Argument, call: OperationCall) -> float:
    """A number as the type that the operation makes holds it."""
    dtype, value = call.plain("dtype"), cast(float, argument)
    name = dtype.name if isinstance(dtype, Dtype) else ""
    return bool(value) if name == "bool" else int(value) if name.startswith(("int", "uint")) else value


def _arange(numbers: Numbers, call: OperationCall) -> Array:
    start, step = (_as_type(call.plain(name, default), call) for name, default in (("start", 0), ("step", 1)))
    return _counted(numbers, [start + step * index for index in range(call.shape[0])])


def _counted(numbers: Numbers, elements: Sequence[float]) -> Array:
    return np.stack([numbers.scalar(element) for element in elements]) if elements else np.zeros((0,), dtype=np.int64)


def _random(numbers: Numbers, call: OperationCall) -> Array:
    """A function of the step and of the position in the whole, another one for each draw."""
    step, start = call.array("step"), call.integers("start")
    draw = (call.op, *(call.plain(name) for name in ("draw", "shape", "dtype")))
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
    **dict.fromkeys(("copy", "fill"), _overwritten),
    "masked_fill": _masked_fill,
    "full": _full,
    "arange": _arange,
    "philox_uniform": _random,
}
