"""Programs that are added to a running cell, and leave it."""

import asyncio
import threading

import numpy as np
import pytest

from dyorc.authoring.workflow import of_program
from dyorc.cells import local_fleet
from dyorc.config import ScalingConfig
from dyorc.errors import InternalError, NotDeployedError
from dyorc.models.status import ProgramState
from tests.asking import serve_also, submission
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.unit.cells.celled import X, ask, celled, program_of

pytestmark = pytest.mark.anyio


async def test_a_program_is_added_called_and_removed() -> None:
    first = program_of(lambda: lambda x: x + 1)
    second = program_of(lambda: lambda x: x + 2).with_options(name="tried-2")
    async with celled(first) as orchestrator:
        assert orchestrator.programs.add(second, is_awaited=False)
        assert orchestrator.status.is_ready, "nobody waits for it yet"
        status = orchestrator.status.programs["tried-2"]
        await wait_until_async(lambda: status.state is ProgramState.READY, "it is loaded")
        for _ in range(50):
            np.testing.assert_array_equal(await ask(orchestrator, second, X), X + 2)
        workflow = of_program(second)
        serve_also(orchestrator, workflow)
        await orchestrator.infer(submission(workflow, [X]))
        assert not orchestrator.runs(workflow)
        await orchestrator.programs.unload(second)
        orchestrator.programs.remove(second)
        orchestrator.programs.forget(workflow)
        assert set(orchestrator.report()["programs"]) == {"tried"}
        assert set(orchestrator.scaling()["programs"]) == {"tried"}
        np.testing.assert_array_equal(await ask(orchestrator, first, X), X + 1)
        with pytest.raises(NotDeployedError):
            await ask(orchestrator, second, X)
        orchestrator.programs.add(second)
        np.testing.assert_array_equal(await ask(orchestrator, second, X), X + 2)


async def test_a_program_that_is_added_is_scaled_though_there_was_none_before() -> None:
    to_zero = {"min_replicas": 0, "max_replicas": 1, "downscale_delay_s": 0, "downscale_to_zero_delay_s": 0}
    first = program_of(lambda: lambda x: x + 1)
    second = program_of(lambda: lambda x: x + 2, autoscaling_config=to_zero).with_options(name="tried-2")
    at_once = ScalingConfig(interval_s=0.05, wait_cost=0)  # else the forecast keeps a replica warm for half a minute
    async with celled(first, scaling=at_once) as orchestrator:
        orchestrator.programs.add(second, is_awaited=False)
        for _ in range(2):
            np.testing.assert_array_equal(await ask(orchestrator, second, X), X + 2)
            await wait_until_async(lambda: not orchestrator.scaling()["programs"]["tried-2"]["num_warm"], "nobody needs it")
        assert orchestrator.scaler.traffic.rates_per_s(1.0), "requests are observed"
        assert orchestrator.scaling()["programs"]["tried"]["num_warm"] == 1


async def test_nobody_waits_while_the_memory_of_a_parked_program_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    is_over = threading.Event()
    threads: list[threading.Thread] = []

    def run_users_code(_: object) -> None:
        """Hangs, as a `__del__` of the program's may."""
        threads.append(threading.current_thread())
        is_over.wait()

    monkeypatch.setattr(local_fleet, "free_memory", run_users_code)
    try:
        async with celled(program_of(lambda: lambda x: x + 1)) as orchestrator:
            orchestrator.scaler.scale("tried", 0, None)
            await wait_until_async(lambda: bool(threads), "its memory is being freed")
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.get_running_loop().shutdown_default_executor()
        assert threads[0].daemon, "Python's end waits for others"
        assert threads[0].is_alive()
    finally:
        is_over.set()


async def test_a_program_that_is_still_loading_or_cannot_load_is_removed() -> None:
    loading, loaded = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def load() -> None:
        loop.call_soon_threadsafe(loading.set)
        asyncio.run_coroutine_threadsafe(loaded.wait(), loop).result()

    def fail() -> None:
        raise OSError("no weights")

    first = program_of(lambda: lambda x: x + 1)
    slow = program_of(lambda: load() or (lambda x: x)).with_options(name="slow")
    broken = program_of(fail).with_options(name="broken")
    async with celled(first) as orchestrator:
        orchestrator.programs.add(slow, is_awaited=False)
        await loading.wait()
        orchestrator.programs.remove(slow)
        loaded.set()
        orchestrator.programs.add(broken, is_awaited=False)
        status = orchestrator.status.programs["broken"]
        await wait_until_async(lambda: status.state is ProgramState.FAILING, "it fails to load")
        assert orchestrator.status.is_ready
        assert not orchestrator.status.is_failing
        await orchestrator.programs.unload(broken)
        orchestrator.programs.remove(broken)
        assert set(orchestrator.report()["programs"]) == {"tried"}
        np.testing.assert_array_equal(await ask(orchestrator, first, X), X + 1)


async def test_one_program_stands_for_both_versions_even_with_a_new_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    first = program_of(lambda: lambda x: x + 1)
    twin = first.with_options()
    async with celled(first) as orchestrator:
        orchestrator.programs.add(twin)
        np.testing.assert_array_equal(await ask(orchestrator, twin, X), X + 1)

        def fail(*_: object) -> None:
            raise RuntimeError("a bug")

        with monkeypatch.context() as patch:
            patch.setattr("dyorc.engine.engine.Engine.handle", fail)
            with pytest.raises(InternalError):
                await ask(orchestrator, first, X)
        np.testing.assert_array_equal(await ask(orchestrator, twin, X), X + 1)
        orchestrator.programs.remove(twin)
        np.testing.assert_array_equal(await ask(orchestrator, first, X), X + 1)
        with pytest.raises(NotDeployedError):
            await ask(orchestrator, twin, X)


async def test_replicas_that_have_dropped_their_program_are_forgotten() -> None:
    first = program_of(lambda: lambda x: x + 1)
    async with celled(first) as orchestrator:
        leases = orchestrator._engine.leases
        before = set(leases.holders)
        for number in range(3):
            second = program_of(lambda: lambda x: x + 2).with_options(name=f"tried-{number}")
            orchestrator.programs.add(second)
            np.testing.assert_array_equal(await ask(orchestrator, second, X), X + 2)
            await orchestrator.programs.unload(second)
            orchestrator.programs.remove(second)
        await wait_until_async(lambda: leases.holders == before, "no replica of a removed program is known")
        for _ in range(3):
            await orchestrator.scale("tried", 0, None)
            await wait_until_async(lambda: not orchestrator.scaling()["programs"]["tried"]["num_warm"], "it is dropped")
            await orchestrator.scale("tried", 1, None)
            await wait_until_async(lambda: orchestrator.status.is_ready, "it is loaded again")
        await wait_until_async(lambda: len(leases.holders) == len(before), "only the last replica is known")
