"""What a signal handler raises leaves `dyorc.run` as it is, wherever it strikes."""

import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NoReturn

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.errors import DyOrcError, ProgramError

Row = Float[np.ndarray, " n"]
Rows = Float[np.ndarray, "batch n"]
X = np.ones(2, np.float32)


class TimeIsUp(KeyError):
    """A `KeyError`, which `dyorc.run` itself catches in places."""


def strike() -> None:
    """Has a signal handled on the main thread, as a timer would. There, the handler's exception comes out of this."""
    os.kill(os.getpid(), signal.SIGUSR1)


@dyorc.program
def inc(x: Rows) -> Rows:
    return x + 1


@dyorc.program
def struck(x: Rows) -> Rows:
    strike()
    return x


@dyorc.program
def hides_it(x: Rows) -> Rows:
    with contextlib.suppress(TimeIsUp):
        strike()
    return x


@dyorc.program
class StruckWhileLoading:
    def __init__(self) -> None:
        strike()

    def __call__(self, x: Rows) -> Rows:
        return x


loads = StruckWhileLoading()


@dyorc.program(batched=False)
async def struck_while_it_waits(x: Row) -> Row:
    strike()
    return x


@dyorc.program(batched=False)
async def yields(x: Row) -> AsyncIterator[Row]:
    yield x
    yield x


def _cost(x: Any) -> float:
    strike()
    return 1.0


@dyorc.program(cost=_cost, max_batch_cost=2.0)
def costs(x: Rows) -> Rows:
    return x


@dyorc.workflow
async def falls_back(x: Row) -> Row:
    try:
        return await struck(x)
    except ProgramError:
        return x


@dyorc.workflow
async def strikes_itself(x: Row) -> Row:
    strike()
    return inc(x)


@dyorc.workflow
async def hides_it_itself(x: Row) -> Row:
    with contextlib.suppress(TimeIsUp):
        strike()
    return inc(x)


@dyorc.workflow
async def asks(x: Row) -> Row:
    try:
        return inc(x) if await dyorc.when(inc(x), lambda value: strike() is None) else x
    except DyOrcError:
        return x


@dyorc.workflow
async def closes(x: Row) -> Row:
    try:
        return await raises(x)
    finally:
        strike()


@dyorc.program
def raises(x: Rows) -> Rows:
    raise ValueError("no")


@pytest.fixture
def handler() -> Iterator[Callable[..., NoReturn]]:
    """Yields a handler of SIGUSR1 that raises `TimeIsUp`."""

    def handle(number: int, frame: Any) -> NoReturn:
        raise TimeIsUp("0.2 s")

    before = signal.signal(signal.SIGUSR1, handle)
    yield handle
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize(
    "callee",
    [struck, hides_it, loads, struck_while_it_waits, costs, falls_back, strikes_itself, hides_it_itself, asks, closes],
    ids=lambda callee: callee.name,
)
def test_it_passes_as_it_is(callee: Any, handler: Callable[..., NoReturn]) -> None:
    for _ in range(2):
        with pytest.raises(TimeIsUp, match=r"0\.2 s"):
            dyorc.run(callee, X)
    assert signal.getsignal(signal.SIGUSR1) is handler
    assert dyorc.run(inc, X).tolist() == [2, 2]


def test_it_ends_a_stream(handler: Callable[..., NoReturn]) -> None:
    @dyorc.workflow
    async def doubtful(x: Row) -> AsyncIterator[Row]:
        yield x
        try:
            yield struck(x)
        except ProgramError:
            yield x

    parts = dyorc.run(doubtful, X)
    next(parts)
    assert signal.getsignal(signal.SIGUSR1) is handler  # between parts, the caller's code runs
    with pytest.raises(TimeIsUp):
        next(parts)
    assert list(parts) == []


def test_it_ends_a_stream_that_is_closed(handler: Callable[..., NoReturn]) -> None:
    @dyorc.workflow
    async def endless(x: Row) -> AsyncIterator[Row]:
        try:
            async for part in yields(x):
                yield part
        finally:
            strike()

    parts = dyorc.run(endless, X)
    next(parts)
    with pytest.raises(TimeIsUp):
        parts.close()
    assert signal.getsignal(signal.SIGUSR1) is handler


def test_a_handler_that_a_program_sets_is_the_programs_own(handler: Callable[..., NoReturn]) -> None:
    @dyorc.program
    def bounds_itself(x: Rows) -> Rows:
        def handle(number: int, frame: Any) -> NoReturn:
            raise TimeoutError

        before = signal.signal(signal.SIGUSR1, handle)
        try:
            strike()
        except TimeoutError:
            return x + 3
        finally:
            signal.signal(signal.SIGUSR1, before)
        return x

    assert dyorc.run(bounds_itself, X).tolist() == [4, 4]
    assert signal.getsignal(signal.SIGUSR1) is handler


def test_a_handler_that_raises_nothing_changes_nothing() -> None:
    numbers: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: numbers.append(number))
    try:
        assert dyorc.run(struck, X).tolist() == [1, 1]
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert numbers == [signal.SIGUSR1]
