"""The cascade as a workflow: ``dyorc serve benchmarks/workloads/cascade/app.py:cascade``, from the repository's root."""

from typing import Any, TypedDict

import numpy as np
from jaxtyping import Float

import dyorc
from benchmarks.devices.program import OPTIONS
from benchmarks.workloads.base import LoadedProgram
from benchmarks.workloads.cascade.workload import CONFIDENT, WORKLOAD


@dyorc.program(max_batch_size=WORKLOAD.programs["small"].max_batch_size, **OPTIONS)
class Small:
    """The small net, which is sure of most digits."""

    def __init__(self) -> None:
        self.program = LoadedProgram(WORKLOAD, "small")

    def __call__(self, image: Float[np.ndarray, "batch 1 8 8"]) -> Float[np.ndarray, "batch 10"]:
        return self.program.run(image=image)["probabilities"]


@dyorc.program(max_batch_size=WORKLOAD.programs["large"].max_batch_size, **OPTIONS)
class Large:
    """The large net, which is right about nearly all digits."""

    def __init__(self) -> None:
        self.program = LoadedProgram(WORKLOAD, "large")

    def __call__(self, image: Float[np.ndarray, "batch 1 8 8"]) -> Float[np.ndarray, "batch 10"]:
        return self.program.run(image=image)["probabilities"]


class Answer(TypedDict):
    """Returns the probabilities of the ten digits."""

    probabilities: Float[np.ndarray, "10"]


small = Small()
large = Large()


def is_confident(probabilities: np.ndarray[Any, Any]) -> bool:
    return bool(probabilities.max() >= CONFIDENT)


@dyorc.workflow
async def cascade(image: Float[np.ndarray, "1 8 8"]) -> Answer:
    guess = small(image)
    if await dyorc.when(guess, is_confident):
        return {"probabilities": guess}
    return {"probabilities": large(image)}
