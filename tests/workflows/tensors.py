"""Every kind of tensor and parameter that the protocol can carry."""

from typing import Annotated, TypedDict

import numpy as np
from jaxtyping import BFloat16, Bool, Float, Float16, Int, UInt8, UInt64

import dyorc


class Echo(TypedDict):
    """The outputs of `echo`: its inputs, changed in a way that only their true values explain."""

    negated: Bool[np.ndarray, " n"]
    halved: Float16[np.ndarray, " n"]
    doubled: BFloat16[np.ndarray, " n"]
    reversed: dyorc.Bytes[np.ndarray, " k"]
    transposed: UInt8[np.ndarray, "w h"]


@dyorc.program(batched=False)
def echo_program(
    flags: Bool[np.ndarray, " n"],
    halves: Float16[np.ndarray, " n"],
    brains: BFloat16[np.ndarray, " n"],
    texts: dyorc.Bytes[np.ndarray, " k"],
    image: UInt8[np.ndarray, "h w"],
) -> Echo:
    """Takes one call at a time, so that shapes may differ."""
    reversed_texts = np.empty(len(texts), dtype=object)
    reversed_texts[:] = [bytes(text)[::-1] for text in texts]
    return {
        "negated": ~flags,
        "halved": halves / np.float16(2),
        "doubled": brains + brains,
        "reversed": reversed_texts,
        "transposed": np.ascontiguousarray(image.T),
    }


@dyorc.workflow
async def echo(
    flags: Bool[np.ndarray, " n"],
    halves: Float16[np.ndarray, " n"],
    brains: BFloat16[np.ndarray, " n"],
    texts: dyorc.Bytes[np.ndarray, " k"],
    image: UInt8[np.ndarray, "h w"],
) -> Echo:
    """Sends its inputs through a program and back."""
    found = echo_program(flags, halves, brains, texts, image)
    return {name: found[name] for name in ("negated", "halved", "doubled", "reversed", "transposed")}  # pyright: ignore


@dyorc.program(max_batch_size=8)
def affine_program(
    x: Annotated[Float[np.ndarray, "batch 4"], dyorc.Finite],
    index: Int[np.ndarray, "batch 2"],
    factor: float = 1.0,
) -> Float[np.ndarray, "batch 2"]:
    """Picks two entries and scales them."""
    return np.take_along_axis(x, index, axis=1) * np.float32(factor)


@dyorc.workflow
async def affine(
    x: Annotated[Float[np.ndarray, "4"], dyorc.Finite], index: Int[np.ndarray, "2"], factor: float = 1.0
) -> Float[np.ndarray, "2"]:
    """Runs `affine_program`: the model on which bad inputs are tried."""
    return affine_program(x, index, factor)


@dyorc.program
def shift_program(x: Float[np.ndarray, "batch 4"], by: int, label: str = "") -> Float[np.ndarray, "batch 4"]:
    """Adds a whole number."""
    return x + by


@dyorc.workflow
async def shift_far(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """Passes a number that no message can carry."""
    return shift_program(x, 2**70)


@dyorc.workflow
async def shift_strangely(x: Float[np.ndarray, "4"]) -> Float[np.ndarray, "4"]:
    """Passes a text that no message can carry."""
    return shift_program(x, 1, "\ud800")


@dyorc.workflow
async def shift(x: Float[np.ndarray, "4"], by: int, label: str = "") -> Float[np.ndarray, "4"]:
    """Makes one call of `shift_program`."""
    return shift_program(x, by, label)


@dyorc.program(batched=False)
def brighten(image: UInt8[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "height width 3"]:
    """Brightens images."""
    return np.minimum(image.astype(np.int64) + 10, 255).astype(np.uint8)


@dyorc.workflow
async def brighter(image: UInt8[np.ndarray, "height width 3"]) -> UInt8[np.ndarray, "height width 3"]:
    """Returns a brighter image."""
    return brighten(image)


@dyorc.program
def next_number(x: UInt64[np.ndarray, "batch n"]) -> UInt64[np.ndarray, "batch n"]:
    """Adds one, wrapping around."""
    return x + np.uint64(1)


@dyorc.program(max_batch_size=1)
class ReusedBuffer:
    """Returns the same memory for every batch, as preallocated outputs do."""

    def __init__(self) -> None:
        self.buffer = np.zeros((1, 40_000), np.float32)

    def __call__(self, x: Float[np.ndarray, "batch 40000"]) -> Float[np.ndarray, "batch 40000"]:
        np.add(x, 1, out=self.buffer)
        return self.buffer


reused_buffer = ReusedBuffer()
