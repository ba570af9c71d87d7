"""The classification extension: sends an output's highest values with their positions instead of the output itself.

Source: triton-inference-server/server, docs/protocol/extension_classification.md. Each class is a text ``<value>:<index>``. The
protocol's optional third part, a label, is left out: models here declare none.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dyorc.core.arrays import Array
from dyorc.core.tensor import DType
from dyorc.errors import InvalidInputError
from dyorc.protocol.parameter_names import CLASSIFICATION

_WITHOUT_ORDER = frozenset({DType.BOOL, DType.BYTES})


def num_classes_of(parameters: Mapping[str, Any], name: str, dtype: DType) -> int:
    """Returns how many classes of an output are asked for; 0: the output itself.

    Raises:
        InvalidInputError: If the parameter is not such a number, or the output is not numeric.
    """
    num = parameters.get(CLASSIFICATION, 0)
    if not isinstance(num, int) or isinstance(num, bool) or num < 0:
        raise InvalidInputError(f"parameter {CLASSIFICATION!r} of output {name!r} is {num!r}, expected a number of classes")
    if num and dtype in _WITHOUT_ORDER:
        raise InvalidInputError(f"output {name!r} is {dtype}, expected numbers: only those can be ranked as classes")
    return num


def top_classes(array: Array, num: int) -> Array:
    """Returns the `num` highest values, or all if there are fewer, as BYTES texts with their positions in the flat array.

    The highest comes first, of equal ones the lower position; NaN counts as minus infinity. Values are written with as few
    digits as identify them within their type, as in the protocol's examples.
    """
    flat = array.reshape(-1)
    texts = [f"{flat[at]!s}:{at}".encode() for at in _highest(_ranked(flat), num).tolist()]
    found = np.empty(len(texts), dtype=object)
    found[:] = texts
    return found


def _ranked(flat: Array) -> Array:
    """Returns the values as numbers that NumPy can sort, NaN among the lowest."""
    if np.issubdtype(flat.dtype, np.integer):
        return flat
    values = flat.astype(np.result_type(flat.dtype, np.float32), copy=False)
    return np.where(np.isnan(values), -np.inf, values)


def _highest(values: Array, num: int) -> Array:
    """Returns the positions of the highest values. Sorts only the candidates."""
    among = np.arange(len(values))
    if num < len(values):
        least = np.partition(values, len(values) - num)[len(values) - num]
        among = np.flatnonzero(values >= least)
    upwards = np.argsort(values[among][::-1], kind="stable")  # reversed twice, so that equal values keep their order
    return among[::-1][upwards][::-1][:num]
