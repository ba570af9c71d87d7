"""The guarded example's programs, scaled: ``dyorc serve benchmarks/focused/scaling_live/guarded_app.py:guarded``, from the root.

``BENCHMARK_LOAD_S`` makes each program take that much longer to load, and ``BENCHMARK_COLD_DELAY_S`` sets how long a replica
stays parked before its process ends.
"""

import os
import time
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

import dyorc
from benchmarks.focused.scaling_live.settings import DOWNSCALE_DELAY_S, MAX_REPLICAS, MIN_REPLICAS
from benchmarks.workloads.base import LoadedProgram
from benchmarks.workloads.guarded.app import Answer, is_harmless
from benchmarks.workloads.guarded.workload import REFUSAL, WORKLOAD

_LOAD_S = float(os.environ.get("BENCHMARK_LOAD_S", "0"))
_OPTIONS: dict[str, Any] = {
    "max_batch_size": 32,
    "autoscaling_config": {
        "min_replicas": MIN_REPLICAS,
        "max_replicas": MAX_REPLICAS,
        "downscale_delay_s": DOWNSCALE_DELAY_S,
        "cold_delay_s": float(os.environ.get("BENCHMARK_COLD_DELAY_S", "600")),
    },
}


@dyorc.program(**_OPTIONS)
class Guard:
    """Scores how likely a message is harmful."""

    def __init__(self) -> None:
        time.sleep(_LOAD_S)
        self.program = LoadedProgram(WORKLOAD, "guard")

    def __call__(self, text: UInt8[np.ndarray, "batch 64"]) -> Float[np.ndarray, " batch"]:
        return self.program.run(text=text)["score"]


@dyorc.program(**_OPTIONS)
class Generate:
    """Continues a message with the likeliest next 32 characters."""

    def __init__(self) -> None:
        time.sleep(_LOAD_S)
        self.program = LoadedProgram(WORKLOAD, "generate")

    def __call__(self, text: UInt8[np.ndarray, "batch 64"]) -> UInt8[np.ndarray, "batch 32"]:
        return self.program.run(text=text)["continuation"]


guard = Guard()
generate = Generate()


@dyorc.workflow
async def guarded(text: UInt8[np.ndarray, "64"]) -> Answer:
    if await dyorc.when(guard(text), is_harmless, likely=True):
        return {"continuation": generate(text)}
    return {"continuation": np.frombuffer(REFUSAL, np.uint8)}
