"""Statistics of models in the form of the statistics extension.

Source: triton-inference-server/server, docs/protocol/extension_statistics.md. Clients read all eight kinds without checking
whether they exist, so all eight are always there.
"""

from typing import Any

from dyorc.engine.tallies import BatchTally, ModelStatistics, Tally
from dyorc.models.offers import ModelKey

_NONE = Tally()


def model_statistics(key: ModelKey, found: ModelStatistics) -> dict[str, Any]:
    """Returns one model's entry of ``model_stats``. Times are in nanoseconds, `last_inference` in milliseconds of Unix time."""
    return {
        "name": key.name,
        "version": key.version,
        "last_inference": found.last_inference_ms,
        "inference_count": found.inference_count,
        "execution_count": found.execution_count,
        "inference_stats": {
            "success": _duration(found.success),
            "fail": _duration(found.fail),
            "queue": _duration(found.queue),
            "compute_input": _duration(found.compute_input),
            "compute_infer": _duration(found.compute_infer),
            "compute_output": _duration(found.compute_output),
            "cache_hit": _duration(_NONE),
            "cache_miss": _duration(_NONE),
        },
        "response_stats": {},
        "batch_stats": [_batch(size, tally) for size, tally in sorted(found.batches.items())],
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
