"""Programs that take as long as a test says."""

import time
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

import dyorc

POLL_S = 0.01


def _wait_for(file: Path) -> None:
    while not file.exists():
        time.sleep(POLL_S)


@dyorc.program(max_batch_size=1)
def gated_program(x: Float[np.ndarray, "batch 4"], folder: str) -> Float[np.ndarray, "batch 4"]:
    """Says in `folder` that it runs (`started-N` for x[0] = N), and goes on when a file `open` exists."""
    (Path(folder) / f"started-{int(x[0, 0])}").touch()
    _wait_for(Path(folder) / "open")
    return x + 1


@dyorc.workflow
async def gated(x: Float[np.ndarray, "4"], folder: str) -> Float[np.ndarray, "4"]:
    """Makes one call of `gated_program`."""
    return gated_program(x, folder)


@dyorc.program(max_batch_size=8, execution_timeout_s=1.5)
def hanging_program(x: Float[np.ndarray, "batch 4"], folder: str) -> Float[np.ndarray, "batch 4"]:
    """Hangs the first time it is called, until a file `open` is there."""
    try:
        (Path(folder) / "hung").touch(exist_ok=False)
    except FileExistsError:
        return x + 1
    _wait_for(Path(folder) / "open")
    return x + 1


@dyorc.workflow
async def hanging(x: Float[np.ndarray, "4"], folder: str) -> Float[np.ndarray, "4"]:
    """Makes one call of `hanging_program`."""
    return hanging_program(x, folder)


@dyorc.program(max_batch_size=8)
def resting_program(x: Float[np.ndarray, "batch 4"], rest_s: float) -> Float[np.ndarray, "batch 4"]:
    """Takes `rest_s` seconds."""
    time.sleep(rest_s)
    return x + 1


@dyorc.workflow
async def resting(x: Float[np.ndarray, "4"], rest_s: float) -> Float[np.ndarray, "4"]:
    """Makes one call of `resting_program`."""
    return resting_program(x, rest_s)


@dyorc.program(batched=False, max_queued_calls=4)
def narrow_program(x: Float[np.ndarray, "4"], folder: str) -> Float[np.ndarray, "4"]:
    """Lets four calls wait; goes on when a file `open` exists."""
    (Path(folder) / f"started-{int(x[0])}").touch()
    _wait_for(Path(folder) / "open")
    return x + 1


@dyorc.workflow
async def narrow(x: Float[np.ndarray, "4"], folder: str) -> Float[np.ndarray, "4"]:
    """Makes one call of `narrow_program`."""
    return narrow_program(x, folder)


@dyorc.program
class SlowToLoad:
    """Loads for longer than any test waits."""

    def __init__(self) -> None:
        time.sleep(600)

    def __call__(self, x: Int[np.ndarray, " batch"]) -> Int[np.ndarray, " batch"]:
        return x


slow_to_load = SlowToLoad()


@dyorc.workflow
async def never_ready(x: Int[np.ndarray, ""]) -> Int[np.ndarray, ""]:
    """Needs a program that is still loading."""
    return slow_to_load(x)
