"""The models that the protocol is tried on: every type, tensors of any size, a decision, and failures on purpose."""

import time
from typing import TypedDict

import numpy as np
from jaxtyping import BFloat16, Bool, Float, Float16, Float64, Int, Int8, Int16, Int32, UInt8, UInt16, UInt32, UInt64

import dyorc


class Mirrored(TypedDict):
    """What `mirror` returns."""

    raised: Float[np.ndarray, " n"]
    reversed: dyorc.Bytes[np.ndarray, " k"]


@dyorc.program(batched=False)
def raise_all(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Adds one to each number."""
    return x + 1


@dyorc.program(batched=False)
def reverse_all(texts: dyorc.Bytes[np.ndarray, " k"]) -> dyorc.Bytes[np.ndarray, " k"]:
    """Reverses each text."""
    found = np.empty(len(texts), dtype=object)
    found[:] = [bytes(text)[::-1] for text in texts]
    return found


@dyorc.workflow
async def mirror(x: Float[np.ndarray, " n"], texts: dyorc.Bytes[np.ndarray, " k"]) -> Mirrored:
    """Runs both programs side by side."""
    return {"raised": raise_all(x), "reversed": reverse_all(texts)}


class Turned(TypedDict):
    """What `every_type` returns: each input, with its last axis reversed."""

    turned_bool: Bool[np.ndarray, "a1 b1"]
    turned_uint8: UInt8[np.ndarray, "a2 b2"]
    turned_uint16: UInt16[np.ndarray, "a3 b3"]
    turned_uint32: UInt32[np.ndarray, "a4 b4"]
    turned_uint64: UInt64[np.ndarray, "a5 b5"]
    turned_int8: Int8[np.ndarray, "a6 b6"]
    turned_int16: Int16[np.ndarray, "a7 b7"]
    turned_int32: Int32[np.ndarray, "a8 b8"]
    turned_int64: Int[np.ndarray, "a9 b9"]
    turned_fp16: Float16[np.ndarray, "a10 b10"]
    turned_bf16: BFloat16[np.ndarray, "a11 b11"]
    turned_fp32: Float[np.ndarray, "a12 b12"]
    turned_fp64: Float64[np.ndarray, "a13 b13"]
    turned_bytes: dyorc.Bytes[np.ndarray, "a14 b14"]


@dyorc.program(batched=False)
def every_type(
    bool_: Bool[np.ndarray, "a1 b1"],
    uint8: UInt8[np.ndarray, "a2 b2"],
    uint16: UInt16[np.ndarray, "a3 b3"],
    uint32: UInt32[np.ndarray, "a4 b4"],
    uint64: UInt64[np.ndarray, "a5 b5"],
    int8: Int8[np.ndarray, "a6 b6"],
    int16: Int16[np.ndarray, "a7 b7"],
    int32: Int32[np.ndarray, "a8 b8"],
    int64: Int[np.ndarray, "a9 b9"],
    fp16: Float16[np.ndarray, "a10 b10"],
    bf16: BFloat16[np.ndarray, "a11 b11"],
    fp32: Float[np.ndarray, "a12 b12"],
    fp64: Float64[np.ndarray, "a13 b13"],
    bytes_: dyorc.Bytes[np.ndarray, "a14 b14"],
) -> Turned:
    """Mirrors a tensor of every type in one request."""
    given = (bool_, uint8, uint16, uint32, uint64, int8, int16, int32, int64, fp16, bf16, fp32, fp64, bytes_)
    turned = [np.ascontiguousarray(array[:, ::-1]) for array in given]
    return dict(zip(Turned.__annotations__, turned, strict=True))  # pyright: ignore[reportReturnType]


@dyorc.program(batched=False)
def behave_program(x: Float[np.ndarray, " n"], rest_s: float = 0.0, fails: bool = False) -> Float[np.ndarray, " n"]:
    """Takes `rest_s` seconds, or fails."""
    if fails:
        raise ValueError("asked to fail")
    time.sleep(rest_s)
    return x


@dyorc.workflow
async def behave(x: Float[np.ndarray, " n"], rest_s: float = 0.0, fails: bool = False) -> Float[np.ndarray, " n"]:
    """Makes one call of `behave_program`, as the request's parameters say."""
    return behave_program(x, rest_s, fails)


@dyorc.program(batched=False)
def reverse_text(text: dyorc.Bytes[np.ndarray, ""]) -> dyorc.Bytes[np.ndarray, ""]:
    """Reverses one text."""
    return np.array(bytes(text.item())[::-1], dtype=object)


@dyorc.program
class Broken:
    """A program that cannot be loaded, so it is never ready."""

    def __init__(self) -> None:
        raise FileNotFoundError("no weights")

    def __call__(self, x: Float[np.ndarray, "batch n"]) -> Float[np.ndarray, "batch n"]:
        return x


broken = Broken()
