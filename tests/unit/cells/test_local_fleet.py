"""Programs that run in the orchestrator's process."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jaxtyping import Int

import dyorc
from dyorc.cells.hosted_program import NUM_COMPARED
from dyorc.cells.orchestrator_cell import make_cell
from dyorc.config import CellsConfig, OrchestratorConfig, TransportConfig
from dyorc.core.arrays import Array
from dyorc.engine.engine import Engine
from dyorc.engine.events import ReplicaJoined, ReplicaLeft
from dyorc.errors import ExecutionError, InternalError, ProgramError, ProgramLoadError
from dyorc.models.registry import ModelRegistry
from dyorc.models.status import ProgramState
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.system.processors import num_processors
from tests.asking import submission
from tests.deadlines import wait_until_async
from tests.shared_folders import arena_folder
from tests.unit.cells.celled import X, ask, celled, move_to_loop, program_of
from tests.workflows import arithmetic, streaming

pytestmark = pytest.mark.anyio


async def test_workflows_and_streams_are_served() -> None:
    async with celled(arithmetic.double_until_large, streaming.count_up) as orchestrator:
        for _ in range(20):
            (y,) = await orchestrator.infer(submission(arithmetic.double_until_large, [X]))
            np.testing.assert_array_equal(y, X * 64)
        start = np.array([1, 1], np.float32)
        parts = orchestrator.stream(submission(streaming.count_up, [start], (5,)))
        assert [part[0][0] async for together in parts for part in together] == [2, 3, 4, 5, 6]


async def test_a_stream_whose_parts_are_there_at_once_loses_none() -> None:
    async with celled(streaming.count_up, inline_limit_s=0.2) as orchestrator:
        start = np.array([100, 100], np.float32)
        await move_to_loop(orchestrator, streaming.add_one, start)
        for _ in range(3):
            async with asyncio.timeout(60):
                parts = orchestrator.stream(submission(streaming.count_up, [start], (40,)))
                found = [part[0][0] async for together in parts for part in together]
            assert found == list(range(101, 141))


async def test_short_programs_move_to_the_loop_and_long_ones_stay_on_their_thread() -> None:
    seen: list[threading.Thread] = []

    def make() -> Callable[[Any], Any]:
        def call(x: Any) -> Any:
            seen.append(threading.current_thread())
            return x

        return call

    program = program_of(make)
    async with celled(program, inline_limit_s=0.2) as orchestrator:
        await ask(orchestrator, program, X)
        assert seen[-1].name == "dyorc-tried"
        await move_to_loop(orchestrator, program)
        await ask(orchestrator, program, X)
        assert seen[-1] is threading.current_thread()
        assert orchestrator.status.programs["tried"].as_report()["num_replicas"] == 1
    async with celled(program, inline_limit_s=0) as orchestrator:
        for _ in range(50):
            await ask(orchestrator, program, X)
        assert orchestrator.report()["link"]["num_batches_inline"] == 0


async def test_a_program_that_becomes_slow_leaves_the_loop_after_one_batch() -> None:
    seen: list[str] = []
    is_slow = False

    def make() -> Callable[[Any], Any]:
        def call(x: Any) -> Any:
            seen.append(threading.current_thread().name)
            time.sleep(0.15 if is_slow else 0)
            return x

        return call

    program = program_of(make)
    async with celled(program, inline_limit_s=0.03) as orchestrator:
        await move_to_loop(orchestrator, program)
        seen.clear()
        is_slow = True
        for _ in range(4):
            await ask(orchestrator, program, X)
        assert seen == ["MainThread", *["dyorc-tried"] * 3]


async def test_programs_that_move_under_load_run_every_call_once() -> None:
    num_run = 0
    is_slow = False

    def make() -> Callable[[Any], Any]:
        def call(x: Any) -> Any:
            nonlocal num_run
            num_run += len(x)
            time.sleep(0.02 if is_slow else 0)
            return x + 1

        return call

    program = program_of(make, pure=False, idempotent=True, max_batch_size=4)
    events: list[str] = []

    async def client(orchestrator: Orchestrator, number: int) -> None:
        for turn in range(30):
            y = await ask(orchestrator, program, np.full(2, number * 100 + turn, np.float32))
            np.testing.assert_array_equal(y, number * 100 + turn + 1)

    async with celled(program) as orchestrator:
        post = orchestrator._post  # pyright: ignore[reportPrivateUsage]

        def watch(event: Any) -> None:
            if isinstance(event, ReplicaLeft):
                events.append(event.reason)
            post(event)

        fleet: Any = orchestrator._fleet  # pyright: ignore[reportPrivateUsage]
        object.__setattr__(fleet._context, "post", watch)
        for slow in (False, True, False, True):
            is_slow = slow
            await asyncio.gather(*(client(orchestrator, number) for number in range(24)))
        report = orchestrator.report()["link"]
    assert 0 <= num_run - 4 * 24 * 30 <= NUM_COMPARED * 4, "only what was compared ran twice"
    assert len(events) >= 2
    assert report["num_batches_inline"] > 0
    assert report["num_batches_on_threads"] > 0


async def test_a_program_may_return_its_own_buffer_and_its_input() -> None:
    def make_input() -> Callable[[Any], Any]:
        return lambda x: x

    def make_own() -> Callable[[Any], Any]:
        memory = np.zeros((8, 4), np.float32)

        def call(x: Any) -> Any:
            memory[: len(x)] = x
            return memory[: len(x)]

        return call

    for make in (make_own, make_input):
        program = program_of(make, max_batch_size=8)
        async with celled(program) as orchestrator:
            kept: list[tuple[Array, Array]] = []
            for turn in range(30):
                xs = [np.full(4, turn * 10 + number, np.float32) for number in range(5)]
                kept.extend(zip(xs, await asyncio.gather(*(ask(orchestrator, program, x) for x in xs)), strict=True))
            for x, y in kept:
                np.testing.assert_array_equal(x, y)


async def test_a_program_that_writes_to_its_input_harms_nobody() -> None:
    def make() -> Callable[[Any], Any]:
        def call(x: Any) -> Any:
            x += 1
            return x

        return call

    program = program_of(make)
    async with celled(program) as orchestrator:
        x = X.copy()
        for _ in range(20):
            np.testing.assert_array_equal(await ask(orchestrator, program, x), X + 1)
        np.testing.assert_array_equal(x, X)


@pytest.mark.parametrize("error", [ValueError("odd"), SystemExit(3), KeyboardInterrupt()])
async def test_whatever_a_program_raises_fails_its_request_on_the_thread_and_on_the_loop(error: BaseException) -> None:
    def make() -> Callable[[Any], Any]:
        def call(x: Any) -> Any:
            if x[0, 0] == 13:
                raise error
            return x

        return call

    program = program_of(make)
    async with celled(program) as orchestrator:
        for _ in range(2):
            with pytest.raises(ProgramError) as raised:
                await ask(orchestrator, program, np.full(4, 13, np.float32))
            assert raised.value.error_type == type(error).__name__
            await move_to_loop(orchestrator, program)
        np.testing.assert_array_equal(await ask(orchestrator, program, X), X)


async def test_a_program_that_cannot_be_loaded_is_loaded_again() -> None:
    num_tries = 0

    def make() -> Callable[[Any], Any]:
        nonlocal num_tries
        num_tries += 1
        if num_tries < 3:
            raise SystemExit("no weights yet")
        return lambda x: x

    program = program_of(make)
    async with celled(program) as orchestrator:
        np.testing.assert_array_equal(await ask(orchestrator, program, X), X)
    assert num_tries == 3


async def test_a_program_that_can_never_be_loaded_fails_its_requests_and_no_others() -> None:
    def make() -> Callable[[Any], Any]:
        raise ValueError("no weights")

    broken = program_of(make)
    transport = TransportConfig(arena_folder=arena_folder(), arena_bytes=2**20)
    programs = ModelRegistry.of((broken, arithmetic.double))
    async with make_cell(programs, OrchestratorConfig(), transport, CellsConfig(load_retry_s=0.01)) as orchestrator:
        np.testing.assert_array_equal(await ask(orchestrator, arithmetic.double, X), 2 * X)
        with pytest.raises(ProgramLoadError, match="no weights"):
            await ask(orchestrator, broken, X)
        assert orchestrator.status.programs["tried"].state is ProgramState.FAILING


async def test_a_batch_that_hangs_fails_and_the_program_is_loaded_again() -> None:
    over = threading.Event()
    num_loads = 0

    def make() -> Callable[[Any], Any]:
        nonlocal num_loads
        num_loads += 1

        def call(x: Any) -> Any:
            if x[0, 0] == 13:
                while not over.is_set():
                    over.wait(0.05)
            return x

        return call

    program = program_of(make, execution_timeout_s=1.0)
    try:
        async with celled(program) as orchestrator:
            with pytest.raises(ExecutionError):
                await ask(orchestrator, program, np.full(4, 13, np.float32))
            np.testing.assert_array_equal(await ask(orchestrator, program, X), X)
            assert num_loads >= 2
    finally:
        over.set()


async def test_a_program_of_which_too_many_batches_hang_is_not_loaded_again() -> None:
    over = threading.Lock()
    over.acquire()

    def make() -> Callable[[Any], Any]:
        def call(x: Any) -> Any:
            if x[0, 0] == 13:
                over.acquire()  # cannot be interrupted
                over.release()
            return x

        return call

    program = program_of(make, execution_timeout_s=1.0, pure=False)
    try:
        async with celled(program, max_hung=2) as orchestrator:
            for _ in range(2):
                with pytest.raises(ExecutionError):
                    await ask(orchestrator, program, np.full(4, 13, np.float32))
                await wait_until_async(
                    lambda: orchestrator.status.programs["tried"].state is not ProgramState.STARTING, "noticed"
                )
            with pytest.raises(ProgramLoadError, match="hang"):
                await ask(orchestrator, program, X)
            over.release()
            await wait_until_async(lambda: orchestrator.status.is_ready, "it is loaded again once they have ended")
            np.testing.assert_array_equal(await ask(orchestrator, program, X), X)
    finally:
        if over.locked():
            over.release()


async def test_after_a_bug_of_the_engine_the_next_one_has_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Engine.handle
    is_broken = False

    def break_once(*args: Any) -> Any:
        nonlocal is_broken
        if is_broken:
            is_broken = False
            raise AssertionError("a bug")
        return handle(*args)

    monkeypatch.setattr(Engine, "handle", break_once)
    async with celled(arithmetic.double) as orchestrator:
        await move_to_loop(orchestrator, arithmetic.double)
        is_broken = True
        with pytest.raises(InternalError):
            await ask(orchestrator, arithmetic.double, X)
        np.testing.assert_array_equal(await ask(orchestrator, arithmetic.double, X), 2 * X)


async def test_a_long_chain_of_inline_steps_lets_others_use_the_loop() -> None:
    """A long chain of short batches is cut into turns."""

    @dyorc.program(name="step")
    def step(x: Int[np.ndarray, "batch 1"]) -> Int[np.ndarray, "batch 1"]:
        give_up_s = time.perf_counter() + 0.0002
        while time.perf_counter() < give_up_s:
            pass
        return x + 1

    @dyorc.workflow
    async def chain(x: Int[np.ndarray, "1"]) -> Int[np.ndarray, "1"]:
        for _ in range(100):
            x = step(x)
            await x
        return x

    async with celled(chain) as orchestrator:
        await move_to_loop(orchestrator, step, np.array([0]))
        turns = 0
        task = asyncio.ensure_future(orchestrator.infer(submission(chain, [np.array([0])])))
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        assert (await task)[0][0] == 100
        assert turns >= 8


async def test_requests_of_one_turn_share_a_batch_although_each_could_be_answered_at_once() -> None:
    async with celled(arithmetic.double, inline_limit_s=0.2) as orchestrator:
        await move_to_loop(orchestrator, arithmetic.double)
        before = orchestrator.report()["link"]["num_batches_inline"]
        for _ in range(10):
            await asyncio.gather(*(ask(orchestrator, arithmetic.double, X) for _ in range(8)))
        assert orchestrator.report()["link"]["num_batches_inline"] - before <= 20


async def test_statistics_count_as_for_any_replica() -> None:
    async with celled(arithmetic.double) as orchestrator:
        for _ in range(30):
            await ask(orchestrator, arithmetic.double, X)
        found = orchestrator.statistics("double")
    assert (found.inference_count, found.execution_count) == (30, 30)
    assert found.compute_infer.ns > 0
    assert found.compute_input.ns > 0
    assert found.compute_output.ns > 0


async def test_nothing_is_left_when_it_stops() -> None:
    before = left()
    async with celled(arithmetic.double, streaming.count_up) as orchestrator:
        await ask(orchestrator, arithmetic.double, X)
        assert left() != before
    assert left() == before


def left() -> tuple[list[str], float, str | None]:
    """Returns our threads, and the interpreter's settings."""
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("dyorc-")]
    return threads, sys.getswitchinterval(), os.environ.get("DYORC_NUM_THREADS")


