"""A guard beside a generator: a message is continued only if the guard finds nothing harmful in it.

dyorc serve examples/guarded/workflow.py:guarded examples/guarded/workflow.py:guarded_story
"""

from collections.abc import AsyncIterator

import numpy as np
import torch
from guarded_nets import MIN_HARM, Generator, Guard, weights_of
from guarded_texts import REFUSAL
from jaxtyping import Float, UInt8
from torch import Tensor

import dyorc


@dyorc.program(max_batch_size=32)
class Guarding:
    """Scores how likely a message contains contact data or an order to the model."""

    def __init__(self) -> None:
        torch.set_num_threads(1)  # the nets are too small to be split over threads
        self.net = dyorc.load_module(Guard, weights_of("guard"))

    def __call__(self, text: UInt8[Tensor, "batch 64"]) -> Float[Tensor, " batch"]:
        return self.net(text)


@dyorc.program(max_batch_size=32)
class Generating:
    """Continues a message with the likeliest next 32 characters."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.net = dyorc.load_module(Generator, weights_of("generator"))

    def __call__(self, text: UInt8[Tensor, "batch 64"]) -> UInt8[Tensor, "batch 32"]:
        return self.net.continue_text(text)


guard = Guarding()
generate = Generating()


def is_harmless(score: float) -> bool:
    return score < MIN_HARM


@dyorc.workflow
async def guarded(text: UInt8[Tensor, "64"]) -> UInt8[Tensor, "32"]:
    if await dyorc.when(guard(text), is_harmless, likely=True):
        return generate(text)
    return np.frombuffer(REFUSAL, np.uint8)


@dyorc.workflow
async def guarded_story(text: UInt8[Tensor, "64"], num_pieces: int = 4) -> AsyncIterator[UInt8[Tensor, "32"]]:
    if not await dyorc.when(guard(text), is_harmless, likely=True):
        yield np.frombuffer(REFUSAL, np.uint8)
        return
    written = await text
    for _ in range(num_pieces):
        piece = generate(written)
        yield piece
        written = np.concatenate([written[32:], await piece])
