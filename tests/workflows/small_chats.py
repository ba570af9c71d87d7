"""A chat whose model is a counter with 10 kB of memory: what is left of many."""

from collections.abc import AsyncIterator

import numpy as np
from jaxtyping import Int

import dyorc

_NUM_WORDS = 1250


@dyorc.program(group="small")
def begin_small(number: Int[np.ndarray, " batch"]) -> dyorc.Resident[np.ndarray]:
    """Makes memories of 10 kB."""
    return [np.full(_NUM_WORDS, each) for each in number]


@dyorc.program(group="small")
def go_on_small(memory: dyorc.Resident[np.ndarray]) -> tuple[Int[np.ndarray, " batch"], dyorc.Resident[np.ndarray]]:
    """Returns what each memory says, and the memory after it."""
    return np.array([each[-1] for each in memory]), [each + 1 for each in memory]


@dyorc.workflow
async def small_chat(number: Int[np.ndarray, ""], num_tokens: int) -> AsyncIterator[Int[np.ndarray, ""]]:
    """Says the numbers from one on."""
    memory = begin_small(number)
    for _ in range(num_tokens):
        token, memory = go_on_small(memory)
        yield token
