"""What simulated programs compute: numbers in [0, 1) that depend only on their inputs.

The output of a call is a hash of its program's name and its input values. A request brings one random number, and every value
of its calls follows from that. So outcomes depend neither on the policy nor on time, and can be known in advance
(`value_of`). A number carries 53 random bits, so it serves as outcome and as state alike.

Source: the finalizer of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
"""

from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dyorc.authoring.program import Program

Value: TypeAlias = float | NDArray[np.float64]

_MASK = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_SCALE = 2.0**53


def value_of(program: Program, operands: Sequence[Value]) -> Value:
    """Returns the output of a call of `program` on `operands`, equal to what the program itself computes with `draw`.

    Args:
        operands: Numbers in [0, 2048), or arrays of them, in the order of the program's inputs.

    Shapes:
        A number if the program's output for one item has rank 0, else an array [size].
    """
    state = _salt(program.name)
    for operand in operands:
        if isinstance(operand, np.ndarray):
            for item in operand.ravel().tolist():
                state = _mix(state ^ int(item * _SCALE))
        else:
            state = _mix(state ^ int(operand * _SCALE))
    shape = program.signature.outputs.tensors[0].fixed_shape
    if not shape:
        return (state >> 11) / _SCALE
    return np.array([(_mix(state + at * _GAMMA & _MASK) >> 11) / _SCALE for at in range(shape[0])])


def draw(name: str, *columns: NDArray[np.float64], size: int | None = None) -> NDArray[np.float64]:
    """Returns the outputs of a batch of calls of the program called `name`: what a simulated program does when it really runs.

    Shapes:
        columns: [batch] or [batch, any]; result: [batch], or [batch, size] if a size is given.
    """
    state = np.full(len(columns[0]), _salt(name), np.uint64)
    for column in columns:
        bits = (column.reshape(len(column), -1) * _SCALE).astype(np.uint64)
        for at in range(bits.shape[1]):
            state = _mix_all(state ^ bits[:, at])
    if size is not None:
        steps = np.arange(size, dtype=np.uint64) * np.uint64(_GAMMA)
        state = _mix_all(state[:, None] + steps[None, :])
    return (state >> np.uint64(11)) / _SCALE


def draw_parts(name: str, number: float, max_parts: int) -> list[float]:
    """Returns what a call of the program called `name` yields: from 1 to `max_parts` numbers."""
    state = _mix(_salt(name) ^ int(number * _SCALE))
    return [(_mix(state + at * _GAMMA & _MASK) >> 11) / _SCALE for at in range(1, 2 + state % max_parts)]


def request_value(seed: int, request_id: int) -> float:
    """Returns the number that a request brings."""
    return (_mix(_mix(seed & _MASK) ^ request_id) >> 11) / _SCALE


@cache
def _salt(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def _mix(state: int) -> int:
    state = (state + _GAMMA) & _MASK
    state = ((state ^ (state >> 30)) * _FIRST) & _MASK
    state = ((state ^ (state >> 27)) * _SECOND) & _MASK
    return state ^ (state >> 31)


def _mix_all(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    state = state + np.uint64(_GAMMA)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(_FIRST)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(_SECOND)
    return state ^ (state >> np.uint64(31))
