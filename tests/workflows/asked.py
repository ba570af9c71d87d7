"""What programs of other servers are tested against: a server of our own, asked by its tensors and by its JSON."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

import dyorc


@dataclass
class Reading:
    """What was read of a text."""

    words: list[str]
    num_letters: int


@dyorc.program(batched=False)
def count_letters(text: str, minimum: int = 0) -> Reading:
    if not text:
        raise ValueError("there is no text")
    words = [word for word in text.split() if len(word) >= minimum]
    return Reading(words, sum(map(len, words)))


@dyorc.workflow
async def read(text: str, minimum: int = 0) -> Reading:
    return count_letters(text, minimum)


@dyorc.program
def spread(x: Float[np.ndarray, "batch n"]) -> tuple[Float[np.ndarray, " batch"], Float[np.ndarray, "batch n"]]:
    return x.max(axis=1) - x.min(axis=1), np.sort(x, axis=1)
