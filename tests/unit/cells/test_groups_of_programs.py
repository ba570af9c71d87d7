"""Programs of one group in a cell: they share a thread, and the objects that stay there."""

import asyncio
import threading
import time

import numpy as np
import pytest
from jaxtyping import Int

import dyorc
from dyorc.cells.local_fleet import LocalFleet
from dyorc.config import ScalingConfig
from dyorc.errors import ExecutionError, ScaledToZeroError
from dyorc.models.status import ProgramState
from dyorc.orchestrator.orchestrator import Orchestrator
from tests.asking import submission
from tests.deadlines import wait_until_async
from tests.unit.cells.celled import celled
from tests.workflows import counting

pytestmark = pytest.mark.anyio


async def count_up(orchestrator: Orchestrator, number: int, num_turns: int) -> int:
    (total,) = await orchestrator.infer(submission(counting.count_up, [np.int64(number)], (num_turns,)))
    return int(total)


def num_residents(orchestrator: Orchestrator) -> int:
    return orchestrator.report()["link"]["num_residents"]


async def test_chains_of_many_requests_share_batches_and_leave_nothing() -> None:
    async with celled(counting.count_up) as orchestrator:
        totals = await asyncio.gather(*[count_up(orchestrator, number, 200) for number in range(32)])
        assert totals == [201 * number for number in range(32)]
        report = orchestrator.report()
        assert report["link"]["num_batches_inline"] == 0
        assert 32 * 200 / report["link"]["num_batches_on_threads"] > 4, "turns of many requests ran together"
        await wait_until_async(lambda: num_residents(orchestrator) == 0, "residents are released")
        assert orchestrator.report()["link"]["resident_bytes"] == 0


async def test_a_counter_goes_on_in_two_ways() -> None:
    async with celled(counting.count_both_ways) as orchestrator:
        total, other = await orchestrator.infer(submission(counting.count_both_ways, [np.int64(1)], (3,)))
    assert (int(total), int(other)) == (5, 2 + 3 + 4 + 5)


async def test_nothing_of_a_thousand_chains_stays() -> None:
    async with celled(counting.count_up) as orchestrator:
        for _ in range(10):
            await asyncio.gather(*[count_up(orchestrator, number, 2) for number in range(100)])
        await wait_until_async(lambda: num_residents(orchestrator) == 0, "residents are released")


async def test_residents_are_dropped_on_the_thread_of_their_programs() -> None:
    makers: list[int] = []
    droppers: list[int] = []

    class Watched:
        def __del__(self) -> None:
            droppers.append(threading.get_ident())

    @dyorc.program(group="watched")
    def make(x: Int[np.ndarray, " batch"]) -> dyorc.Resident[Watched]:
        makers.append(threading.get_ident())
        return [Watched() for _ in x]

    @dyorc.program(group="watched")
    def look(x: Int[np.ndarray, " batch"], watched: dyorc.Resident[Watched]) -> Int[np.ndarray, " batch"]:
        return x

    @dyorc.workflow
    async def make_and_look(x: Int[np.ndarray, ""]) -> Int[np.ndarray, ""]:
        return look(x, make(x))

    async with celled(make_and_look) as orchestrator:
        await asyncio.gather(*[orchestrator.infer(submission(make_and_look, [np.int64(number)])) for number in range(20)])
        await wait_until_async(lambda: len(droppers) == 20, "residents are dropped, though no other batch comes")
    assert set(droppers) == set(makers)
    assert threading.get_ident() not in droppers


async def test_programs_of_a_group_run_one_at_a_time_on_one_thread() -> None:
    running: list[int] = []
    threads: set[int] = set()

    def watch(x: np.ndarray) -> np.ndarray:
        running.append(1)
        threads.add(threading.get_ident())
        assert len(running) == 1
        time.sleep(0.001)
        running.pop()
        return x

    def program(name: str) -> dyorc.Program:
        @dyorc.program(name=name, group="both", max_batch_size=1)
        def watched(x: Int[np.ndarray, " batch"]) -> Int[np.ndarray, " batch"]:
            return watch(x)

        return watched

    first, second = program("first"), program("second")

    @dyorc.workflow
    async def both(x: Int[np.ndarray, ""]) -> tuple[Int[np.ndarray, ""], Int[np.ndarray, ""]]:
        return first(x), second(x)

    async with celled(both) as orchestrator:
        await asyncio.gather(*[orchestrator.infer(submission(both, [np.int64(number)])) for number in range(20)])
        assert orchestrator.report()["link"]["num_programs_inline"] == 0
    assert len(threads) == 1


