"""Whether two versions of a model gave the same answer to one request."""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import msgspec
import numpy as np

from dyorc.authoring.spec import TensorSpec, ValueSpec
from dyorc.authoring.values import ContentKind
from dyorc.config import ShadowConfig
from dyorc.core.arrays import Array, dtype_of, same_array
from dyorc.core.decode_errors import DECODE_ERRORS

_ABSENT = object()


def difference_of_parts(
    specs: Sequence[TensorSpec], answer: Sequence[Sequence[Array]], other: Sequence[Sequence[Array]], config: ShadowConfig
) -> str:
    """Returns where two answers in parts differ, as `difference_of` does for each; an answer that does not stream is one part."""
    for at, (expected, part) in enumerate(zip(answer, other, strict=False)):
        if text := difference_of(specs, expected, part, config):
            return f"part {at}: {text}" if len(answer) > 1 else text
    return "" if len(answer) == len(other) else f"it has {len(other)} parts, expected {len(answer)}"


def difference_of(specs: Sequence[TensorSpec], answer: Sequence[Array], other: Sequence[Array], config: ShadowConfig) -> str:
    """Returns where two answers differ, without their values; empty if they are the same.

    Integers, texts, booleans and bytes are the same if they are equal, floats within the tolerances. In structured values, this
    holds for each of their parts.

    Args:
        specs: The outputs of the model.
        answer: The outputs of the default version.
        other: Those of the other version, in the same order.
    """
    for spec, expected, array in zip(specs, answer, other, strict=True):
        if text := _difference(spec, expected, array, config):
            return f"output {spec.name!r} {text}"
    return ""


def _difference(spec: TensorSpec, expected: Array, array: Array, config: ShadowConfig) -> str:
    if (expected.dtype, expected.shape) != (array.dtype, array.shape):
        return f"is {dtype_of(array)} {list(array.shape)}, expected {dtype_of(expected)} {list(expected.shape)}"
    if isinstance(spec, ValueSpec) and spec.kind is ContentKind.JSON:
        return _difference_of_json(expected.item(), array.item(), config)
    if expected.dtype.kind == "f" or expected.dtype == ml_dtypes.bfloat16:
        return _difference_of_floats(expected.astype(np.float64), array.astype(np.float64), config)
    if same_array(expected, array):
        return ""
    num_unlike = sum(a != b for a, b in zip(expected.reshape(-1).tolist(), array.reshape(-1).tolist(), strict=True))
    return f"differs in {num_unlike} of {expected.size} elements"


def _difference_of_floats(expected: Array, array: Array, config: ShadowConfig) -> str:
    with np.errstate(all="ignore"):
        is_same = np.isclose(
            array, expected, rtol=config.relative_tolerance, atol=config.absolute_tolerance, equal_nan=True
        )  # fmt: skip
        if is_same.all():
            return ""
        furthest = np.nanmax(np.where(is_same, 0.0, np.abs(array - expected)))
    return f"differs in {expected.size - np.count_nonzero(is_same)} of {expected.size} elements, by up to {furthest:.3g}"


def _difference_of_json(expected: bytes, data: bytes, config: ShadowConfig) -> str:
    try:
        place = _unlike_place(msgspec.json.decode(expected), msgspec.json.decode(data), config, "")
    except DECODE_ERRORS:
        place = None if expected == data else ""
    return "" if place is None else f"differs at {place!r}" if place else "differs"


def _unlike_place(expected: Any, value: Any, config: ShadowConfig, place: str) -> str | None:
    """Returns the path of the first part in which two values of JSON differ; None if they are the same."""
    if isinstance(expected, dict) and isinstance(value, dict):
        keys: list[Any] = list(expected | value)
        parts = [(expected.get(key, _ABSENT), value.get(key, _ABSENT), f"{place}.{key}".lstrip(".")) for key in keys]
    elif isinstance(expected, list) and isinstance(value, list) and len(expected) == len(value):
        parts = [(*pair, f"{place}[{index}]") for index, pair in enumerate(zip(expected, value, strict=True))]
    else:
        return None if _is_same_leaf(expected, value, config) else place
    for left, right, inner in parts:
        if (unlike := _unlike_place(left, right, config, inner)) is not None:
            return unlike
    return None


def _is_same_leaf(expected: Any, value: Any, config: ShadowConfig) -> bool:
    kinds = {type(expected), type(value)}
    if float in kinds and kinds <= {int, float}:
        return bool(np.isclose(value, expected, rtol=config.relative_tolerance, atol=config.absolute_tolerance))
    return type(expected) is type(value) and bool(expected == value)
