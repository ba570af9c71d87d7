"""The server and its models in the forms of the protocol and its extensions: metadata, configuration, statistics.

Source: triton-inference-server/common, protobuf/model_config.proto, and triton-inference-server/server,
docs/protocol/extension_statistics.md. The spelling is that of protobuf's JSON with the fields' original names, so the same values
serve HTTP and, through `json_format.ParseDict`, gRPC.
"""

from typing import Any

from dyorc.authoring.spec import TensorSpec
from dyorc.core.tensor import DType
from dyorc.engine.tallies import BatchTally, ModelStatistics, Tally
from dyorc.gateway.catalog import Model
from dyorc.gateway.client_memory import ClientMemory
from dyorc.models.offers import ModelKey, ProgramOffer
from dyorc.version import version

_HIGHEST_PRIORITY_LEVEL = 2**31 - 1
"""As many levels as requests may name; 1 goes first, and requests without one come last."""


def model_config(model: Model) -> dict[str, Any]:
    """Returns the configuration of a program, or of a workflow as an ensemble of the programs it may call.

    `max_batch_size` is 0, which means that shapes have no batch dimension: a request is one item, and the server forms
    batches itself. Their largest size is one of the `parameters`.
    """
    signature = model.signature
    return {
        "name": model.name,
        "platform": model.platform,
        "backend": "dyorc",
        "version_policy": {"specific": {"versions": [int(model.version)] if model.version.isdecimal() else []}},
        "max_batch_size": 0,
        "input": [_tensor(spec) for spec in signature.inputs],
        "output": [_tensor(spec) for spec in signature.outputs.tensors],
        "model_transaction_policy": {"decoupled": model.is_streaming},
        **(_program(model, model.programs[0]) if model.is_program else _ensemble(model)),
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    # A dimension list for any number of dimensions cannot be expressed here; it becomes one of any size.
    data_type = "TYPE_STRING" if spec.dtype is DType.BYTES else f"TYPE_{spec.dtype.value}"
    return {"name": spec.name, "data_type": data_type, "dims": spec.wire_shape}


def _ensemble(model: Model) -> dict[str, Any]:
    # The workflow's code decides at run time which tensor goes where, so the maps are empty.
    steps = [{"model_name": program.name, "model_version": -1, "input_map": {}, "output_map": {}} for program in model.programs]
    return {
        "ensemble_scheduling": {"step": steps},
        "parameters": _parameters({spec.name: spec.type.__name__ for spec in model.signature.statics}),
    }


def _program(model: Model, program: ProgramOffer) -> dict[str, Any]:
    values = {spec.name: spec.type.__name__ for spec in model.signature.statics}
    limits = {"dyorc_max_batch_size": str(program.max_batch_size), "dyorc_execution_timeout_s": str(program.execution_timeout_s)}
    kind = "KIND_GPU" if program.is_on_gpu else "KIND_CPU"
    return {
        "instance_group": [{"name": program.name, "count": program.num_replicas, "kind": kind}],
        "dynamic_batching": {
            "max_queue_delay_microseconds": 0,
            "priority_levels": _HIGHEST_PRIORITY_LEVEL,
            "default_priority_level": _HIGHEST_PRIORITY_LEVEL,
            "default_queue_policy": {"allow_timeout_override": True, "max_queue_size": program.max_queued_calls},
        },
        "parameters": _parameters(values | limits),
    }


def _parameters(values: dict[str, str]) -> dict[str, Any]:
    return {name: {"string_value": value} for name, value in values.items()}


_NONE = Tally()


def model_statistics(key: ModelKey, counts: ModelStatistics) -> dict[str, Any]:
    """Returns one model's entry of ``model_stats``. Times are in nanoseconds, `last_inference` in milliseconds of Unix time."""
    return {
        "name": key.name,
        "version": key.version,
        "last_inference": counts.last_inference_ms,
        "inference_count": counts.inference_count,
        "execution_count": counts.execution_count,
        "inference_stats": {
            "success": _duration(counts.success),
            "fail": _duration(counts.fail),
            "queue": _duration(counts.queue),
            "compute_input": _duration(counts.compute_input),
            "compute_infer": _duration(counts.compute_infer),
            "compute_output": _duration(counts.compute_output),
            "cache_hit": _duration(_NONE),
            "cache_miss": _duration(_NONE),
        },
        "response_stats": {},
        "batch_stats": [_batch(size, tally) for size, tally in sorted(counts.batches.items())],
        "memory_usage": [],
    }


def _batch(size: int, tally: BatchTally) -> dict[str, Any]:
    return {
        "batch_size": size,
        "compute_input": _duration(tally.compute_input),
        "compute_infer": _duration(tally.compute_infer),
        "compute_output": _duration(tally.compute_output),
    }


def _duration(tally: Tally) -> dict[str, int]:
    return {"count": tally.count, "ns": tally.ns}


_EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "generate",
    "model_configuration",
    "model_repository",
    "parameters",
    "schedule_policy",
    "statistics",
)


def server_metadata(clients: ClientMemory) -> dict[str, Any]:
    """Returns name, version and the supported protocol extensions. Clients ask for statistics only if those are listed."""
    extensions = [*_EXTENSIONS, *(["system_shared_memory"] if clients.is_allowed else [])]
    return {"name": "dyorc", "version": version(), "extensions": extensions}
