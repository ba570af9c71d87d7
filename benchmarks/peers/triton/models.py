"""A workload as a Triton model repository: one model of the Python back end per program, and the code that it runs.

A model takes and returns its program's tensors with a leading batch dimension. If a program runs items of several widths
together, its model is ragged: Triton batches requests of any shapes, and the program pads them, as in every system. A string is a
tensor of one element, since Triton's tensors have at least one dimension. If nothing in a workload depends on data, it also
becomes an ensemble: a model with the workload's name whose steps are the programs, connected by the names of their tensors.
Intermediate tensors then stay inside the server.
"""
# pyright: basic

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workloads import workload
from benchmarks.workloads.base import LoadedProgram, TensorSpec, Workload

DATATYPES = {
    "bool": "BOOL",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    **{f"{sign}int{bits}": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""Triton's names of dtypes. The name for strings depends on where it is used."""

_CONFIG = """
name: "{name}"
max_batch_size: {max_batch_size}
{tensors}
"""
_PYTHON_BACKEND = """
backend: "python"
parameters {{ key: "workload" value {{ string_value: "{workload}" }} }}
instance_group [ {{ kind: KIND_CPU count: {num_instances} }} ]
{batching}
"""
_BATCHING = "dynamic_batching {{ max_queue_delay_microseconds: {max_queue_delay_us} }}"
_TENSOR = '{kind} {{ name: "{name}" data_type: TYPE_{datatype} dims: {dims}{more} }}'
_ENSEMBLE = """
platform: "ensemble"
ensemble_scheduling {{ {steps} }}
"""
_STEP = 'step {{ model_name: "{name}" model_version: -1 {maps} }}'
_MAP = '{kind}_map {{ key: "{name}" value: "{name}" }}'
_MODEL = "from benchmarks.peers.triton.models import ProgramModel as TritonPythonModel\n"


def write_repository(folder: Path, served: Workload, max_queue_delay_us: int) -> None:
    """Makes a model repository.

    Args:
        folder: The repository's folder; empty, or not there yet.
        served: The workload.
        max_queue_delay_us: How long a call waits for others to share its batch; -1 turns batching off.
    """
    batching = _BATCHING.format(max_queue_delay_us=max_queue_delay_us) if max_queue_delay_us >= 0 else ""
    for name, program in served.programs.items():
        inputs = _tensors("input", program.inputs, is_ragged=bool(program.widths))
        config = _CONFIG.format(
            name=name, max_batch_size=program.max_batch_size, tensors=inputs + _tensors("output", program.outputs)
        )
        num_instances = served.replicas.get(name, 1)
        backend = _PYTHON_BACKEND.format(workload=served.name, num_instances=num_instances, batching=batching)
        _write(folder / name, config + backend)
        (folder / name / "1" / "model.py").write_text(_MODEL)
    if not served.is_dynamic:
        _write(folder / served.name, _ensemble(served))


def has_ensemble(served: Workload) -> bool:
    """Whether a request is one call of the model with the workload's name."""
    return not served.is_dynamic


def as_dims(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the dimensions of an item in Triton's form."""
    return tuple(shape) or (1,)


def _ensemble(served: Workload) -> str:
    steps: list[str] = []
    for name, program in served.programs.items():
        tensors = [("input", each) for each in program.inputs] + [("output", each) for each in program.outputs]
        maps = " ".join(_MAP.format(kind=kind, name=tensor) for kind, tensor in tensors)
        steps.append(_STEP.format(name=name, maps=maps))
    tensors = _tensors("input", served.inputs) + _tensors("output", served.outputs)
    max_batch_size = min(program.max_batch_size for program in served.programs.values())
    config = _CONFIG.format(name=served.name, max_batch_size=max_batch_size, tensors=tensors)
    return config + _ENSEMBLE.format(steps=" ".join(steps))


def _tensors(kind: str, specs: Mapping[str, TensorSpec], is_ragged: bool = False) -> str:
    return "".join(
        _TENSOR.format(
            kind=kind,
            name=name,
            datatype=DATATYPES.get(spec.dtype, "STRING"),
            dims=list(as_dims(spec.shape)),
            more=" allow_ragged_batch: true" if is_ragged else "",
        )
        + "\n"
        for name, spec in specs.items()
    )


def _write(folder: Path, config: str) -> None:
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(config)


class ProgramModel:
    """A program as Triton's Python back end runs it, in a separate process. The requests of one batch run together."""

    def initialize(self, args: Mapping[str, str]) -> None:
        """Loads the program with the model's name."""
        config = json.loads(args["model_config"])
        served = workload(config["parameters"]["workload"]["string_value"])
        self.program = LoadedProgram(served, config["name"])

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Returns the answers to a batch of requests, each of which may itself have a batch dimension above 1."""
        import triton_python_backend_utils as pb_utils  # pyright: ignore[reportMissingImports]  # only within Triton

        items = [list(self._items(request, pb_utils)) for request in requests]
        remaining = iter(self.program.run_items([item for of_request in items for item in of_request]))
        responses: list[Any] = []
        for of_request in items:
            outputs = [next(remaining) for _ in of_request]
            tensors = [pb_utils.Tensor(name, self._stacked(name, outputs)) for name in self.program.program.outputs]
            responses.append(pb_utils.InferenceResponse(tensors))
        return responses

    def _items(self, request: Any, pb_utils: Any) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
        specs = self.program.program.inputs
        arrays = {name: pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in specs}
        for at in range(len(next(iter(arrays.values())))):
            yield {name: array[at].reshape(()) if not specs[name].shape else array[at] for name, array in arrays.items()}

    def _stacked(self, name: str, outputs: Sequence[Mapping[str, np.ndarray[Any, Any]]]) -> np.ndarray[Any, Any]:
        arrays = [output[name] for output in outputs]
        stacked = arrays[0][np.newaxis] if len(arrays) == 1 else np.stack(arrays)
        return stacked[:, np.newaxis] if stacked.ndim == 1 else stacked
