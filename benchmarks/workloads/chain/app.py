"""The chain as a workflow: ``dyorc serve benchmarks/workloads/chain/app.py:chain``, from the repository's root.

The programs write straight into shared memory (`dyorc.empty`).
"""

from typing import TypedDict

import numpy as np
from jaxtyping import Float

import dyorc
from benchmarks.devices.program import OPTIONS
from benchmarks.workloads.base import LoadedProgram
from benchmarks.workloads.chain.workload import NUM_VALUES, WORKLOAD


@dyorc.program(max_batch_size=WORKLOAD.programs["make"].max_batch_size, **OPTIONS)
class Make:
    """Expands a seed to 8 MB."""

    def __init__(self) -> None:
        self.program = LoadedProgram(WORKLOAD, "make")

    def __call__(self, seed: Float[np.ndarray, "batch 1"]) -> Float[np.ndarray, "batch 2000000"]:
        return self.program.run(seed=seed, out=dyorc.empty((len(seed), NUM_VALUES), np.float32))["values"]


@dyorc.program(max_batch_size=WORKLOAD.programs["shift"].max_batch_size, **OPTIONS)
class Shift:
    """Turns 8 MB into 8 MB."""

    def __init__(self) -> None:
        self.program = LoadedProgram(WORKLOAD, "shift")

    def __call__(self, values: Float[np.ndarray, "batch 2000000"]) -> Float[np.ndarray, "batch 2000000"]:
        return self.program.run(values=values, out=dyorc.empty(values.shape, np.float32))["shifted"]


@dyorc.program(max_batch_size=WORKLOAD.programs["total"].max_batch_size, **OPTIONS)
class Total:
    """Reduces 8 MB to four means."""

    def __init__(self) -> None:
        self.program = LoadedProgram(WORKLOAD, "total")

    def __call__(self, shifted: Float[np.ndarray, "batch 2000000"]) -> Float[np.ndarray, "batch 4"]:
        return self.program.run(shifted=shifted)["totals"]


class Answer(TypedDict):
    """Returns the mean of each quarter of the values."""

    totals: Float[np.ndarray, "4"]


make = Make()
shift = Shift()
total = Total()


@dyorc.workflow
async def chain(seed: Float[np.ndarray, "1"]) -> Answer:
    return {"totals": total(shift(make(seed)))}
