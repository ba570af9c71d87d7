"""Programs that need the thread that has loaded them, and programs that would hold the event loop up."""

import asyncio
import contextlib
import contextvars
import decimal
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dyorc
from dyorc.authoring.program import Program
from dyorc.core.arrays import element_of_bytes
from dyorc.errors import DefinitionError, InvalidInputError
from dyorc.orchestrator.orchestrator import Orchestrator
from tests.unit.cells.celled import X, ask, celled, move_to_loop, program_of

pytestmark = pytest.mark.anyio

Make = Callable[[], Callable[[Any], Any]]


async def num_run_again(orchestrator: Orchestrator, program: Program, number: int) -> int:
    """Calls a program, checks its results, and returns how many batches were run again on its thread."""
    for at in range(number):
        x = np.full(4, at, np.float32)
        np.testing.assert_array_equal(await ask(orchestrator, program, x), x)
    return orchestrator.report()["link"]["num_batches_run_again"]


def connected() -> Callable[[Any], Any]:
    """Makes a program that works on its own thread only, as with a connection of `sqlite3`."""
    own_thread = threading.get_ident()

    def call(x: Any) -> Any:
        if threading.get_ident() != own_thread:
            raise RuntimeError("used on another thread")
        return x

    return call


def with_local() -> Callable[[Any], Any]:
    local = threading.local()
    local.factor = 1

    def call(x: Any) -> Any:
        x *= local.factor  # in place: what is run again must not see it
        return x

    return call


def doubling_first() -> Callable[[Any], Any]:
    owner = threading.get_ident()

    def call(x: Any) -> Any:
        x += 1
        if threading.get_ident() != owner:
            raise RuntimeError("a greenlet of another thread")
        return x - 1

    return call


@pytest.mark.parametrize("make", [connected, with_local, doubling_first])
async def test_a_program_that_fails_on_the_loop_is_run_again_on_its_thread_and_stays(make: Make) -> None:
    program = program_of(make)
    async with celled(program, inline_limit_s=0.2) as orchestrator:
        assert await num_run_again(orchestrator, program, 40) == 1
        assert orchestrator.report()["link"]["num_batches_inline"] == 1


async def test_an_input_that_cannot_be_read_says_nothing_of_its_program() -> None:
    @dyorc.program(batched=False)
    def count(words: list[str]) -> int:
        return len(words)

    good, bad = element_of_bytes(b'["a"]'), element_of_bytes(b"[1]")
    async with celled(count, inline_limit_s=0.2) as orchestrator:
        await move_to_loop(orchestrator, count, good)
        before = orchestrator.report()["link"]
        for _ in range(5):
            with pytest.raises(InvalidInputError, match="'words': 0: Input should be a valid string"):
                await ask(orchestrator, count, bad)
        after = orchestrator.report()["link"]
        assert after["num_batches_run_again"] == before["num_batches_run_again"]
        assert after["num_programs_inline"] == 1, "it stays on the loop, whatever clients send"


async def test_a_program_that_fails_everywhere_may_stay_on_the_loop() -> None:
    def make() -> Callable[[Any], Any]:
        def call(x: Any) -> Any:
            if x[0, 0] == 13:
                raise ValueError("odd")
            return x

        return call

    program = program_of(make)
    async with celled(program, inline_limit_s=0.2) as orchestrator:
        await move_to_loop(orchestrator, program)
        with pytest.raises(Exception, match="odd"):
            await ask(orchestrator, program, np.full(4, 13, np.float32))
        assert orchestrator.report()["link"]["num_programs_inline"] == 1


async def test_a_program_may_run_a_loop_of_its_own_and_never_finds_ours() -> None:
    async def answer(x: Any) -> Any:
        return x

    def make() -> Callable[[Any], Any]:
        def call(x: Any) -> Any:
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop()
            return asyncio.run(answer(x))

        return call

    program = program_of(make)
    async with celled(program, inline_limit_s=0.2) as orchestrator:
        assert await num_run_again(orchestrator, program, 40) == 0
        assert asyncio.get_running_loop()


