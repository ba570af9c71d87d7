"""The lines of README.md: a small model, and a large one where it is unsure. Their weights are random."""

import numpy as np
from jaxtyping import Float32

import dyorc


@dyorc.program(max_batch_size=32)
class Small:
    def __init__(self):  # runs once in each replica: load the weights here
        self.weights = np.random.default_rng(0).normal(size=(64, 10)).astype(np.float32)

    def __call__(self, image: Float32[np.ndarray, "batch 64"]) -> Float32[np.ndarray, "batch 10"]:
        scores = np.exp(image @ self.weights)
        return scores / scores.sum(1, keepdims=True)


@dyorc.program(max_batch_size=32, num_replicas=2)
def large(image: Float32[np.ndarray, "batch 64"]) -> Float32[np.ndarray, "batch 10"]:
    return np.full((len(image), 10), 0.1, np.float32)  # imagine a large model


small = Small()  # nothing is loaded yet


@dyorc.workflow
async def classify(image: Float32[np.ndarray, "64"]) -> Float32[np.ndarray, "10"]:
    guess = small(image)  # a Ref: nothing waits
    if await dyorc.when(guess, lambda p: p.max() > 0.9):  # a decision on its value
        return guess
    return large(image)
