"""A model in an ONNX file, by onnxruntime. Names, types and sizes of its tensors are read from the file."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typing_extensions import TypedDict

import dyorc
from dyorc.errors import DefinitionError
from dyorc.programs.declaring import declare, import_library
from dyorc.programs.onnx_signatures import read_annotations


def onnx(
    path_or_bytes: str | os.PathLike[str] | bytes,
    *,
    name: str | None = None,
    shapes: Mapping[str, str] | None = None,
    providers: Sequence[Any] = ("CPUExecutionProvider",),
    num_threads: int | None = None,
    batched: bool = True,
    **options: Any,
) -> dyorc.Program:
    """Returns a program that runs an ONNX model on arrays of NumPy.

    Parameters, and outputs if there are several, have the file's names, with ``_`` for what Python does not allow in names. Sizes
    that the file leaves open are named as it names them, or else by tensor and axis, such as ``x_3``; `pad` takes these names.

    Args:
        path_or_bytes: The file, or what it holds.
        name: By default, the file's.
        shapes: Shapes to be used in place of the file's, by tensor: ``{"x": "batch 3 height width"}``.
        providers: Of onnxruntime, the best first: ``["CUDAExecutionProvider", "CPUExecutionProvider"]``.
        num_threads: By default, the replica's share of the machine.
        batched: Whether the first axis of each tensor is the batch. If not, a call gets the model to itself.
        options: Of `dyorc.program`.

    Raises:
        DefinitionError: If a tensor has no batch axis, or is of a type that DyOrc does not have.
        MissingLibraryError: If onnxruntime is not installed.
    """
    is_path = not isinstance(path_or_bytes, bytes)
    model: Any = os.fspath(path_or_bytes) if is_path else path_or_bytes
    name = name or (re.sub(r"[^\w.-]", "_", Path(model).stem) if is_path else "onnx")
    owner = f"program {name!r}"
    runtime = import_library("onnxruntime", owner, "pip install 'dyorc-core[programs]'")
    threads = runtime.SessionOptions()
    threads.log_severity_level = 3
    threads.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL  # only its signature is read here
    try:
        session = runtime.InferenceSession(model, threads, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise DefinitionError(f"{owner}: onnxruntime cannot read {model if is_path else 'the bytes'}: {error}") from error
    inputs = read_annotations(owner, session.get_inputs(), shapes or {}, batched)
    outputs = read_annotations(owner, session.get_outputs(), shapes or {}, batched)
    if unknown := sorted(set(shapes or {}) - {*inputs, *outputs}):
        raise DefinitionError(f"{owner}: shapes names {unknown}; its tensors are {[*inputs, *outputs]}")
    raw_names = dict(zip(inputs, (each.name for each in session.get_inputs()), strict=True))

    def load() -> Any:
        if absent := [each for each in providers if _provider(each) not in runtime.get_available_providers()]:
            raise ValueError(f"providers {absent} are not in this onnxruntime, which has {runtime.get_available_providers()}")
        settings = runtime.SessionOptions()
        settings.log_severity_level = 3
        settings.intra_op_num_threads = num_threads or dyorc.num_threads()
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads leave cores to others
        loaded = runtime.InferenceSession(model, settings, providers=list(providers))

        def compute(**arrays: np.ndarray) -> Any:
            values = loaded.run(None, {raw_names[each]: array for each, array in arrays.items()})
            return values[0] if len(outputs) == 1 else dict(zip(outputs, values, strict=True))

        return compute

    output = next(iter(outputs.values())) if len(outputs) == 1 else TypedDict("Outputs", outputs)  # type: ignore[misc]
    return declare(name, inputs, output, load, batched=batched, **options)


def _provider(provider: Any) -> str:
    return provider if isinstance(provider, str) else provider[0]
