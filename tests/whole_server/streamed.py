"""Workflows that answer in parts, and what plain Python says of them."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import numpy as np
from jaxtyping import Int

import dyorc
from tests.whole_server.served import Number, Numbers

_NUM_ELEMENTS = 100
"""Of a part: too many for a message, so parts lie in arenas."""
_NUM_TURNS = 4
_STEP_S, _LONG_STEP_S = 0.02, 0.4
"""Every third stream is a long one, so that servers come and go in the middle."""

Row = Int[np.ndarray, "n"]


@dyorc.program(batched=False)
async def counted_from(x: Row) -> AsyncIterator[Row]:
    """Counts up from a number, slowly."""
    for step in range(2 + int(x[0]) % 4):
        await asyncio.sleep(_STEP_S if int(x[0]) % 3 else _LONG_STEP_S)
        yield x + step


@dyorc.program(max_batch_size=4)
def tripled(x: Int[np.ndarray, "batch n"]) -> Int[np.ndarray, "batch n"]:
    """Triples."""
    time.sleep(0.003)
    return x * 3


@dyorc.workflow
async def counted(x: Row) -> AsyncIterator[Row]:
    """Triples what another program counts."""
    async for part in counted_from(x):
        yield tripled(part)


Heard = dyorc.Resident[list[int]]


def _answer_to(heard: list[int]) -> int:
    return sum((place + 1) * value for place, value in enumerate(heard)) % 1009


@dyorc.program(group="chat", max_batch_size=4)
def begin_chat(x: Numbers) -> tuple[Numbers, Heard]:
    """Hears the first number."""
    time.sleep(0.004)
    states = [[value] for value in x.tolist()]
    return np.asarray([_answer_to(heard) for heard in states]), states


@dyorc.program(group="chat", max_batch_size=4)
class GoOn:
    """Hears one more number."""

    def __call__(self, x: Numbers, heard: Heard) -> tuple[Numbers, Heard]:
        time.sleep(0.004)
        states = [[*each, value] for each, value in zip(heard, x.tolist(), strict=True)]
        return np.asarray([_answer_to(each) for each in states]), states


go_on = GoOn()


@dyorc.workflow
async def chatted(x: Number) -> AsyncIterator[Number]:
    """Answers, and hears each of its answers."""
    answer, heard = begin_chat(x)
    for _ in range(_NUM_TURNS):
        yield answer
        answer, heard = go_on(answer, heard)
    yield answer


def _chatted(x: int) -> list[int]:
    heard = [x]
    for _ in range(_NUM_TURNS):
        heard.append(_answer_to(heard))
    return [_answer_to(heard[: number + 1]) for number in range(len(heard))]


ALL = (counted, chatted)
TARGETS = tuple(f"{__name__}:{workflow.name}" for workflow in ALL)
PLAIN: dict[str, Callable[[int], list[int]]] = {
    "counted": lambda x: [3 * (x + step) for step in range(2 + x % 4)],
    "chatted": _chatted,
}
"""All parts of each workflow."""


def input_of(model: str, value: int) -> np.ndarray:
    """Returns the input of a request for a value."""
    return np.full(_NUM_ELEMENTS, value) if model == "counted" else np.asarray(value)
