"""Annotations of the tensors of an ONNX model, as onnxruntime describes them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import jaxtyping
import numpy as np

from dyorc.errors import DefinitionError

_KINDS = {
    "float": "Float32", "double": "Float64", "float16": "Float16", "bool": "Bool",
    "int8": "Int8", "int16": "Int16", "int32": "Int32", "int64": "Int64",
    "uint8": "UInt8", "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64",
}  # fmt: skip


def read_annotations(owner: str, tensors: Sequence[Any], shapes: Mapping[str, str], batched: bool) -> dict[str, Any]:
    """Returns the annotation of each tensor, by its name in Python.

    Args:
        tensors: With ``name``, ``type`` and ``shape``.
        shapes: Shapes to be used in place of theirs, by name in Python.

    Raises:
        DefinitionError: If one has no batch axis, is of a type that DyOrc does not have, or two have one name in Python.
    """
    names = [_name(tensor.name) for tensor in tensors]
    if len(set(names)) < len(names):
        raise DefinitionError(f"{owner}: of the tensors {[tensor.name for tensor in tensors]}, two have one name in Python")
    return {name: _annotation(owner, each, shapes.get(name), batched) for name, each in zip(names, tensors, strict=True)}


def _annotation(owner: str, tensor: Any, shape: str | None, batched: bool) -> Any:
    kind = _KINDS.get(tensor.type.removeprefix("tensor(").removesuffix(")"))
    if kind is None:
        raise DefinitionError(f"{owner}: {tensor.name!r} is {tensor.type}; expected a tensor of {', '.join(_KINDS)}")
    if shape is None:
        if batched and (not tensor.shape or isinstance(tensor.shape[0], int)):
            raise DefinitionError(
                f"{owner}: {tensor.name!r} has the shape {tensor.shape} and so no batch axis, which is a first axis without a "
                f"size; declare batched=False"
            )
        sizes = [_size(_name(tensor.name), axis, size) for axis, size in enumerate(tensor.shape)]
        shape = " ".join(["batch", *sizes[1:]] if batched else sizes)
    return getattr(jaxtyping, kind)[np.ndarray, shape]


def _size(name: str, axis: int, size: Any) -> str:
    if isinstance(size, int):
        return str(size)
    is_named = isinstance(size, str) and re.search(r"\w", size) and size != "batch"
    return _name(size) if is_named else f"{name}_{axis}"


def _name(text: str) -> str:
    safe = re.sub(r"\W", "_", text).lstrip("_")
    return safe if safe.isidentifier() else f"n{safe}"