async def test_context_variables_that_were_set_while_loading_hold_on_the_loop_and_only_there() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    precision = decimal.getcontext().prec

    def make() -> Callable[[Any], Any]:
        variable.set("loaded")
        decimal.getcontext().prec = precision + 7
        np.seterr(all="raise")

        def call(x: Any) -> Any:
            assert (variable.get(), decimal.getcontext().prec) == ("loaded", precision + 7)
            assert np.geterr()["divide"] == "raise"
            return x

        return call

    program = program_of(make)
    async with celled(program, inline_limit_s=0.2) as orchestrator:
        await move_to_loop(orchestrator, program)
        assert await num_run_again(orchestrator, program, 10) == 0
        assert decimal.getcontext().prec == precision
        assert np.geterr()["divide"] != "raise"


def sleep() -> None:
    time.sleep(60)


def wait_for_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=60)


def wait_for_socket() -> None:
    here, there = socket.socketpair()
    with here, there:
        select.select([here], [], [], 60)


def compute() -> None:
    while True:
        pass


def swallow() -> None:
    """Goes on after the interruption, as `except:` does."""
    try:
        time.sleep(60)
    except BaseException:
        return


@pytest.mark.parametrize("hold_up", [sleep, wait_for_lock, wait_for_socket, compute, swallow])
async def test_a_program_that_suddenly_holds_the_loop_up_is_interrupted_and_its_batch_run_on_its_thread(
    hold_up: Callable[[], None],
) -> None:
    is_stuck = False

    def make() -> Callable[[Any], Any]:
        def call(x: Any) -> Any:
            if is_stuck and threading.current_thread() is threading.main_thread():
                hold_up()
                return x + 1
            return x

        return call

    program = program_of(make)
    async with celled(program, inline_limit_s=0.2) as orchestrator:
        await move_to_loop(orchestrator, program)
        is_stuck = True
        assert await num_run_again(orchestrator, program, 20) == 1
        assert orchestrator.report()["link"]["num_programs_inline"] == 0


async def test_a_program_that_sets_a_signal_handler_does_not_keep_it() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def make() -> Callable[[Any], Any]:
        def call(x: Any) -> Any:
            with contextlib.suppress(ValueError):  # it only works in the main thread
                signal.signal(signal.SIGTERM, lambda number, frame: None)
            return x

        return call

    program = program_of(make)
    async with celled(program, inline_limit_s=0.2) as orchestrator:
        assert await num_run_again(orchestrator, program, 40) == 1
        assert signal.getsignal(signal.SIGTERM) is before
        assert orchestrator.report()["link"]["num_batches_inline"] == 1


async def test_a_program_that_waits_stays_on_its_thread() -> None:
    def make() -> Callable[[Any], Any]:
        def call(x: Any) -> Any:
            time.sleep(0.005)  # a wait that is much shorter shows less than what other threads compute meanwhile
            return x

        return call

    program = program_of(make)
    async with celled(program, inline_limit_s=0.2) as orchestrator:
        await num_run_again(orchestrator, program, 50)
        assert orchestrator.report()["link"]["num_batches_inline"] == 0


@pytest.mark.parametrize("options", [{"thread": "own"}, {"pure": False}])
async def test_programs_that_may_not_move_stay_on_their_thread(options: dict[str, Any]) -> None:
    threads: set[str] = set()

    def make() -> Callable[[Any], Any]:
        threads.add(threading.current_thread().name)

        def call(x: Any) -> Any:
            threads.add(threading.current_thread().name)
            return x

        return call

    program = program_of(make, **options)
    async with celled(program, inline_limit_s=0.2) as orchestrator:
        await num_run_again(orchestrator, program, 50)
    assert threads == {"dyorc-tried"}


def test_an_unknown_thread_is_refused() -> None:
    with pytest.raises(DefinitionError, match="thread is 'loop', expected one of 'auto', 'own'"):
        program_of(lambda: lambda x: x, thread="loop")


async def test_a_program_whose_results_need_its_thread_goes_back_though_nothing_raises() -> None:
    def make() -> Callable[[Any], Any]:
        local = threading.local()
        local.scale = 5.0
        return lambda x: x * np.float32(getattr(local, "scale", 1.0))

    program = program_of(make)
    async with celled(program, inline_limit_s=0.2) as orchestrator:
        for _ in range(60):
            np.testing.assert_array_equal(await ask(orchestrator, program, X), X * 5)
        link = orchestrator.report()["link"]
        assert (link["num_batches_inline"], link["num_programs_inline"]) == (1, 0)
