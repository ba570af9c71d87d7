"""Results that stay on the device of their program, in a cell. Every copy is counted, on a device that needs no GPU."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import dyorc
from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.errors import ProgramError
from dyorc.orchestrator.orchestrator import Orchestrator
from tests.asking import submission
from tests.counting_device import CountingDevice, CountingTensor, OutOfCountingMemoryError, counting_devices
from tests.deadlines import wait_until_async
from tests.unit.cells.celled import celled

pytestmark = pytest.mark.anyio

N = 2**18
"""Elements of a large result: 1 MiB."""
X = np.arange(4, dtype=np.float32)


@pytest.fixture
def devices() -> Iterator[dict[int, CountingDevice]]:
    with counting_devices() as devices:
        yield devices


def scaler(name: str, factor: float, **options: Any) -> Program:
    """Makes a program that multiplies by a number, on the device."""

    @dyorc.program(name=name, **{"device": "counting"} | options)
    class Scaler:
        def __init__(self) -> None:
            self.factor = factor

        def __call__(self, x: Float[Tensor, "batch n"]) -> Float[Tensor, "batch n"]:
            if options.get("device", "counting") != "cpu":
                assert isinstance(x, CountingTensor)
            return x * self.factor

    return Scaler()


@contextlib.asynccontextmanager
async def counted(
    devices: dict[int, CountingDevice], *targets: Program | Workflow, **settings: Any
) -> AsyncGenerator[Orchestrator]:
    """Runs a cell, counts the copies made once its programs are loaded, and checks that nothing stays."""
    async with celled(*targets, **settings) as orchestrator:
        for device in devices.values():
            device.reset()
        yield orchestrator
        await wait_until_released(orchestrator)


async def infer(orchestrator: Orchestrator, workflow: Workflow, *inputs: np.ndarray[Any, Any]) -> list[Any]:
    return list(await orchestrator.infer(submission(workflow, list(inputs))))


async def wait_until_released(orchestrator: Orchestrator) -> None:
    link = lambda: orchestrator.report()["link"]  # noqa: E731
    await wait_until_async(lambda: link()["num_device_columns"] == 0 and not link()["device_bytes"], "all is released")
    await wait_until_async(lambda: orchestrator.tensors.report()["num_blocks"] == 0, "the arena is empty")


async def test_a_chain_copies_its_input_once_and_its_answer_once(devices: dict[int, CountingDevice]) -> None:
    first, second, third = scaler("first", 2), scaler("second", 3), scaler("third", 5)

    @dyorc.workflow
    async def chain(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        return third(second(first(x)))

    async with counted(devices, chain, arena_bytes=2**25) as orchestrator:
        for x in (X, np.arange(N, dtype=np.float32)):
            device = devices[0]
            device.reset()
            (y,) = await infer(orchestrator, chain, x)
            np.testing.assert_array_equal(y, x * 30)
            assert (device.num_from_host, device.num_to_host, device.num_from_device) == (1, 1, 0)
            await wait_until_released(orchestrator)
        assert "MainThread" not in device.threads_of_copies  # the event loop waits for no copy


async def test_a_result_that_is_read_many_times_comes_to_the_host_once(devices: dict[int, CountingDevice]) -> None:
    first, host = scaler("first", 2), scaler("host", 3, device="cpu")
    other = scaler("other", 7, device="cpu")

    @dyorc.workflow
    async def read(
        x: Float[np.ndarray, " n"],
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        y = first(x)
        a, b = await dyorc.gather(host(y), other(y))
        if await dyorc.when(y, lambda y: y[1] > 0):
            return y, a, b
        return y, b, a

    async with counted(devices, read, arena_bytes=2**26) as orchestrator:
        x = np.arange(2 * N, dtype=np.float32)
        y, a, b = await infer(orchestrator, read, x)
        np.testing.assert_array_equal(y, 2 * x)
        np.testing.assert_array_equal(a, 6 * x)
        np.testing.assert_array_equal(b, 14 * x)
        assert (devices[0].num_from_host, devices[0].num_to_host) == (1, 1)
        del y, a, b


async def test_a_result_that_nobody_reads_never_comes_to_the_host(devices: dict[int, CountingDevice]) -> None:
    first, second = scaler("first", 2), scaler("second", 3)

    @dyorc.program(device="counting")
    def total(x: Float[Tensor, "batch n"]) -> Float[Tensor, "batch 1"]:
        return x.sum(1, keepdim=True)

    @dyorc.workflow
    async def summed(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, "1"]:
        return total(second(first(x)))

    async with counted(devices, summed, arena_bytes=2**25) as orchestrator:
        x = np.ones(2 * N, np.float32)
        (y,) = await infer(orchestrator, summed, x)
        assert y.tolist() == [6.0 * 2 * N]
        assert devices[0].num_to_host == 1


async def test_rows_of_different_batches_and_views_are_joined_on_the_device(devices: dict[int, CountingDevice]) -> None:
    seen: list[tuple[int, ...]] = []
    first = scaler("first", 2, max_batch_size=1)

    @dyorc.program(device="counting", max_batch_size=8, pad=dyorc.pad(n=(4, 8), value=9))
    def second(x: Float[Tensor, "batch n"]) -> Float[Tensor, "batch n"]:
        seen.append(tuple(x.shape))
        return x + 1

    @dyorc.workflow
    async def tails(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " m"]:
        y = first(x)
        return second(y[::-1][1:])

    async with counted(devices, tails) as orchestrator:
        inputs = [np.arange(size, dtype=np.float32) for size in (4, 5, 6, 4, 5, 6)]
        answers = await asyncio.gather(*(infer(orchestrator, tails, x) for x in inputs))
        for x, (y,) in zip(inputs, answers, strict=True):
            np.testing.assert_array_equal(y, (2 * x)[::-1][1:] + 1)
        assert {shape[1] for shape in seen} <= {4, 8}
        assert devices[0].num_from_host == len(inputs)


async def test_a_result_moves_between_devices_without_the_host(devices: dict[int, CountingDevice]) -> None:
    first, second = scaler("first", 2), scaler("second", 3, device="counting:1")

    @dyorc.workflow
    async def pair(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        return second(first(x))

    async with counted(devices, pair) as orchestrator:
        (y,) = await infer(orchestrator, pair, X)
        np.testing.assert_array_equal(y, 6 * X)
        assert (devices[0].num_from_host, devices[0].num_to_host) == (1, 0)
        assert (devices[1].num_from_host, devices[1].num_from_device, devices[1].num_to_host) == (0, 1, 1)


async def test_results_beyond_the_limit_move_to_the_host_and_are_read_there(devices: dict[int, CountingDevice]) -> None:
    first, second = scaler("first", 2, max_batch_size=1), scaler("second", 3)
    gate = asyncio.Event()
    loop = asyncio.get_running_loop()

    @dyorc.program
    def wait(x: Float[np.ndarray, "batch 1"]) -> Float[np.ndarray, "batch 1"]:
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result(60)
        return x

    @dyorc.workflow
    async def late(x: Float[np.ndarray, " n"], go: Float[np.ndarray, "1"]) -> Float[np.ndarray, " n"]:
        y = first(x)
        await wait(go)
        return second(y)

    async with counted(devices, late, arena_bytes=2**26, device_bytes=5 * 2**20) as orchestrator:
        x = np.arange(N // 2 * 4, dtype=np.float32)  # 2 MiB
        go = np.zeros(1, np.float32)
        asked = [asyncio.create_task(infer(orchestrator, late, x + at, go)) for at in range(4)]
        link = lambda: orchestrator.report()["link"]  # noqa: E731
        await wait_until_async(lambda: link()["num_device_columns_moved_out"] == 2, "two have moved out")
        await wait_until_async(lambda: link()["device_bytes"] == 4 * 2**20, "two have stayed")
        gate.set()
        for at, (y,) in enumerate(await asyncio.gather(*asked)):
            np.testing.assert_array_equal(y, (x + at) * 6)
        assert devices[0].num_to_host >= 4 + 2
        del asked


async def test_a_program_without_memory_gets_that_of_results_and_runs_again(devices: dict[int, CountingDevice]) -> None:
    first = scaler("first", 2)
    runs: list[int] = []

    @dyorc.program(device="counting")
    def hungry(x: Float[Tensor, "batch n"]) -> Float[Tensor, "batch n"]:
        runs.append(len(x))
        if not devices[0].num_cache_freed:
            raise OutOfCountingMemoryError("tried to allocate 20 GiB")
        return x + 1

    @dyorc.workflow
    async def fed(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        return hungry(first(x))

    async with counted(devices, fed) as orchestrator:
        (y,) = await infer(orchestrator, fed, X)
        np.testing.assert_array_equal(y, 2 * X + 1)
        assert runs == [1, 1]
        assert devices[0].num_cache_freed == 1


async def test_an_error_for_want_of_memory_names_the_program_and_the_device(devices: dict[int, CountingDevice]) -> None:
    @dyorc.program(device="counting")
    def greedy(x: Float[Tensor, "batch n"]) -> Float[Tensor, "batch n"]:
        raise OutOfCountingMemoryError("tried to allocate 20 GiB")

    async with counted(devices, greedy) as orchestrator:
        with pytest.raises(ProgramError, match=r"'greedy' finds no memory on device counting:0.*20 GiB.*results that stay there"):
            await infer(orchestrator, dyorc.authoring.workflow.of_program(greedy), X)


async def test_a_write_to_an_input_is_an_error_and_others_get_a_new_one(devices: dict[int, CountingDevice]) -> None:
    first, second = scaler("first", 2), scaler("second", 3)

    @dyorc.program(device="counting")
    def careless(x: Float[Tensor, "batch n"]) -> Float[Tensor, "batch n"]:
        return x.add_(1)

    errors: list[str] = []

    @dyorc.workflow
    async def spoilt(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        y = first(x)
        try:
            await careless(y)
        except ProgramError as error:
            errors.append(str(error))
            return second(y)
        return y

    async with counted(devices, spoilt) as orchestrator:
        (z,) = await infer(orchestrator, spoilt, X)
        np.testing.assert_array_equal(z, 6 * X)
    assert "'careless' wrote to an input on device counting:0" in errors[0]


async def test_calls_of_a_batch_invariant_program_stay_on_the_device(devices: dict[int, CountingDevice]) -> None:
    first, second = scaler("first", 2, batch_invariant=True), scaler("second", 3)

    @dyorc.workflow
    async def pair(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        return second(first(x))

    async with counted(devices, pair) as orchestrator:
        answers = await asyncio.gather(*(infer(orchestrator, pair, X + at) for at in range(6)))
        for at, (y,) in enumerate(answers):
            np.testing.assert_array_equal(y, 6 * (X + at))
        assert devices[0].num_from_host == 6


async def test_a_single_call_that_is_no_batch_stays_on_the_device(devices: dict[int, CountingDevice]) -> None:
    @dyorc.program(device="counting", batched=False)
    def double(x: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        return torch.add(x, x)

    @dyorc.workflow
    async def twice(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        return double(double(x))

    async with counted(devices, twice) as orchestrator:
        (y,) = await infer(orchestrator, twice, X)
        np.testing.assert_array_equal(y, 4 * X)
        assert (devices[0].num_from_host, devices[0].num_to_host) == (1, 1)
