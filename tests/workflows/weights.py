"""A program with weights, and a gate before they are loaded."""

import os
import time
import weakref
from pathlib import Path

import numpy as np
from jaxtyping import Float

import dyorc

GATE = "LIFE_CYCLE_GATE"
"""Environment variable with a folder. A process notes there that it loads (`loading-PID`), and goes on once a file `open` is
there."""
alive: "weakref.WeakSet[Weights]" = weakref.WeakSet()
"""Loaded copies in this process."""


class Weights:
    """Takes memory."""

    def __init__(self) -> None:
        self.two = np.full(2**20, 2, np.float32)
        alive.add(self)


@dyorc.program(max_batch_size=8)
class Weighted:
    def __init__(self) -> None:
        if folder := os.environ.get(GATE):
            (Path(folder) / f"loading-{os.getpid()}").touch()
            while not (Path(folder) / "open").exists():
                time.sleep(0.01)
        self.weights = Weights()

    def __call__(self, x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
        """Returns twice the input."""
        return x * self.weights.two[:4]


weighted = Weighted()


@dyorc.workflow
async def fourfold(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """Makes two calls, one after another."""
    return weighted(weighted(x))
