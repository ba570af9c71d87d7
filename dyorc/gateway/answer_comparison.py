"""Whether two versions of a model gave the same answer to one request."""

import contextlib
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
_MAX_SHOWN = 60
"""Characters of a value."""


def difference_of_parts(
    specs: Sequence[TensorSpec], answer: Sequence[Sequence[Array]], other: Sequence[Sequence[Array]], config: ShadowConfig
) -> str:
    """Returns where two answers in parts differ, as `difference_of` does for each; an answer that does not stream is one part."""
    for at, (expected, part) in enumerate(zip(answer, other, strict=False)):
        if text := difference_of(specs, expected, part, config):
            return f"part {at}: {text}" if len(answer) > 1 else text
    return "" if len(answer) == len(other) else f"it has {len(other)} parts, expected {len(answer)}"


def difference_of(
    specs: Sequence[TensorSpec],
    answer: Sequence[Array],
    other: Sequence[Array],
    config: ShadowConfig,
    *,
    shows_values: bool = False,
) -> str:
    """Returns where two answers differ; empty if they are the same.

    Integers, texts, booleans and bytes are the same if they are equal, floats within the tolerances. In structured values, this
    holds for each of their parts; an integer is no float there.

    Args:
        specs: The outputs of the model.
        answer: The outputs of the default version.
        other: Those of the other version, in the same order.
        shows_values: Whether it says both values, shortened: who deploys a version may not see what clients get.
    """
    for spec, expected, array in zip(specs, answer, other, strict=True):
        if text := _difference(spec, expected, array, config, shows_values):
            return f"output {spec.name!r} {text}"
    return ""


def _difference(spec: TensorSpec, expected: Array, array: Array, config: ShadowConfig, shows_values: bool) -> str:
    if (expected.dtype, expected.shape) != (array.dtype, array.shape):
        return f"is {dtype_of(array)} {list(array.shape)}, expected {dtype_of(expected)} {list(expected.shape)}"
    if isinstance(spec, ValueSpec) and spec.kind is ContentKind.JSON:
        return _difference_of_json(expected.item(), array.item(), config, shows_values)
    if expected.dtype.kind == "f" or expected.dtype == ml_dtypes.bfloat16:
        text, at = _difference_of_floats(expected.astype(np.float64), array.astype(np.float64), config)
    elif same_array(expected, array):
        return ""
    else:
        pairs = zip(expected.reshape(-1).tolist(), array.reshape(-1).tolist(), strict=True)
        places = [place for place, (a, b) in enumerate(pairs) if a != b]
        text, at = f"differs in {len(places)} of {expected.size} elements", (*places, 0)[0]
    if not (text and shows_values):
        return text
    was, now = (_shown(each.item(at)) for each in (expected, array))
    return f"{text}: it was {was}, it is {now}" if expected.size == 1 else f"{text}; the first was {was}, it is {now}"


def _difference_of_floats(expected: Array, array: Array, config: ShadowConfig) -> tuple[str, int]:
    """Returns the difference, and the place of the first element that differs."""
    with np.errstate(all="ignore"):
        is_same = np.isclose(
            array, expected, rtol=config.relative_tolerance, atol=config.absolute_tolerance, equal_nan=True
        )  # fmt: skip
        if is_same.all():
            return "", 0
        distances = np.abs(array - expected)[~is_same]
    text = f"differs in {expected.size - np.count_nonzero(is_same)} of {expected.size} elements"
    if not np.isnan(distances).all():  # between NaN and a number there is none
        text += f", by up to {np.nanmax(distances):.3g}"
    return text, int(np.argmin(is_same))


def _difference_of_json(expected: bytes, data: bytes, config: ShadowConfig, shows_values: bool) -> str:
    try:
        unlike = _unlike_part(msgspec.json.decode(expected), msgspec.json.decode(data), config, "")
    except DECODE_ERRORS:
        unlike = None if expected == data else ("", expected, data)
    if unlike is None:
        return ""
    place, was, now = unlike
    text = f"differs at {place!r}" if place else "differs"
    return f"{text}: it was {_shown(was)}, it is {_shown(now)}" if shows_values else text


def _unlike_part(expected: Any, value: Any, config: ShadowConfig, place: str) -> tuple[str, Any, Any] | None:
    """Returns the path of the first part in which two values of JSON differ, and both parts; None if they are the same."""
    if isinstance(expected, dict) and isinstance(value, dict):
        keys: list[Any] = list(expected | value)
        parts = [(expected.get(key, _ABSENT), value.get(key, _ABSENT), f"{place}.{key}".lstrip(".")) for key in keys]
    elif isinstance(expected, list) and isinstance(value, list) and len(expected) == len(value):
        parts = [(*pair, f"{place}[{index}]") for index, pair in enumerate(zip(expected, value, strict=True))]
    else:
        return None if _is_same_leaf(expected, value, config) else (place, expected, value)
    for left, right, inner in parts:
        if (unlike := _unlike_part(left, right, config, inner)) is not None:
            return unlike
    return None


def _is_same_leaf(expected: Any, value: Any, config: ShadowConfig) -> bool:
    if type(expected) is not type(value):
        return False
    if isinstance(expected, float):
        return bool(np.isclose(value, expected, rtol=config.relative_tolerance, atol=config.absolute_tolerance))
    return bool(expected == value)


def _shown(value: Any) -> str:
    """Returns a value as a short text."""
    if value is _ABSENT:
        return "missing"
    if isinstance(value, bytes):
        with contextlib.suppress(UnicodeDecodeError):  # they are shown as bytes then
            value = value.decode()
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."
