"""A program that notes its runs and waits for a gate, and one that reads what it returned."""

import os
import time
from pathlib import Path

import numpy as np
from jaxtyping import Float

import dyorc


@dyorc.program(max_batch_size=1)
def noted(x: Float[np.ndarray, "batch 65536"], folder: str) -> Float[np.ndarray, "batch 65536"]:
    """Notes in the file `runs` that it runs, and goes on when a file `open` exists."""
    with Path(folder, "runs").open("a") as runs:
        runs.write(f"{os.getpid()}\n")
    while not Path(folder, "open").exists():
        time.sleep(0.01)
    return x + 1


@dyorc.program
def total(x: Float[np.ndarray, "batch 65536"]) -> Float[np.ndarray, " batch"]:
    return x.sum(1)


@dyorc.workflow
async def sums(x: Float[np.ndarray, "65536"], folder: str) -> Float[np.ndarray, ""]:
    """Makes a call of each."""
    return total(noted(x, folder))
