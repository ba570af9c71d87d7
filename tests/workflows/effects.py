"""Programs that leave a trace each time they run."""

import os
import time
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

import dyorc
from tests.workflows.slow import gated_program


def _note(folder: str, lines: list[int]) -> None:
    """Writes once, so that lines of several processes do not mix."""
    descriptor = os.open(Path(folder) / "runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, "".join(f"{line}\n" for line in lines).encode())
    finally:
        os.close(descriptor)


@dyorc.program(max_batch_size=8, pure=False, idempotent=True)
def noted_program(x: Int[np.ndarray, " batch"], folder: str, rest_s: float = 0.0) -> Int[np.ndarray, " batch"]:
    """Notes each number in a file `runs`, rests, and returns its square plus one."""
    _note(folder, x.tolist())
    time.sleep(rest_s)
    return x * x + 1


@dyorc.workflow
async def noted(x: Int[np.ndarray, ""], folder: str, rest_s: float = 0.0) -> Int[np.ndarray, ""]:
    """Makes one call of `noted_program`, which may be repeated."""
    return noted_program(x, folder, rest_s)


@dyorc.program(max_batch_size=1, pure=False)
def once_program(x: Float[np.ndarray, "batch 4"], folder: str) -> Float[np.ndarray, "batch 4"]:
    """Says that it runs, and goes on when a file `open` exists, as `gated_program` does. It must not be repeated."""
    _note(folder, [int(x[0, 0])])
    while not (Path(folder) / "open").exists():
        time.sleep(0.01)
    return x + 1


@dyorc.workflow
async def once(x: Float[np.ndarray, "4"], folder: str) -> Float[np.ndarray, "4"]:
    """Makes one call of `once_program`."""
    return once_program(x, folder)


@dyorc.workflow
async def once_opened(x: Float[np.ndarray, "4"], folder: str) -> Float[np.ndarray, "4"]:
    """Calls `once_program` when a file `open` exists."""
    return once_program(gated_program(x, folder), folder)


@dyorc.program(max_batch_size=1, pure=False)
def refused_program(x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
    """Stands for an effect that fails."""
    raise OSError("the other side refuses")


@dyorc.program
def doubled_program(x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
    return x * 2


@dyorc.workflow
async def aside(x: Float[np.ndarray, "4"], folder: str) -> Float[np.ndarray, "4"]:
    """Calls `once_program`, and answers without waiting for it."""
    once_program(x, folder)
    return doubled_program(x)


@dyorc.workflow
async def refused_aside(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """Calls `refused_program`, and answers without waiting for it."""
    refused_program(x)
    return doubled_program(x)


@dyorc.workflow(wait_for_effects=True)
async def refused_before(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """Calls `refused_program`, and answers when it has ended."""
    refused_program(x)
    return doubled_program(x)
