"""A cascade of NumPy alone, for the core image: a small net, and a large one where it is unsure. Their weights are random."""

import numpy as np
from jaxtyping import Float

import dyorc


def _softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


@dyorc.program(max_batch_size=32)
class Small:
    def __init__(self) -> None:
        self.weights = np.random.default_rng(0).normal(size=(64, 10)).astype(np.float32) / 64

    def __call__(self, image: Float[np.ndarray, "batch 64"]) -> Float[np.ndarray, "batch 10"]:
        return _softmax(image @ self.weights)


@dyorc.program(max_batch_size=32)
class Large:
    def __init__(self) -> None:
        random = np.random.default_rng(1)
        self.hidden = random.normal(size=(64, 4096)).astype(np.float32) / 64
        self.weights = random.normal(size=(4096, 10)).astype(np.float32) / 64

    def __call__(self, image: Float[np.ndarray, "batch 64"]) -> Float[np.ndarray, "batch 10"]:
        return _softmax(np.maximum(image @ self.hidden, 0) @ self.weights)


small, large = Small(), Large()


@dyorc.workflow
async def classify(image: Float[np.ndarray, "64"]) -> Float[np.ndarray, "10"]:
    guess = small(image)
    if await dyorc.when(guess, lambda p: p.max() > 0.9):
        return guess
    return large(image)
