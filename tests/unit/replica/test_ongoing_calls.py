"""Programs that wait and programs that yield: parts, streams, cancelling, and code that misbehaves."""

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float, Int
from torch import Tensor

import dyorc
from dyorc.authoring.program import Program
from dyorc.replica.ongoing_calls import load_on
from dyorc.replica.program_loop import ProgramLoop
from tests.unit.replica.ongoing import TIMEOUT_S, hosted

Number = Int[np.ndarray, ""]


def number(value: int) -> Any:
    return np.array(value, np.int64)


# Programs that wait


def test_calls_of_a_program_that_waits_run_side_by_side() -> None:
    @dyorc.program(batched=False)
    class Meet:
        """Each call ends only when all three are there."""

        def __init__(self) -> None:
            self.barrier = asyncio.Barrier(3)

        async def __call__(self, x: Number) -> Number:
            return x + await self.barrier.wait() * 0

    with hosted(Meet()) as meet:
        started = [meet.start(number(at))[1] for at in range(3)]
        assert [each.value for each in started] == [0, 1, 2]


def test_the_constructor_of_a_program_that_waits_may_start_tasks() -> None:
    @dyorc.program(batched=False)
    class Engine:
        def __init__(self) -> None:
            self.queue: asyncio.Queue[tuple[int, asyncio.Future[int]]] = asyncio.Queue()
            self.task = asyncio.get_running_loop().create_task(self.work())

        async def work(self) -> None:
            while True:
                value, future = await self.queue.get()
                future.set_result(2 * value)

        async def __call__(self, x: Number) -> Number:
            future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            self.queue.put_nowait((int(x), future))
            return await future  # type: ignore[return-value]

    with hosted(Engine()) as engine:
        assert engine.start(number(21))[1].value == 42


def test_each_call_has_its_own_context_variables_and_no_gradients() -> None:
    seen: ContextVar[int] = ContextVar("seen", default=0)

    @dyorc.program(batched=False)
    async def count(x: Float[Tensor, ""]) -> Float[Tensor, ""]:
        assert not torch.is_grad_enabled()
        assert seen.get() == 0
        seen.set(1)
        await asyncio.sleep(0)
        return x + seen.get()

    with hosted(count) as program:
        for _ in range(2):
            assert program.start(np.float32(1))[1].value == 2


def test_a_wrong_result_fails_its_call_alone() -> None:
    @dyorc.program(batched=False)
    async def wrong(x: Number) -> Number:
        return x if x else np.zeros(3)  # type: ignore[return-value]

    with hosted(wrong) as program:
        error = program.start(number(0))[1].until_over().error
        assert error is not None
        assert error.error_type == "InvalidInputError"
        assert "'wrong' returned" in error.message
        assert program.start(number(1))[1].value == 1


def raise_system_exit() -> None:
    sys.exit(3)


def raise_interrupt() -> None:
    raise KeyboardInterrupt("no")


def stop_the_loop() -> None:
    asyncio.get_running_loop().stop()
    raise ValueError("stopped it")


@pytest.mark.parametrize("act", [raise_system_exit, raise_interrupt, stop_the_loop])
def test_nothing_that_a_program_raises_ends_its_loop(act: Callable[[], None]) -> None:
    @dyorc.program(batched=False)
    async def bad(x: Number) -> Number:
        if x == 0:
            act()
        if x == 1:

            async def in_a_task() -> None:
                act()

            await asyncio.wait([asyncio.ensure_future(in_a_task())])
        await asyncio.sleep(0)
        return x

    with hosted(bad) as program:
        assert program.start(number(0))[1].until_over().error is not None
        program.start(number(1))[1].until_over()
        assert program.start(number(2))[1].value == 2


# Programs that yield


def count_async(ended: list[Any]) -> Program:
    @dyorc.program(batched=False, max_ongoing=64, name="count")
    async def count(x: Number) -> AsyncIterator[Number]:
        try:
            for at in range(int(x)):
                yield number(at)
                await asyncio.sleep(0)
        finally:
            await asyncio.sleep(0)
            ended.append(int(x))

    return count