async def test_a_batch_that_hangs_takes_its_group_down_and_others_go_on_from_their_start() -> None:
    is_over = threading.Event()

    @dyorc.program(group="counters", pure=False, execution_timeout_s=1.0)
    def hang(x: counting.Numbers) -> counting.Numbers:
        while not is_over.is_set():
            time.sleep(0.01)
        return x

    @dyorc.workflow
    async def hang_beside(x: counting.Number) -> counting.Number:
        return hang(x)

    try:
        async with celled(counting.count_up, hang_beside) as orchestrator:
            others = asyncio.create_task(count_up(orchestrator, 1, 1000))
            await wait_until_async(lambda: num_residents(orchestrator) > 0, "a chain is under way")
            processes = set(orchestrator.report()["programs"]["count"]["replicas"])
            with pytest.raises(ExecutionError):
                await orchestrator.infer(submission(hang_beside, [np.int64(1)]))
            assert not others.done()
            assert await others == 1001
            assert processes.isdisjoint(orchestrator.report()["programs"]["count"]["replicas"])
            await wait_until_async(lambda: num_residents(orchestrator) == 0, "residents are released")
    finally:
        is_over.set()


async def test_programs_of_a_group_are_parked_and_come_back() -> None:
    to_zero = {"min_replicas": 0, "max_replicas": 1, "downscale_delay_s": 0, "downscale_to_zero_delay_s": 0}
    start, more = (each.with_options(num_replicas=1, autoscaling_config=to_zero) for each in (counting.begin, counting.count))

    @dyorc.workflow
    async def count_now_and_then(number: Int[np.ndarray, ""], num_turns: int) -> Int[np.ndarray, ""]:
        counter, total = start(number), number
        for _ in range(num_turns):
            total, counter = more(number, counter)
        return total

    async with celled(count_now_and_then, scaling=ScalingConfig(interval_s=0.05, wait_cost=0)) as orchestrator:
        states = orchestrator.status.programs

        def are_parked() -> bool:
            return all(states[name].state in (ProgramState.COLD, ProgramState.PARKED) for name in ("begin", "count"))

        for _ in range(2):
            (total,) = await orchestrator.infer(submission(count_now_and_then, [np.int64(1)], (5,)))
            assert int(total) == 6
            await wait_until_async(are_parked, "nobody needs them")
            assert num_residents(orchestrator) == 0


async def test_a_group_is_scaled_to_nothing_and_back_as_one() -> None:
    async with celled(counting.count_up) as orchestrator:
        programs = orchestrator.status.programs
        orchestrator.scaler.scale("count", 0, None)
        await wait_until_async(lambda: programs["begin"].state is programs["count"].state is ProgramState.OFF, "both are off")
        with pytest.raises(ScaledToZeroError):
            await count_up(orchestrator, 1, 3)
        orchestrator.scaler.scale("begin", 1, None)
        assert await count_up(orchestrator, 1, 3) == 4
        assert {programs[name].state for name in ("begin", "count")} == {ProgramState.READY}


async def test_a_group_is_forgotten_with_its_last_program() -> None:
    async with celled(counting.count_up) as orchestrator:
        assert await count_up(orchestrator, 1, 3) == 4
        fleet = orchestrator._fleet
        assert isinstance(fleet, LocalFleet)
        group = fleet._groups.of(counting.count)
        assert group is not None
        assert group.running_thread is not None
        for program in (counting.begin, counting.count):
            assert fleet._groups.of(program) is group
            await orchestrator.programs.unload(program)
            orchestrator.programs.remove(program)
        assert group.running_thread is None
        assert not fleet._groups._groups, "every version of a workflow that changes it has another one"
