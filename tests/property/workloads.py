"""Workflows for random tests, each beside a plain Python function that says what it has to return.

All numbers are small whole numbers, so that float32 is exact.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

import dyorc
from dyorc.errors import ProgramError

Vector = Float[np.ndarray, "2"]
Vectors = Float[np.ndarray, "batch 2"]
Numbers = list[float]


class Refused(Exception):
    """Says in a reference that `picky` raised, and nobody caught it."""


POISON = 13.0

# Programs


@dyorc.program(max_batch_size=3, execution_timeout_s=5.0)
def increment(x: Vectors) -> Vectors:
    return x + 1


@dyorc.program(max_batch_size=8, execution_timeout_s=5.0)
def double(x: Vectors) -> Vectors:
    return x * 2


@dyorc.program(max_batch_size=4, execution_timeout_s=5.0)
def add(x: Vectors, y: Vectors, sign: int = 1) -> Vectors:
    return x + sign * y


@dyorc.program(max_batch_size=4, execution_timeout_s=5.0)
def picky(x: Vectors) -> Vectors:
    """Raises for the whole batch if one input is poison."""
    if (x == POISON).any():
        raise ValueError("poison")
    return x


@dyorc.program(max_batch_size=4, execution_timeout_s=5.0, pure=False)
def send(x: Vectors) -> Vectors:
    """Counts as a program with an effect."""
    return x


PROGRAMS = (increment, double, add, picky, send)


def is_large(x: np.ndarray) -> bool:
    return bool(x.sum() > 30)


def remainder(x: np.ndarray) -> int:
    return int(x[0]) % 3


# Workflows


@dyorc.workflow
async def cascade(x: Vector) -> Vector:
    small = increment(x)
    if await dyorc.when(small, is_large):
        return small
    return double(x)


@dyorc.workflow
async def router(x: Vector) -> Vector:
    match await dyorc.choose(x, remainder):
        case 0:
            return increment(x)
        case 1:
            return add(x, [1, 2], sign=-1)
        case _:
            return picky(x)


@dyorc.workflow
async def loop(x: Vector) -> Vector:
    while not await dyorc.when(x, is_large):
        x = increment(double(x))
    return x


@dyorc.workflow
async def fan_out(x: Vector) -> Vector:
    total = x
    for part in (cascade(increment(x)), loop(x), add(x, x[::-1])):
        total = add(total, part)
    values = await dyorc.gather(total, cascade(x))
    return values[0] + values[1]


@dyorc.workflow
async def nested(x: Vector) -> Vector:
    y = fan_out(x)
    try:
        z = await picky(router(x))
    except ProgramError as error:
        if error.error_type != "ValueError":
            raise  # not poison: the world failed, which the reference does not model
        z = cascade(x)
    return add(y, z)


@dyorc.workflow
async def decide_on_poison(x: Vector) -> Vector:
    try:
        if await dyorc.when(picky(x), is_large):
            return increment(x)
    except ProgramError as error:
        if error.error_type != "ValueError":
            raise
        return double(double(x))
    return double(x)


@dyorc.workflow
async def wasteful(x: Vector) -> Vector:
    unneeded = [double(double(x)), loop(x), picky(increment(x))]
    quick = await increment(x)
    return quick if quick[0] > 5 else add(unneeded[0], quick)


@dyorc.workflow
async def send_it(x: Vector, y: Vector) -> Vector:
    send(add(x, picky(y)))
    return y


@dyorc.workflow
async def effectful(x: Vector) -> Vector:
    y = await send_it(double(increment(x)), x)
    return increment(y)


@dyorc.workflow
async def slow_guard(x: Vector) -> Vector:
    """Decides on slow values, one decision after another, and sends what both find good."""
    verdict = increment(double(x))
    if await dyorc.when(verdict, is_large):
        y = increment(x)
        if await dyorc.when(picky(y), is_large, likely=True):
            send(y)
            return double(y)
        return y
    match await dyorc.choose(double(verdict), remainder):
        case 0:
            return cascade(verdict)
        case 1:
            return add(x, verdict)
        case _:
            return picky(double(x))


# What they have to return


def _cascade(x: Numbers) -> Numbers:
    small = [a + 1 for a in x]
    return small if sum(small) > 30 else [2 * a for a in x]


def _picky(x: Numbers) -> Numbers:
    if POISON in x:
        raise Refused
    return x


def _router(x: Numbers) -> Numbers:
    match int(x[0]) % 3:
        case 0:
            return [a + 1 for a in x]
        case 1:
            return [x[0] - 1, x[1] - 2]
        case _:
            return _picky(x)


def _loop(x: Numbers) -> Numbers:
    while sum(x) <= 30:
        x = [2 * a + 1 for a in x]
    return x


def _fan_out(x: Numbers) -> Numbers:
    parts = (x, _cascade([a + 1 for a in x]), _loop(x), [x[0] + x[1]] * 2, _cascade(x))
    return [sum(column) for column in zip(*parts, strict=True)]


def _nested(x: Numbers) -> Numbers:
    try:
        z = _picky(_router(x))
    except Refused:
        z = _cascade(x)
    return [a + b for a, b in zip(_fan_out(x), z, strict=True)]


def _decide_on_poison(x: Numbers) -> Numbers:
    if POISON in x:
        return [4 * a for a in x]
    return [a + 1 for a in x] if sum(x) > 30 else [2 * a for a in x]


def _wasteful(x: Numbers) -> Numbers:
    quick = [a + 1 for a in x]
    return quick if quick[0] > 5 else [4 * a + b for a, b in zip(x, quick, strict=True)]


def _effectful(x: Numbers) -> Numbers:
    return [a + 1 for a in x]


def _slow_guard(x: Numbers) -> Numbers:
    verdict = [2 * a + 1 for a in x]
    if sum(verdict) > 30:
        y = _picky([a + 1 for a in x])
        return [2 * a for a in y] if sum(y) > 30 else y
    match int(2 * verdict[0]) % 3:
        case 0:
            return _cascade(verdict)
        case 1:
            return [a + b for a, b in zip(x, verdict, strict=True)]
        case _:
            return _picky([2 * a for a in x])


REFERENCES: dict[dyorc.Workflow, Callable[[Numbers], Numbers]] = {
    cascade: _cascade,
    router: _router,
    loop: _loop,
    fan_out: _fan_out,
    nested: _nested,
    decide_on_poison: _decide_on_poison,
    wasteful: _wasteful,
    effectful: _effectful,
    slow_guard: _slow_guard,
}

EFFECTFUL = (effectful, slow_guard)
"""Those that call `send`, once at most."""