def count_plain(ended: list[Any]) -> Program:
    @dyorc.program(batched=False, max_ongoing=64, name="count")
    def count(x: Number) -> Iterator[Number]:
        try:
            for at in range(int(x)):
                yield number(at)
        finally:
            ended.append(int(x))

    return count


def count_streams(ended: list[Any]) -> Program:
    """A generator with a stream, which runs on a thread of its own; it does not read it."""

    @dyorc.program(batched=False, max_ongoing=64, name="count")
    def count(x: Number, words: Iterator[Number]) -> Iterator[Number]:
        try:
            for at in range(int(x)):
                yield number(at)
        finally:
            ended.append(int(x))

    return count


every_style = pytest.mark.parametrize("make", [count_async, count_plain, count_streams])


@every_style
def test_parts_come_in_order_as_far_as_they_are_granted(make: Callable[[list[Any]], Program]) -> None:
    ended: list[Any] = []
    with hosted(make(ended)) as program:
        call, received = program.start(number(5), max_parts=2)
        _, other = program.start(number(3))  # comes after what the first one could do
        other.until_over()
        received.until_parts(2)
        assert received.values == [0, 1]
        assert not received.is_over
        program.calls.grant(call, 3)
        received.until_parts(3)
        program.calls.grant(call, 100)
        assert received.until_over().error is None
        assert received.values == [0, 1, 2, 3, 4]
        assert ended == [3, 5]
        assert received.result == []


@every_style
def test_a_cancelled_call_ends_and_its_finally_blocks_run(make: Callable[[list[Any]], Program]) -> None:
    ended: list[Any] = []
    with hosted(make(ended)) as program:
        call, received = program.start(number(5), max_parts=1)
        received.until_parts(1)
        program.calls.cancel(call)
        error = received.until_over().error
        assert error is not None
        assert error.error_type == "CancelledError"
        assert ended == [5]
        assert received.values == [0]
        program.calls.cancel(call)  # nothing happens
        at_once, late = program.start(number(7))
        program.calls.cancel(at_once)
        late.until_over()
        assert program.start(number(2))[1].until_over().values == [0, 1]


@every_style
def test_many_calls_take_turns(make: Callable[[list[Any]], Program]) -> None:
    with hosted(make([])) as program:
        for each in [program.start(number(20))[1] for _ in range(64)]:
            assert each.until_over().values == list(range(20))


@every_style
def test_parts_wait_for_room(make: Callable[[list[Any]], Program]) -> None:
    with hosted(make([])) as program:
        assert program.start(number(3), num_full=2)[1].until_over().values == [0, 1, 2]


@every_style
def test_more_parts_than_max_parts_fail(make: Callable[[list[Any]], Program]) -> None:
    ended: list[Any] = []
    with hosted(make(ended).with_options(max_parts=2)) as program:
        assert program.start(number(2))[1].until_over().error is None
        received = program.start(number(3))[1].until_over()
        assert received.error is not None
        assert "yielded more parts than its max_parts allows, 2" in received.error.message
        assert received.values == [0, 1]
        assert ended == [2, 3]


@every_style
def test_digests_tell_parts_apart_if_the_program_may_run_again(make: Callable[[list[Any]], Program]) -> None:
    with hosted(make([])) as program:
        first, second = (program.start(number(3))[1].until_over() for _ in range(2))
        assert first.digests == second.digests
        assert len(set(first.digests)) == 3
        assert all(len(digest) == 16 for digest in first.digests)
    with hosted(make([]).with_options(pure=False)) as program:
        assert set(program.start(number(3))[1].until_over().digests) == {b""}


