"""The workflows of the simulation, and what plain Python says of them."""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Int

import dyorc

Number = Int[np.ndarray, ""]
Numbers = Int[np.ndarray, " batch"]


@dyorc.program(
    max_batch_size=8,
    autoscaling_config={
        "min_replicas": 1,
        "max_replicas": 3,
        "target_ongoing_requests": 1,
        "downscale_delay_s": 1.0,
        "cold_delay_s": 2.0,
    },
)
def squares(x: Numbers) -> Numbers:
    """Squares, in a few milliseconds."""
    time.sleep(0.002 + 0.001 * len(x))
    return x * x


@dyorc.program(max_batch_size=4, num_replicas=2)
class Halves:
    """Loads for a while, and halves slowly."""

    def __init__(self) -> None:
        time.sleep(0.3)

    def __call__(self, x: Numbers) -> Numbers:
        time.sleep(0.02)
        return x // 2


halves = Halves()


@dyorc.program(max_batch_size=4, pure=False)
def write_down(x: Numbers) -> Numbers:
    """Has an effect."""
    time.sleep(0.001)
    outside: Any = sys.modules["tests.whole_server.outside"]  # not imported: a version from the store would get a copy of it
    outside.happen(x.tolist())
    time.sleep(0.004)
    return x + 1


@dyorc.workflow
async def decided(x: Number) -> Number:
    """Takes one branch or the other."""
    half = halves(x)
    if await dyorc.when(half, lambda value: int(value) % 3 != 0, likely=True):
        return squares(half)
    return halves(squares(x))


@dyorc.workflow
async def fanned(x: Number) -> Number:
    """Makes calls side by side."""
    parts = [squares(np.asarray(int(await x) + step)) for step in range(4)]
    return np.asarray(sum([int(await part) for part in parts]))


@dyorc.workflow
async def looped(x: Number) -> Number:
    """Halves until little is left."""
    while await dyorc.when(x, lambda value: int(value) > 20):
        x = halves(x)
    return squares(x)


@dyorc.workflow
async def noted(x: Number) -> Number:
    """Has an effect, after a call that may be repeated."""
    await squares(x)
    return write_down(x)


@dyorc.workflow
async def left(x: Number) -> Number:
    """Has an effect that begins after the answer, mostly."""
    write_down(halves(np.asarray(2 * int(await x))))
    return squares(x)


@dyorc.program(max_batch_size=4, num_replicas=2)
def doubles(x: Int[np.ndarray, "batch n"]) -> Int[np.ndarray, "batch n"]:
    """Doubles what is too large for a message."""
    time.sleep(0.003)
    return x * 2


@dyorc.workflow
async def doubled(x: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Makes two calls, whose tensors lie in arenas."""
    return doubles(doubles(x))


@dyorc.program(in_process=True, max_batch_size=4)
def stamps(x: Numbers) -> Numbers:
    """Says which release answers: the first one."""
    time.sleep(0.003)
    return x * 1000


@dyorc.workflow
async def stamped(x: Number) -> Number:
    """Is deployed again and again."""
    return stamps(x)


@dyorc.program(in_process=True, max_batch_size=4)
def negates(x: Numbers) -> Numbers:
    """Is all that the second group has."""
    time.sleep(0.003)
    return -x


@dyorc.workflow
async def negated(x: Number) -> Number:
    """Makes two calls there."""
    return negates(np.asarray(int(await negates(x)) + 1))


ALL = (decided, fanned, looped, noted, left, doubled, stamped)
TARGETS = tuple(f"tests.whole_server.served:{workflow.name}" for workflow in ALL)
SECOND_TARGETS = ("tests.whole_server.served:negated",)


def _looped(x: int) -> int:
    while x > 20:
        x //= 2
    return x * x


PLAIN: dict[str, Callable[[int], int]] = {
    "decided": lambda x: (x // 2) ** 2 if (x // 2) % 3 else x * x // 2,
    "fanned": lambda x: sum((x + step) ** 2 for step in range(4)),
    "looped": _looped,
    "noted": lambda x: x + 1,
    "left": lambda x: x * x,
    "doubled": lambda x: 4 * x,
}
"""What each workflow of the first group answers."""
SECOND_PLAIN: dict[str, Callable[[int], int]] = {"negated": lambda x: x - 1}
"""What those of the second group answer."""

WITH_EFFECTS = ("noted", "left")
"""The workflows that write their input down."""

_NUM_ELEMENTS = 100


def input_of(model: str, value: int) -> np.ndarray:
    """Returns the input of a request for a value."""
    return np.full(_NUM_ELEMENTS, value) if model == "doubled" else np.asarray(value)


def value_of(answer: np.ndarray) -> int:
    """Returns the value that an answer stands for; -1 if its elements differ."""
    return int(answer.flat[0]) if (answer == answer.flat[0]).all() else -1
