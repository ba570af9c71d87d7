"""A program for each type that the protocol can carry, which returns its input."""

import numpy as np
from jaxtyping import BFloat16, Bool, Float16, Float32, Float64, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64

import dyorc
from dyorc.authoring.program import Program

_KINDS = {
    "BOOL": Bool, "INT8": Int8, "INT16": Int16, "INT32": Int32, "INT64": Int64, "UINT8": UInt8, "UINT16": UInt16,
    "UINT32": UInt32, "UINT64": UInt64, "FP16": Float16, "BF16": BFloat16, "FP32": Float32, "FP64": Float64,
    "BYTES": dyorc.Bytes,
}  # fmt: skip


def _same(datatype: str) -> Program:
    kind = _KINDS[datatype][np.ndarray, "..."]

    def same(x):  # pyright: ignore
        return x

    same.__name__ = same.__qualname__ = f"same_{datatype.lower()}"
    same.__annotations__ = {"x": kind, "return": kind}
    return dyorc.program(batched=False)(same)


same = {datatype: _same(datatype) for datatype in _KINDS}
