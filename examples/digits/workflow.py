"""A cascade: a small net reads a digit; if it is unsure, a large one reads it too.

dyorc serve examples/digits/workflow.py:classify
"""

from typing import TypedDict

import numpy as np
from digits_nets import CONFIDENT, large_net, small_net, weights_of
from jaxtyping import Bool, Float
from torch import Tensor

import dyorc


@dyorc.program(max_batch_size=64)
class Small:
    """The small net: sure of most digits, wrong about some."""

    def __init__(self) -> None:
        self.net = dyorc.load_module(small_net, weights_of("small"))

    def __call__(self, image: Float[Tensor, "batch 1 8 8"]) -> Float[Tensor, "batch 10"]:
        return self.net(image).softmax(dim=1)


@dyorc.program(max_batch_size=64)
class Large:
    """The large net: right about nearly all digits, and slower."""

    def __init__(self) -> None:
        self.net = dyorc.load_module(large_net, weights_of("large"))

    def __call__(self, image: Float[Tensor, "batch 1 8 8"]) -> Float[Tensor, "batch 10"]:
        return self.net(image).softmax(dim=1)


small = Small()
large = Large()


class Answer(TypedDict):
    """Returns the probabilities of the ten digits, and whether the large net was asked."""

    probabilities: Float[Tensor, "10"]
    took_large: Bool[Tensor, ""]


def is_confident(probabilities: np.ndarray) -> bool:
    return bool(probabilities.max() >= CONFIDENT)


@dyorc.workflow
async def classify(image: Float[Tensor, "1 8 8"]) -> Answer:
    probabilities = small(image)
    if await dyorc.when(probabilities, is_confident):
        return {"probabilities": probabilities, "took_large": False}
    return {"probabilities": large(image), "took_large": True}
