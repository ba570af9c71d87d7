"""The guarded generator as a workflow: ``dyorc serve benchmarks/workloads/guarded/app.py:guarded``, from the root."""

from typing import TypedDict

import numpy as np
from jaxtyping import Float, UInt8

import dyorc
from benchmarks.devices.program import OPTIONS
from benchmarks.workloads.base import LoadedProgram
from benchmarks.workloads.guarded.workload import MIN_HARM, REFUSAL, WORKLOAD


@dyorc.program(max_batch_size=WORKLOAD.programs["guard"].max_batch_size, **OPTIONS)
class Guard:
    """Scores how likely a message is harmful."""

    def __init__(self) -> None:
        self.program = LoadedProgram(WORKLOAD, "guard")

    def __call__(self, text: UInt8[np.ndarray, "batch 64"]) -> Float[np.ndarray, " batch"]:
        return self.program.run(text=text)["score"]


@dyorc.program(max_batch_size=WORKLOAD.programs["generate"].max_batch_size, **OPTIONS)
class Generate:
    """Continues a message with the likeliest next 32 characters."""

    def __init__(self) -> None:
        self.program = LoadedProgram(WORKLOAD, "generate")

    def __call__(self, text: UInt8[np.ndarray, "batch 64"]) -> UInt8[np.ndarray, "batch 32"]:
        return self.program.run(text=text)["continuation"]


class Answer(TypedDict):
    """Returns the message's continuation, or a refusal."""

    continuation: UInt8[np.ndarray, "32"]


guard = Guard()
generate = Generate()


def is_harmless(score: float) -> bool:
    return score < MIN_HARM


@dyorc.workflow
async def guarded(text: UInt8[np.ndarray, "64"]) -> Answer:
    if await dyorc.when(guard(text), is_harmless, likely=True):
        return {"continuation": generate(text)}
    return {"continuation": np.frombuffer(REFUSAL, np.uint8)}
