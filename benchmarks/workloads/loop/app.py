"""The loop as a workflow: ``dyorc serve benchmarks/workloads/loop/app.py:loop``, from the repository's root.

The state goes from turn to turn by reference; the workflow reads only the halting probability.
"""

from typing import Any, TypedDict

import numpy as np
from jaxtyping import Float, Int

import dyorc
from benchmarks.devices.program import OPTIONS
from benchmarks.workloads.base import LoadedProgram
from benchmarks.workloads.loop.workload import SURE, WIDTH, WORKLOAD


class Turn(TypedDict):
    """Returns the new state of a batch, the probability that its answer is right, and the answer."""

    state: Float[np.ndarray, "batch 1024"]
    halt: Float[np.ndarray, "batch 1"]
    probabilities: Float[np.ndarray, "batch 10"]


@dyorc.program(max_batch_size=WORKLOAD.programs["refine"].max_batch_size, **OPTIONS)
class Refine:
    """Looks at the digit once more."""

    def __init__(self) -> None:
        self.program = LoadedProgram(WORKLOAD, "refine")

    def __call__(
        self,
        image: Float[np.ndarray, "batch 1 8 8"],
        state: Float[np.ndarray, "batch 1024"],
        turn: Int[np.ndarray, "batch 1"],
    ) -> Turn:
        outputs = self.program.run(image=image, state=state, turn=turn)
        return {"state": outputs["state"], "halt": outputs["halt"], "probabilities": outputs["probabilities"]}


class Answer(TypedDict):
    """Returns the probabilities of the ten digits, and the number of turns."""

    probabilities: Float[np.ndarray, "10"]
    turns: Int[np.ndarray, "1"]


refine = Refine()


def is_sure(halt: np.ndarray[Any, Any]) -> bool:
    return bool(halt[0] >= SURE)


@dyorc.workflow
async def loop(image: Float[np.ndarray, "1 8 8"]) -> Answer:
    outputs = refine(image, np.zeros(WIDTH, np.float32), np.array([0], np.int64))
    num_turns = 1
    while not await dyorc.when(outputs["halt"], is_sure):
        outputs = refine(image, outputs["state"], np.array([num_turns], np.int64))
        num_turns += 1
    return {"probabilities": outputs["probabilities"], "turns": np.array([num_turns], np.int64)}
