"""Programs and workflows that go wrong, each in one way."""

import asyncio
import ctypes
import itertools
import os
import resource
import signal
from typing import Any

import numpy as np
from jaxtyping import Float

import dyorc

batches: list[int] = []
"""Sizes of the batches that `picky` was given, in order; for tests that run it in their own process."""

_counter = itertools.count()


@dyorc.program(max_batch_size=32)
def picky(x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
    """Fails as a whole if any of its calls is negative."""
    batches.append(len(x))
    if (x < 0).any():
        raise ValueError(f"negative number {x.min()} in a batch")
    return x + 1


@dyorc.workflow
async def pick(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """Makes one call of `picky`."""
    return picky(x)


@dyorc.program
class Weightless:
    """Cannot load its model."""

    def __init__(self) -> None:
        raise FileNotFoundError("no weights at model.safetensors")

    def __call__(self, x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
        return x


weightless = Weightless()


@dyorc.workflow
async def needs_weights(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """Calls a program that cannot be loaded."""
    return weightless(x)


@dyorc.program
def odd_program(x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
    """Raises an error whose text UTF-8 cannot carry, as file names on Linux may have it."""
    raise FileNotFoundError("weights-\udcff.bin")


@dyorc.workflow
async def odd(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """Makes one call of `odd_program`."""
    return odd_program(x)


class Mute(Exception):
    """An exception that raises when it is asked for its text."""

    def __str__(self) -> str:
        raise KeyboardInterrupt("no comment")


RAISED: dict[str, BaseException] = {
    "Ctrl-C": KeyboardInterrupt("pressed by nobody"),
    "cancelled": asyncio.CancelledError("by its own hand"),
    "closed": GeneratorExit("left early"),
    "exit": SystemExit("going home"),
    "stop": StopIteration("at the end"),
    "group": BaseExceptionGroup("two things", [ValueError("the first"), KeyboardInterrupt("the second")]),
    "mute": Mute(),
    "long": ValueError("long " * 2**20),
}
"""Exceptions that programs do not usually raise."""

TOLD = {
    "Ctrl-C": "KeyboardInterrupt: pressed by nobody",
    "cancelled": "CancelledError: by its own hand",
    "closed": "GeneratorExit: left early",
    "exit": "SystemExit: going home",
    "stop": "StopIteration: at the end",
    "group": "BaseExceptionGroup: two things (2 sub-exceptions): ValueError: the first; KeyboardInterrupt: the second",
    "mute": "Mute: (it has no text: __str__ raised KeyboardInterrupt)",
    "long": "... (cut: 8192 of 5242880 characters)",
}
"""Part of the text of the resulting error."""


@dyorc.program
def raising_program(x: Float[np.ndarray, "batch 4"], what: str) -> Float[np.ndarray, "batch 4"]:
    """Raises the exception that it is told to raise, or adds one if it is told none."""
    if what:
        raise RAISED[what]
    return x + 1


@dyorc.workflow
async def raising(x: Float[np.ndarray, "4"], what: str = "") -> Float[np.ndarray, "4"]:
    """Makes one call of `raising_program`."""
    return raising_program(x, what)


@dyorc.program
class NeverLoads:
    """Raises an interrupt while it loads."""

    def __init__(self) -> None:
        raise KeyboardInterrupt("while it was loading")

    def __call__(self, x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
        return x


never_loads = NeverLoads()


@dyorc.workflow
async def interrupted(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """Calls a program that raises while it is loaded."""
    return never_loads(x)


@dyorc.program
def plus_one(x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
    """Adds one: deployed, and correct."""
    return x + 1


@dyorc.workflow
async def sleeper(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """Awaits something foreign."""
    await asyncio.sleep(0.01)
    return plus_one(x)


@dyorc.workflow
async def fickle(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """Takes another course every time it is run."""
    y = plus_one(x)
    if next(_counter) % 2:
        return plus_one(y)
    return y


def _hidden() -> Any:
    """Returns a program in a way that reading the workflow's code cannot see."""
    return getattr(__import__(__name__, fromlist=["_"]), "un" + "deployed")


@dyorc.program
def undeployed(x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
    """Does nothing; no workflow's code reaches it."""
    return x


@dyorc.workflow
async def reaches_too_far(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """Calls a program that nobody deployed."""
    return _hidden()(plus_one(x))


@dyorc.workflow
async def divides_by_zero(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """Raises in its own code."""
    return plus_one(x) if 1 // 0 else x


@dyorc.program(max_batch_size=8)
def deadly_program(x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
    """Takes its process down if any of its calls is negative."""
    if (x < 0).any():
        os.kill(os.getpid(), signal.SIGKILL)
    return x + 1


@dyorc.workflow
async def deadly(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """Makes one call of `deadly_program`."""
    return deadly_program(x)


def _segfault() -> None:
    """Reads address 0. Leaves no core file behind."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(0)


@dyorc.program(max_batch_size=8)
def crashing_program(x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
    """Segfaults if any of its calls is negative."""
    if (x < 0).any():
        _segfault()
    return x + 1


@dyorc.workflow
async def crashing(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """Makes one call of `crashing_program`."""
    return crashing_program(x)


@dyorc.workflow
async def crashing_last(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """Makes three calls of `crashing_program`, one after the other; only the last segfaults, if the input is above 100."""
    first = await crashing_program(x)
    second = await crashing_program(first)
    return crashing_program(np.where(second > 102, -second, second))


crashing_pair_program = crashing_program.with_options(name="crashing_pair_program", num_replicas=2)


@dyorc.workflow
async def crashing_pair(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """Makes one call of `crashing_pair_program`."""
    return crashing_pair_program(x)


@dyorc.program(max_batch_size=8)
def exiting_program(x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
    """Ends its process with exit code 3 if any of its calls is negative."""
    if (x < 0).any():
        os._exit(3)
    return x + 1


@dyorc.workflow
async def exiting(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """Makes one call of `exiting_program`."""
    return exiting_program(x)


@dyorc.program(max_batch_size=8)
def standing_program(x: Float[np.ndarray, "batch 4"]) -> Float[np.ndarray, "batch 4"]:
    """Keeps the interpreter for ten minutes if any of its calls is negative: nothing else runs in its process."""
    if (x < 0).any():
        ctypes.PyDLL(None).sleep(600)
    return x + 1


@dyorc.workflow
async def standing(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """One call of `standing_program`."""
    return standing_program(x)
