"""Programs that are there already: a model in a file, or behind another server, becomes a program by one call.

Each kind is a file of under a hundred lines that uses only what ``import dyorc`` gives: copy it where it does not fit. A function
here makes a program, as a program class does: it reads signatures, and weights are loaded in replicas. All take options of
`dyorc.program` as keywords. Nothing is imported before it is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dyorc.programs.compiled_modules import compiled
    from dyorc.programs.model_servers import http
    from dyorc.programs.onnx_files import onnx
    from dyorc.programs.openai_servers import openai
    from dyorc.programs.sentence_encoders import sentence_encoder
    from dyorc.programs.torchscript_files import torchscript
    from dyorc.programs.transformers_pipelines import hf_pipeline
    from dyorc.programs.vllm_engines import vllm

__all__ = ["compiled", "hf_pipeline", "http", "onnx", "openai", "sentence_encoder", "torchscript", "vllm"]

_HOME_OF = {
    "compiled": "compiled_modules",
    "hf_pipeline": "transformers_pipelines",
    "http": "model_servers",
    "onnx": "onnx_files",
    "openai": "openai_servers",
    "sentence_encoder": "sentence_encoders",
    "torchscript": "torchscript_files",
    "vllm": "vllm_engines",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    return value