@pytest.mark.parametrize("is_async", [True, False])
def test_a_wrong_part_closes_the_generator_and_fails_its_call_alone(is_async: bool) -> None:
    closed: list[Any] = []

    @dyorc.program(batched=False)
    async def wrong_async(x: Number) -> AsyncIterator[Number]:
        try:
            yield x
            yield None  # type: ignore[misc]
        finally:
            closed.append(True)

    @dyorc.program(batched=False)
    def wrong_plain(x: Number) -> Iterator[Number]:
        try:
            yield x
            yield np.zeros(2)  # type: ignore[misc]
        finally:
            closed.append(True)

    with hosted(wrong_async if is_async else wrong_plain) as program:
        received = program.start(number(1))[1].until_over()
        assert received.error is not None
        assert "yielded" in received.error.message
        assert received.values == [1]
        assert closed == [True]


def test_generators_that_ignore_their_end_are_reported() -> None:
    @dyorc.program(batched=False)
    async def stubborn_async(x: Number) -> AsyncIterator[Number]:
        try:
            yield x
        finally:
            yield x

    @dyorc.program(batched=False)
    def stubborn_plain(x: Number) -> Iterator[Number]:
        try:
            yield x
        finally:
            yield x

    @dyorc.program(batched=False)
    async def swallowing(x: Number) -> AsyncIterator[Number]:
        yield x
        while True:
            try:
                await asyncio.sleep(TIMEOUT_S)
            except asyncio.CancelledError:
                yield x

    for each in (stubborn_async, stubborn_plain, swallowing):
        with hosted(each) as program:
            call, received = program.start(number(1), max_parts=1 if each is not swallowing else 5)
            received.until_parts(1)
            program.calls.cancel(call)
            error = received.until_over().error
            assert error is not None
            assert error.error_type in ("RuntimeError", "CancelledError")
            assert received.values == [1]


def test_a_generator_sees_no_running_loop_and_runs_on_the_thread_that_loaded_it() -> None:
    @dyorc.program(batched=False)
    class Bound:
        def __init__(self) -> None:
            self.thread = threading.current_thread()
            asyncio.run(asyncio.sleep(0))

        def __call__(self, x: Number) -> Iterator[Number]:
            assert threading.current_thread() is self.thread
            asyncio.run(asyncio.sleep(0))
            yield x

    with hosted(Bound()) as program:
        assert program.start(number(1))[1].until_over().values == [1]


def test_what_a_program_yields_may_be_overwritten_afterwards() -> None:
    @dyorc.program(batched=False)
    def reuse(x: Int[np.ndarray, " n"]) -> Iterator[Int[np.ndarray, " n"]]:
        for _ in range(3):
            x += 1
            yield x

    with hosted(reuse) as program:
        inputs = np.zeros(2, np.int64)
        inputs.flags.writeable = False
        received = program.start(inputs)[1].until_over()
        assert [part[0].tolist() for part in received.parts] == [[1, 1], [2, 2], [3, 3]]


# Streams that a program reads


def add_async() -> Program:
    @dyorc.program(batched=False, max_ongoing=8, name="add")
    async def add(words: AsyncIterator[Number]) -> AsyncIterator[Number]:
        total = 0
        async for word in words:
            total += int(word)
            yield number(total)

    return add


def add_plain() -> Program:
    @dyorc.program(batched=False, max_ongoing=8, name="add")
    def add(words: Iterator[Number]) -> Iterator[Number]:
        total = 0
        for word in words:
            total += int(word)
            yield number(total)

    return add


both = pytest.mark.parametrize("make", [add_async, add_plain])


@both
def test_a_program_reads_a_stream_while_it_grows(make: Callable[[], Program]) -> None:
    with hosted(make()) as program:
        call, received = program.start()
        program.feed(call, 1)
        received.until_parts(1)
        received.until_taken(1)
        other, second = program.start()  # the first one waits, and does not keep this one from running
        program.feed(other, 10, 10)
        program.calls.end_stream(other, 0)
        assert second.until_over().values == [10, 20]
        program.feed(call, 2, 3)
        program.calls.end_stream(call, 0)
        assert received.until_over().values == [1, 3, 6]
        assert received.num_taken == {0: 3}


