"""Operations on planes: pooling, and convolutions, whose geometry is unknown."""

from collections.abc import Hashable, Mapping, Sequence
from math import prod

import numpy as np

from dyorc.planner.program.torch_operations import PLANES, WITH_POSITIONS, num_space_of
from dyorc.planner.verify.meanings.call import Meaning, OperationCall, Result
from dyorc.planner.verify.numbers import Array, Numbers


def _planes_of(array: Array, num_space: int) -> Array:
    """Joins the dimensions of a plane, the last ones."""
    num_outer = array.ndim - num_space
    return array.reshape([*array.shape[:num_outer], prod(array.shape[num_outer:])])


def _plane(numbers: Numbers, call: OperationCall) -> Result:
    """Planes to a plane: pooling and its gradients."""
    num_space = num_space_of(call.op)
    arrays = [_planes_of(array, num_space) for array in call.arrays]
    num = 2 if call.op in WITH_POSITIONS else 1
    planes = prod(call.shape[-num_space:])
    results = tuple(numbers.rows((call.tag, which), arrays, planes).reshape(call.shape) for which in range(num))
    return results if num > 1 else results[0]


def _linear_plane(numbers: Numbers, call: OperationCall) -> Array:
    """A plane to a plane, linearly in the first: average pooling, and its gradient, which needs no more of the others."""
    num_space = num_space_of(call.op)
    sums = _weighed(numbers, _planes_of(call.arrays[0], num_space), (call.tag, "in"))
    weights = numbers.coefficients((call.tag, "out"), prod(call.shape[-num_space:]))
    return numbers.multiply(sums[..., None], weights).reshape(call.shape)


def _weighed(numbers: Numbers, array: Array, tag: Hashable) -> Array:
    """One unknown linear function of the last dimension."""
    scaled = numbers.multiply(array, numbers.coefficients(tag, array.shape[-1]))
    return numbers.total(scaled, [scaled.ndim - 1])[..., 0]


def _spread(numbers: Numbers, array: Array, tag: str, space: Sequence[int]) -> Array:
    """Unknown planes, scaled by the elements of a matrix."""
    planes = numbers.multiply(array[..., None], numbers.coefficients(tag, prod(space)))
    return planes.reshape([*array.shape, *space])


def transpose(array: Array) -> Array:
    """Returns matrices with rows and columns swapped."""
    return np.swapaxes(array, -1, -2)


def _is_plain(call: OperationCall) -> bool:
    return call.plain("transposed") is False and call.plain("groups") == 1


def _convolution(numbers: Numbers, call: OperationCall) -> Array:
    """Each plane [n, o] is the sum over i of a bilinear function of planes [n, i] and [o, i]."""
    image, weight = call.array("input"), call.array("weight")
    num_space = weight.ndim - 2
    left, right = (
        _weighed(numbers, _planes_of(image, num_space), "image"),
        _weighed(numbers, _planes_of(weight, num_space), "weight"),
    )
    if _is_plain(call):
        product = numbers.matmul(left, transpose(right))
    else:
        product = _grouped(numbers, call, left, right.reshape([-1]), call.shape[1])
    sums = _spread(numbers, product, "result", call.shape[2:])
    return numbers.add(sums, call.array("bias").reshape([-1, *(1,) * (sums.ndim - 2)])) if call.has("bias") else sums


def _grouped(numbers: Numbers, call: OperationCall, left: Array, right: Array, num: int) -> Array:
    """Channels that are mixed in an unknown way: each sample's are a bilinear function of that sample and all weights."""
    whole = numbers.multiply(_weighed(numbers, left, "channels"), _weighed(numbers, right, "weights"))
    return numbers.multiply(whole[..., None], numbers.coefficients(("mixed", call.op), num))


def _convolution_backward(numbers: Numbers, call: OperationCall) -> Result:
    gradient, image, weight = (call.array(name) for name in ("grad_output", "input", "weight"))
    bias = numbers.total(gradient, [dim for dim in range(gradient.ndim) if dim != 1]).reshape([-1])
    num_space = weight.ndim - 2
    parts = [
        _weighed(numbers, _planes_of(array, num_space), name) for array, name in ((gradient, "g"), (image, "i"), (weight, "w"))
    ]
    of_gradient, of_image, of_weight = parts
    if _is_plain(call):
        to_image, to_weight = numbers.matmul(of_gradient, of_weight), numbers.matmul(transpose(of_gradient), of_image)
    else:
        to_image = _grouped(numbers, call, of_gradient, of_weight.reshape([-1]), image.shape[1])
        terms = numbers.multiply(_weighed(numbers, of_gradient, "channels"), _weighed(numbers, of_image, "images"))
        mixed = numbers.coefficients("mixed weights", of_weight.size).reshape(of_weight.shape)
        to_weight = numbers.multiply(numbers.total(terms, [0]), mixed)
    return _spread(numbers, to_image, "di", image.shape[2:]), _spread(numbers, to_weight, "dw", weight.shape[2:]), bias


MEANINGS: Mapping[str, Meaning] = {
    **{name: _plane if "max_pool" in name else _linear_plane for name in PLANES},
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
}
