"""A model for each type, which returns its input."""

from typing import Any

import numpy as np
from jaxtyping import BFloat16, Bool, Float16, Float32, Float64, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64

import dyorc
from dyorc.authoring.workflow import Workflow

_KINDS: dict[str, Any] = {
    "BOOL": Bool, "UINT8": UInt8, "UINT16": UInt16, "UINT32": UInt32, "UINT64": UInt64, "INT8": Int8, "INT16": Int16,
    "INT32": Int32, "INT64": Int64, "FP16": Float16, "BF16": BFloat16, "FP32": Float32, "FP64": Float64, "BYTES": dyorc.Bytes,
}  # fmt: skip


def _mirror(datatype: str, kind: Any) -> Workflow:
    async def mirror(x: Any) -> Any:
        return x

    mirror.__annotations__ = {"x": kind[np.ndarray, "..."], "return": kind[np.ndarray, "..."]}
    return dyorc.workflow(name=f"mirror_{datatype}")(mirror)


mirrors = {datatype: _mirror(datatype, kind) for datatype, kind in _KINDS.items()}
"""The models, by the protocol's name of the type."""