@both
def test_the_error_of_a_stream_is_raised_where_it_is_read(make: Callable[[], Program]) -> None:
    with hosted(make()) as program:
        call, received = program.start()
        program.feed(call, 1)
        program.calls.end_stream(call, 0, ValueError("torn"))
        received.until_over()
        assert received.error is not None
        assert (received.error.error_type, received.error.message) == ("ValueError", "torn")
        assert received.values == [1]


@both
def test_a_call_that_waits_for_its_stream_can_be_cancelled(make: Callable[[], Program]) -> None:
    with hosted(make()) as program:
        call, received = program.start()
        program.feed(call, 1)
        received.until_parts(1)
        program.calls.cancel(call)
        assert received.until_over().error is not None
        again, last = program.start()
        program.calls.end_stream(again, 0)
        assert last.until_over().values == []


def add_twice_async() -> Program:
    @dyorc.program(batched=False)
    async def twice(words: AsyncIterator[Number]) -> AsyncIterator[Number]:
        for _ in range(2):
            async for word in words:
                yield word

    return twice


def add_twice_plain() -> Program:
    @dyorc.program(batched=False)
    def twice(words: Iterator[Number]) -> Iterator[Number]:
        for _ in range(2):
            yield from words

    return twice


@pytest.mark.parametrize("make", [add_twice_async, add_twice_plain])
def test_a_second_loop_over_a_stream_is_an_error_and_not_empty(make: Callable[[], Program]) -> None:
    with hosted(make()) as program:
        call, received = program.start()
        program.feed(call, 1)
        program.calls.end_stream(call, 0)
        received.until_over()
        assert received.values == [1]
        assert received.error is not None
        assert "a program reads a stream once" in received.error.message


def test_a_program_that_waits_reads_a_stream_and_returns_one_result() -> None:
    @dyorc.program(batched=False)
    async def total(words: AsyncIterator[Float[Tensor, ""]], start: Float[Tensor, ""]) -> Float[Tensor, ""]:
        result = start.clone()
        async for word in words:
            result += word
        return result

    with hosted(total) as program:
        call, received = program.start(np.float32(10))
        program.feed(call, np.float32(1), np.float32(2))
        program.calls.end_stream(call, 0)
        assert received.value == 13


def test_a_stream_that_cannot_be_read_fails_the_program_where_it_reads() -> None:
    def gone() -> Any:
        raise OSError("gone")

    with hosted(add_async()) as program:
        call, received = program.start()
        program.calls.feed(call, 0, gone)
        error = received.until_over().error
        assert error is not None
        assert error.message == "gone"


# The loop


def test_a_program_that_blocks_its_loop_is_given_up() -> None:
    blocked = threading.Event()

    @dyorc.program(batched=False)
    async def block(x: Number) -> Number:
        blocked.set()
        while True:
            time.sleep(0.001)  # noqa: ASYNC251 -- that is the mistake

    loop = ProgramLoop("block")
    executor = load_on(loop, block).result(TIMEOUT_S)
    loop.run(lambda: loop.start(executor.function(x=number(1)), loop.new_context()))
    assert blocked.wait(TIMEOUT_S)
    loop.give_up()
    loop.join(TIMEOUT_S)
    assert not loop.is_alive


def test_calls_that_run_when_the_loop_is_stopped_run_their_finally_blocks() -> None:
    ended: list[Any] = []
    with hosted(count_async(ended)) as program:
        _, received = program.start(number(9), max_parts=1)
        received.until_parts(1)
    assert ended == [9]
    program.start(number(9))  # nothing happens


def test_a_program_that_cannot_be_loaded_says_why() -> None:
    @dyorc.program(batched=False)
    class Broken:
        def __init__(self) -> None:
            raise SystemExit("no weights")

        async def __call__(self, x: Number) -> Number:
            return x

    loop = ProgramLoop("broken")
    with pytest.raises(dyorc.errors.ProgramLoadError, match="no weights"):
        load_on(loop, Broken()).result(TIMEOUT_S)
    loop.stop()
    loop.join(TIMEOUT_S)
