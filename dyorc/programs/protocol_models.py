"""A model of another server that speaks the Open Inference Protocol: DyOrc, Triton, KServe."""

import importlib
from collections.abc import Callable
from typing import Any

import jaxtyping
import numpy as np
from typing_extensions import TypedDict

import dyorc
from dyorc.errors import DefinitionError
from dyorc.programs.declaring import declare

_KINDS = {
    "FP16": "Float16", "FP32": "Float32", "FP64": "Float64", "BOOL": "Bool",
    "INT8": "Int8", "INT16": "Int16", "INT32": "Int32", "INT64": "Int64",
    "UINT8": "UInt8", "UINT16": "UInt16", "UINT32": "UInt32", "UINT64": "UInt64",
}  # fmt: skip


def protocol_model(
    url: str, model: str, name: str | None, api_key: str | None, timeout_s: float, max_attempts: int, options: dict[str, Any]
) -> dyorc.Program:
    """Returns a program that asks for a model; see `dyorc.programs.http`.

    Raises:
        DefinitionError: If it has types that DyOrc does not have.
        DyOrcError: If the metadata cannot be read.
    """
    name = name or model
    with dyorc.Client(url, api_key=api_key, timeout_s=timeout_s) as client:
        metadata = client.metadata(model)
    inputs, outputs = ({each.name: _annotation(name, each) for each in part} for part in (metadata.inputs, metadata.outputs))

    def load() -> Callable[..., Any]:
        retries = importlib.import_module("dyorc.client.retries").Retries(max_attempts=max_attempts)
        client = dyorc.AsyncClient(url, api_key=api_key, timeout_s=timeout_s, retries=retries)

        async def compute(**tensors: np.ndarray) -> Any:
            return await client.infer(model, tensors)

        return compute

    output = next(iter(outputs.values())) if len(outputs) == 1 else TypedDict("Outputs", outputs)  # type: ignore[misc]
    return declare(name, inputs, output, load, is_async=True, **options)


def _annotation(name: str, tensor: Any) -> Any:
    shape = " ".join(f"{tensor.name}_{axis}" if size < 0 else str(size) for axis, size in enumerate(tensor.shape))
    if tensor.datatype == "BYTES":
        return dyorc.Bytes[np.ndarray, shape]
    if tensor.datatype not in _KINDS:
        raise DefinitionError(
            f"program {name!r}: {tensor.name!r} is {tensor.datatype}, expected BYTES or one of {sorted(_KINDS)}"
        )
    return getattr(jaxtyping, _KINDS[tensor.datatype])[np.ndarray, shape]
