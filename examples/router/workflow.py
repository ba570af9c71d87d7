"""A router to experts: MiniLM decides what a question is about, and the expert of that topic finds out what is wanted.

The experts read the same tokens as the router, so an expert need not wait for the decision that it is asked.

dyorc serve examples/router/workflow.py:answer
"""

from typing import TypedDict

import numpy as np
from jaxtyping import Float, Int
from router_minilm import Tokenizer, load_minilm
from router_nets import load_centroids, load_expert
from router_texts import INTENTS, TOPICS
from torch import Tensor

import dyorc


class Intents(TypedDict):
    """What an expert finds in each question of a batch: an intent by name, and its probability."""

    intent: dyorc.Bytes[np.ndarray, " batch"]
    probability: Float[Tensor, " batch"]


class Answer(TypedDict):
    """A question's topic and intent, by name, and the intent's probability."""

    topic: dyorc.Bytes[np.ndarray, ""]
    intent: dyorc.Bytes[np.ndarray, ""]
    probability: Float[np.ndarray, ""]


@dyorc.program(max_batch_size=32)
class Tokenise:
    """Splits texts into MiniLM's pieces of words."""

    def __init__(self) -> None:
        self.tokenizer = Tokenizer()

    def __call__(self, text: dyorc.Bytes[np.ndarray, " batch"]) -> Int[np.ndarray, "batch 32"]:
        return np.array([self.tokenizer(each.decode(errors="replace")) for each in text])


@dyorc.program(max_batch_size=8)
class Route:
    """Says how near each topic is to a question, by its sentence embedding."""

    def __init__(self) -> None:
        self.embed = load_minilm()
        self.centroids = load_centroids()

    def __call__(self, tokens: Int[Tensor, "batch 32"]) -> Float[Tensor, "batch 4"]:
        return self.embed(tokens) @ self.centroids.T


@dyorc.program(max_batch_size=32)
class Expert:
    """Finds out what is wanted in a question of one topic."""

    def __init__(self, topic: str) -> None:
        self.intents = [intent.encode() for intent in INTENTS[topic]]
        self.net = load_expert(topic, len(self.intents))

    def __call__(self, tokens: Int[Tensor, "batch 32"]) -> Intents:
        probability, at = self.net(tokens).softmax(dim=1).max(dim=1)
        return {"intent": np.array([self.intents[each] for each in at.tolist()], object), "probability": probability}


tokenise = Tokenise()
route = Route()
experts = {topic: Expert(topic).with_options(name=topic) for topic in TOPICS}


def nearest(scores: Float[np.ndarray, "4"]) -> str:
    return TOPICS[int(scores.argmax())]


@dyorc.workflow
async def answer(text: dyorc.Bytes[np.ndarray, ""]) -> Answer:
    tokens = tokenise(text)
    topic = await dyorc.choose(route(tokens), nearest)
    result = experts[topic](tokens)
    return {"topic": topic.encode(), "intent": result["intent"], "probability": result["probability"]}
