"""The router as a workflow: ``dyorc serve benchmarks/workloads/router/app.py:router``, from the repository's root."""

from typing import TypedDict

import numpy as np
from jaxtyping import Float, Int

import dyorc
from benchmarks.devices.program import OPTIONS
from benchmarks.workloads.base import LoadedProgram, Tensors
from benchmarks.workloads.router.workload import TOPICS, WORKLOAD, nearest


@dyorc.program(max_batch_size=WORKLOAD.programs["tokenise"].max_batch_size, **OPTIONS)
class Tokenise:
    """Splits texts into MiniLM's word pieces."""

    def __init__(self) -> None:
        self.program = LoadedProgram(WORKLOAD, "tokenise")

    def __call__(self, text: dyorc.Bytes[np.ndarray, " batch"]) -> Int[np.ndarray, "batch 32"]:
        return self.program.run(text=text)["tokens"]


@dyorc.program(max_batch_size=WORKLOAD.programs["route"].max_batch_size, **OPTIONS)
class Route:
    """Scores how near each topic is to a question."""

    def __init__(self) -> None:
        self.program = LoadedProgram(WORKLOAD, "route")

    def __call__(self, tokens: Int[np.ndarray, "batch 32"]) -> Float[np.ndarray, "batch 4"]:
        return self.program.run(tokens=tokens)["scores"]


class Intents(TypedDict):
    """An expert's result for each question of a batch."""

    intent: dyorc.Bytes[np.ndarray, " batch"]
    probability: Float[np.ndarray, " batch"]


@dyorc.program(max_batch_size=WORKLOAD.programs[TOPICS[0]].max_batch_size, **OPTIONS)
class Expert:
    """Classifies the intent of questions on one topic."""

    def __init__(self, topic: str) -> None:
        self.program = LoadedProgram(WORKLOAD, topic)

    def __call__(self, tokens: Int[np.ndarray, "batch 32"]) -> Intents:
        outputs: Tensors = self.program.run(tokens=tokens)
        return {"intent": outputs["intent"], "probability": outputs["probability"]}


class Answer(TypedDict):
    """Returns a question's topic and intent, by name, and the intent's probability."""

    topic: dyorc.Bytes[np.ndarray, ""]
    intent: dyorc.Bytes[np.ndarray, ""]
    probability: Float[np.ndarray, ""]


tokenise = Tokenise()
route = Route()
experts = {topic: Expert(topic).with_options(name=topic) for topic in TOPICS}


@dyorc.workflow
async def router(text: dyorc.Bytes[np.ndarray, ""]) -> Answer:
    tokens = tokenise(text)
    topic = await dyorc.choose(route(tokens), nearest)
    outputs = experts[topic](tokens)
    return {"topic": topic.encode(), "intent": outputs["intent"], "probability": outputs["probability"]}
