"""Results that stay on the device between replicas: in processes of their own, and in one that a group shares."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.core.arrays import Array
from tests.asking import submission
from tests.counting_device import CountingDevice, counting_devices, sweep_shared_memory
from tests.deadlines import wait_until_async
from tests.integration.stack import Stack, running
from tests.server_process import target
from tests.workflows.device_chain import on_host, read_back, scale, shift, spoil, spoilt, summed, total

N = 100_000
X = np.arange(N, dtype=np.float32) / N
CHAIN = (scale, shift, total)
OWNER = {"on_host": "read_back", "spoil": "spoilt"}
"""The workflow of programs that the chain has not."""


async def ask(stack: Stack, workflow: Workflow, x: Array) -> list[Any]:
    return list(await stack.orchestrator.infer(submission(workflow, [x])))


async def wait_until_released(stack: Stack) -> None:
    """Waits until no arena has a block: neither the server's nor a replica's."""
    tensors = stack.orchestrator.tensors
    await wait_until_async(
        lambda: all(usage.used_bytes == 0 for usage in tensors.usage_of_arenas().values()), "all arenas are empty"
    )


async def start(stack: Stack, programs: Sequence[Program]) -> None:
    """Starts a process for each program."""
    for program in programs:
        stack.spawn(target("device_chain", OWNER.get(program.name, "summed")), program, f"{program.name}-far")
    for program in programs:
        await stack.wait_for_replica(program, f"{program.name}-far")


@pytest.fixture(scope="module")
async def apart(leaves_nothing: None) -> AsyncIterator[Stack]:
    """Starts a server whose programs have a process each."""
    async with running([summed, read_back, spoilt], num_replicas=0) as stack:
        await start(stack, (*CHAIN, on_host, spoil))
        yield stack


async def test_a_chain_through_three_processes_makes_no_copy_to_the_host(apart: Stack) -> None:
    for number in range(1, 4):
        sums, *counts = await ask(apart, summed, X + number)
        np.testing.assert_allclose(sums, [(2 * (X + number) + 1).sum()], rtol=1e-5)
        of_scale, of_shift, of_total = (count.tolist() for count in counts)
        assert of_scale == [number, 0]  # the request's input
        assert of_shift == [0, 0]
        assert of_total == [0, number - 1]  # small results travel in messages
    await wait_until_released(apart)


async def test_requests_side_by_side_share_batches_there(apart: Stack) -> None:
    answers = await asyncio.gather(*(ask(apart, summed, X + at) for at in range(12)))
    for at, (sums, *_) in enumerate(answers):
        np.testing.assert_allclose(sums, [(2 * (X + at) + 1).sum()], rtol=1e-5)
    await wait_until_released(apart)


async def test_results_that_others_need_come_to_the_host_once(apart: Stack) -> None:
    before = (await ask(apart, read_back, X))[2]
    y, tail, counts = await ask(apart, read_back, X)
    np.testing.assert_array_equal(y, X + 1)
    np.testing.assert_array_equal(tail, 3 * (X + 1)[1:][::-1])
    assert counts[1] - before[1] == 1
    del y, tail
    await wait_until_released(apart)


async def test_a_program_that_writes_to_an_input_fails_and_others_get_a_new_one(apart: Stack) -> None:
    (z,) = await ask(apart, spoilt, X)
    np.testing.assert_array_equal(z, 3 * (X + 1))
    del z
    await wait_until_released(apart)


@pytest.fixture(scope="module", autouse=True)
def nothing_on_the_device(leaves_nothing: None) -> Iterator[None]:
    yield
    sweep_shared_memory()


async def test_results_of_a_process_that_was_killed_are_computed_again(leaves_nothing: None) -> None:
    async with running([summed], num_replicas=0) as stack:
        await start(stack, (scale, total))
        asked = asyncio.create_task(ask(stack, summed, X))
        moved = lambda: stack.orchestrator.tensors.usage_of_arenas()["scale-far"].used_bytes  # noqa: E731
        await wait_until_async(lambda: moved() > 0, "the first result is on the device")
        stack.processes["scale-far"].send_signal(signal.SIGKILL)
        stack.spawn(target("device_chain", "summed"), scale, "scale-again")
        stack.spawn(target("device_chain", "summed"), shift, "shift-far")
        sums, *_ = await asked
        np.testing.assert_allclose(sums, [(2 * X + 1).sum()], rtol=1e-5)


@pytest.fixture
def devices() -> Iterator[dict[int, CountingDevice]]:
    with counting_devices() as devices:
        yield devices


async def test_programs_of_one_process_open_nothing(leaves_nothing: None, devices: dict[int, CountingDevice]) -> None:
    async with running([summed]) as stack:
        device = devices[0]
        device.reset()
        await ask(stack, summed, X)
        assert (device.num_from_host, device.num_to_host, device.num_open) == (1, 1, 0)
        assert device.num_shared == 2
    assert device.num_shared == 0


async def test_a_parked_replica_gives_its_memory_back(leaves_nothing: None, devices: dict[int, CountingDevice]) -> None:
    async with running([summed]) as stack:
        await ask(stack, summed, X)
        await wait_until_released(stack)
        assert devices[0].num_shared == 2
        for program in CHAIN:
            await stack.orchestrator.scale(program.name, 0, 1)
        await wait_until_async(lambda: devices[0].num_shared == 0, "the slabs are given up")
        for program in CHAIN:
            await stack.orchestrator.scale(program.name, 1, 0)
        await ask(stack, summed, X)
