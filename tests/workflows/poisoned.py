"""A workflow whose answer says which process made it, and that crashes this process if its input asks for that.

The answer follows from the words alone, and no two requests have the same words: the answer to another request never passes for
the right one.
"""

import ctypes
import faulthandler
import os
from typing import Any, TypedDict

import numpy as np
import torch
from jaxtyping import Int64
from numpy.typing import NDArray
from torch import Tensor

import dyorc

HARMLESS, IN_NUMPY, IN_TORCH = 0, 1, 2
"""The first word of an input: which program segfaults."""
_PRIME = 1_000_003

Array = NDArray[Any]


class Signed(TypedDict):
    """The outputs of `sign`."""

    words: Int64[np.ndarray, "batch n"]
    pid: Int64[np.ndarray, " batch"]


class Answer(TypedDict):
    """`total` is `expected(words)`."""

    total: Int64[np.ndarray, ""]
    pid: Int64[np.ndarray, ""]


def made_words(poison: int, seed: int, num_words: int) -> Array:
    """Returns an input."""
    words = np.arange(num_words, dtype=np.int64) * (2 * seed + 1)
    words[0] = poison
    return words


def expected(words: Array) -> int:
    """Returns the answer to an input."""
    return int((words * _PRIME + np.arange(len(words))).sum())


def _segfault() -> None:
    faulthandler.disable()  # a storm has many crashes; nobody reads where each thread was
    ctypes.string_at(0)


@dyorc.program(max_batch_size=16)
def sign(words: Int64[np.ndarray, "batch n"]) -> Signed:
    """The first step, with NumPy."""
    if (words[:, 0] == IN_NUMPY).any():
        _segfault()
    return {"words": words * _PRIME + np.arange(words.shape[1]), "pid": np.full(len(words), os.getpid())}


@dyorc.program(max_batch_size=16)
def add_up(words: Int64[Tensor, "batch n"]) -> Int64[Tensor, " batch"]:
    """The second step, with torch. The first word is what `sign` has made of it."""
    if (words[:, 0] == IN_TORCH * _PRIME).any():
        _segfault()
    return torch.sum(words, dim=1)


@dyorc.workflow
async def signed(words: Int64[np.ndarray, " n"]) -> Answer:
    """Calls one program after the other."""
    found = sign(words)
    return {"total": add_up(found["words"]), "pid": found["pid"]}
