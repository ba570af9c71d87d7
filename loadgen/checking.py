"""Checks whether an answer is the expected one."""

from typing import Any

import numpy as np

from loadgen.pool import Pool, Tensors
from loadgen.targets.base import RawAnswer, Target

_MAX_SHOWN = 200


class Checker:
    """Says in words what is wrong with answers.

    Args:
        pool: The requests with their expected answers.
        target: Decodes answers.
    """

    def __init__(self, pool: Pool, target: Target) -> None:
        self._pool = pool
        self._target = target

    def complaint(self, index: int, answer: RawAnswer) -> str:
        """Returns what is wrong with an answer to the pool's request `index`; empty if nothing is."""
        try:
            tensors = self._target.decode(answer)
        except Exception as error:  # the decoder may be a user's
            return f"request {index}: the answer is malformed: {error}"[: 2 * _MAX_SHOWN]
        text = difference(tensors, self._pool.answers[index], self._pool.tolerance)
        return f"request {index}: {text}" if text else ""


def difference(tensors: Tensors, expected: Tensors, tolerance: float) -> str:
    """Returns how tensors differ from the expected ones; empty if they do not. NaN equals NaN."""
    if tensors.keys() != expected.keys():
        return f"the answer has the outputs {sorted(tensors)}, expected {sorted(expected)}"
    for name, right in expected.items():
        array = np.asarray(tensors[name])
        if array.shape != right.shape:
            return f"output {name!r} has the shape {list(array.shape)}, expected {list(right.shape)}"
        if not _is_equal(array, right, tolerance):
            return f"output {name!r} is {_shown(array)}, expected {_shown(right)}"
    return ""


def _is_equal(array: np.ndarray[Any, Any], right: np.ndarray[Any, Any], tolerance: float) -> bool:
    if right.dtype.kind in "OSU" or array.dtype.kind in "OSU":
        return _texts(array) == _texts(right)
    # for NumPy, bfloat16 is of kind "V"
    is_exact = right.dtype.kind in "iub" and array.dtype.kind in "iub"
    if is_exact:
        return bool(np.array_equal(array, right))
    return bool(np.allclose(array.astype(np.float64), right.astype(np.float64), rtol=0, atol=tolerance, equal_nan=True))


def _texts(array: np.ndarray[Any, Any]) -> list[Any]:
    return [text.encode() if isinstance(text, str) else text for text in array.ravel().tolist()]


def _shown(array: np.ndarray[Any, Any]) -> str:
    text = np.array2string(array, threshold=8, precision=6, separator=",").replace("\n", "")
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "..."
