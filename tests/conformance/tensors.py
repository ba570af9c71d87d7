"""Tensors of every type of the protocol, and the requests of `every_type` that carry them."""
# pyright: basic
# pyright: reportMissingImports=false
# Tritonclient is in another environment.

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

NUMPY: Mapping[str, Any] = {
    "BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
    "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "FP16": np.float16, "BF16": ml_dtypes.bfloat16, "FP32": np.float32, "FP64": np.float64, "BYTES": np.object_,
}  # fmt: skip
"""The arrays that tritonclient takes and returns for each type."""

DATATYPES = tuple(NUMPY)
JSON_DATATYPES = tuple(datatype for datatype in DATATYPES if datatype not in ("FP16", "BF16"))


def input_name(datatype: str) -> str:
    """Returns the name of the input of `every_type` that has a type."""
    return datatype.lower() + ("_" if datatype in ("BOOL", "BYTES") else "")


def output_name(datatype: str) -> str:
    """Returns the name of the output of `every_type` that has a type."""
    return f"turned_{datatype.lower()}"


def sample(datatype: str) -> np.ndarray:
    """Returns 2 rows of 3 with the extremes of a type, not symmetric."""
    kind = NUMPY[datatype]
    if datatype == "BOOL":
        return np.array([[True, False, False], [True, True, False]])
    if datatype == "BYTES":
        return np.array([[b"", b"plain", "zwölf €".encode()], [b"a" * 300, b'\n"\\', b"0"]], dtype=np.object_)
    if np.issubdtype(kind, np.integer):
        limits = np.iinfo(kind)
        return np.array([[limits.min, 1, 2], [3, limits.max - 1, limits.max]], dtype=kind)
    return np.array([[-1.5, 0.25, 3.0], [1024.0, -0.0, 2.0**-8]], dtype=kind)


def empty(datatype: str) -> np.ndarray:
    """Returns a tensor without elements."""
    return np.zeros((0, 3), dtype=NUMPY[datatype])


def turned(array: np.ndarray) -> np.ndarray:
    """Returns what `every_type` makes of an input."""
    return array[:, ::-1]


def same(found: Any, expected: np.ndarray) -> bool:
    """Returns whether an answer is what was expected; texts that came in JSON are str."""
    if found is None or tuple(found.shape) != expected.shape:
        return False
    if expected.dtype == np.object_:
        texts = [item.encode() if isinstance(item, str) else bytes(item) for item in found.reshape(-1).tolist()]
        return texts == [bytes(item) for item in expected.reshape(-1).tolist()]
    return bool((np.asarray(found) == expected).all())


def digit() -> np.ndarray:
    """Returns an image for `classify`: not a digit, but something in the middle."""
    image = np.zeros((1, 8, 8), np.float32)
    image[0, 1:7, 3:5] = 1.0
    return image
