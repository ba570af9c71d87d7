"""Programs that wait and are of one group: they share an event loop, and so an engine that lives there."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Generator

import numpy as np
import pytest
from jaxtyping import Int

import dyorc
from dyorc.authoring.workflow import Workflow
from dyorc.errors import ExecutionError
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.replica.program_loops import ProgramLoops
from dyorc.replica.program_thread import ThreadStoppedError
from tests.asking import submission
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.unit.cells.celled import celled

pytestmark = pytest.mark.anyio

Number = Int[np.ndarray, ""]


class Engine:
    """Answers in turn, by a task and a queue of the loop that it was made on."""

    def __init__(self) -> None:
        self.num_asked = 0
        self.questions: asyncio.Queue[tuple[int, asyncio.Future[int]]] = asyncio.Queue()
        self.task = asyncio.get_running_loop().create_task(self._work())

    async def ask(self, number: int) -> int:
        """Returns twice the number."""
        self.num_asked += 1
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        await self.questions.put((number, answer))
        return await answer

    async def _work(self) -> None:
        while True:
            number, answer = await self.questions.get()
            answer.set_result(2 * number)


engines: list[Engine] = []
is_over = threading.Event()


@pytest.fixture(autouse=True)
def new_engines() -> Generator[None]:
    """Begins without engines, and ends calls that block."""
    engines.clear()
    is_over.clear()
    yield
    is_over.set()


def the_engine() -> Engine:
    """Returns the only engine, as a module that caches it does."""
    if not engines:
        engines.append(Engine())
    return engines[0]


@dyorc.program(batched=False, group="engine", execution_timeout_s=1.0, pure=False)
class Ask:
    """Asks the engine; blocks the loop for 13."""

    def __init__(self) -> None:
        self.engine = the_engine()

    async def __call__(self, x: Number) -> Number:
        while x == 13 and not is_over.is_set():
            time.sleep(0.05)  # noqa: ASYNC251 -- that is the mistake
        return np.array(await self.engine.ask(int(x)))


@dyorc.program(batched=False, group="engine")
class AskOften:
    """Asks the engine three times."""

    def __init__(self) -> None:
        self.engine = the_engine()

    async def __call__(self, x: Number) -> AsyncIterator[Number]:
        for more in range(3):
            yield np.array(await self.engine.ask(int(x) + more))


ask, ask_often = Ask(), AskOften()


@dyorc.workflow
async def once(x: Number) -> Number:
    return ask(x)


@dyorc.workflow
async def thrice(x: Number) -> AsyncIterator[Number]:
    async for part in ask_often(x):
        yield part


async def answer(orchestrator: Orchestrator, number: int) -> int:
    (found,) = await orchestrator.infer(submission(once, [np.array(number)]))
    return int(found)


async def answers(orchestrator: Orchestrator, workflow: Workflow, number: int) -> list[int]:
    stream = orchestrator.stream(submission(workflow, [np.array(number)]))
    async with asyncio.timeout(TIMEOUT_S):
        return [int(part[0]) async for together in stream for part in together]


async def test_programs_of_a_group_share_an_engine_in_a_cell() -> None:
    async with celled(once, thrice) as orchestrator:
        asked = [answer(orchestrator, number) for number in range(10)]
        streamed = [answers(orchestrator, thrice, number) for number in range(10)]
        assert await asyncio.gather(*asked) == [2 * number for number in range(10)]
        assert await asyncio.gather(*streamed) == [[2 * number, 2 * number + 2, 2 * number + 4] for number in range(10)]
    (engine,) = engines
    assert engine.num_asked == 40
    assert engine.task.cancelled(), "what runs on the loop ends with it"


def test_programs_of_a_group_share_an_engine_in_a_run() -> None:
    assert list(dyorc.run(thrice, 1)) == [2, 4, 6]
    assert dyorc.run(once, 5) == 10
    assert len(engines) == 1


async def test_a_call_that_blocks_the_loop_takes_its_group_down_and_both_come_back() -> None:
    async with celled(once, thrice) as orchestrator:
        before = engines.pop()
        with pytest.raises(ExecutionError):
            await answer(orchestrator, 13)
        assert await answers(orchestrator, thrice, 1) == [2, 4, 6]
        assert await answer(orchestrator, 5) == 10
        assert len(engines) == 1
        assert engines[0] is not before


async def test_a_program_that_leaves_ends_its_own_calls_and_no_others() -> None:
    @dyorc.program(name="other", batched=False, group="engine")
    async def other(x: Number) -> Number:
        return np.array(await the_engine().ask(int(x)))

    async with celled(once) as orchestrator:
        orchestrator.programs.add(other)
        await wait_until_async(lambda: orchestrator.report()["programs"]["other"]["num_replicas"], "it is loaded")
        await orchestrator.programs.unload(other)
        orchestrator.programs.remove(other)
        assert await answer(orchestrator, 5) == 10
    assert len(engines) == 1


def test_a_loop_ends_with_its_last_program() -> None:
    loops = ProgramLoops()
    first, second = loops.open(ask), loops.open(ask_often)
    assert first is second
    assert not loops.close(first)
    assert first.run(lambda: 1).result(TIMEOUT_S) == 1
    assert loops.close(first)
    first.join(TIMEOUT_S)
    assert not first.is_alive
    again = loops.open(ask)
    assert again is not first
    loops.give_up(again)
    last = loops.open(ask)
    assert last is not again
    assert loops.close(last)
    for loop in (again, last):
        loop.join(TIMEOUT_S)
        assert loop.loop.is_closed()


def test_what_was_to_run_on_a_loop_that_ends_is_told_so() -> None:
    loops = ProgramLoops()
    loop = loops.open(ask)
    blocked = threading.Event()
    loop.run(lambda: blocked.set() or is_over.wait(TIMEOUT_S))
    assert blocked.wait(TIMEOUT_S)
    waiting = loop.run(lambda: 1)
    loops.give_up(loop)
    is_over.set()
    with pytest.raises(ThreadStoppedError, match="has ended"):
        waiting.result(TIMEOUT_S)
    loop.join(TIMEOUT_S)
    with pytest.raises(ThreadStoppedError, match="has ended"):
        loop.run(lambda: 1).result(TIMEOUT_S)