async def test_a_program_that_waits_for_a_device_of_its_own_uses_none_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    joined: dict[str, int] = {}
    handle = Engine.handle

    def note(engine: Engine, events: Any, now_ns: int) -> Any:
        events = list(events)
        joined.update({event.program: event.num_cores for event in events if isinstance(event, ReplicaJoined)})
        return handle(engine, events, now_ns)

    monkeypatch.setattr(Engine, "handle", note)
    on_device = arithmetic.double.with_options(name="on_device", ray_actor_options={"num_gpus": 1})
    async with celled(arithmetic.double, on_device):
        pass
    assert joined == {"double": num_processors(), "on_device": 0}


async def test_a_program_is_dropped_and_loaded_again_while_requests_wait() -> None:
    loaded: list[int] = []
    program = program_of(lambda: loaded.append(1) or (lambda x: x + 1))
    async with celled(program) as orchestrator:
        await ask(orchestrator, program, X)
        for _ in range(3):
            held = [asyncio.create_task(ask(orchestrator, program, X)) for _ in range(3)]
            orchestrator.want("tried", 0, 0)
            status = orchestrator.status.programs["tried"]
            await wait_until_async(lambda status=status: status.state is ProgramState.COLD, "it is dropped")
            assert orchestrator.status.is_ready
            held += [asyncio.create_task(ask(orchestrator, program, X)) for _ in range(3)]
            await asyncio.sleep(0)
            orchestrator.want("tried", 5, 2)
            for y in await asyncio.gather(*held):
                np.testing.assert_array_equal(y, X + 1)
            assert status.num_wanted == 1, "there is one copy at most"
    assert len(loaded) == 4


async def test_a_program_that_is_not_wanted_any_more_while_it_loads_is_dropped() -> None:
    has_begun, is_open = threading.Event(), threading.Event()
    program = program_of(lambda: has_begun.set() or (is_open.wait(60) and (lambda x: x + 1)))
    config, transport = CellsConfig(), TransportConfig(arena_folder=arena_folder(), arena_bytes=2**20)
    async with make_cell(ModelRegistry.of([program]), OrchestratorConfig(), transport, config) as orchestrator:
        status = orchestrator.status.programs["tried"]
        await wait_until_async(has_begun.is_set, "it is being loaded")
        orchestrator.want("tried", 0, 0)
        is_open.set()
        await wait_until_async(lambda: status.lead is not None, "it is loaded")
        await wait_until_async(lambda: status.state is ProgramState.COLD, "it is dropped")
        orchestrator.want("tried", 1, 0)
        np.testing.assert_array_equal(await ask(orchestrator, program, X), X + 1)
