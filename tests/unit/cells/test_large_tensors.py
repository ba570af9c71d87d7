"""Tensors that a cell's programs read and write where they lie."""

import asyncio
import os
from pathlib import Path

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.errors import PayloadTooLargeError, ProgramError
from tests.asking import submission
from tests.deadlines import wait_until_async
from tests.shared_folders import arena_folder
from tests.unit.cells.celled import X, ask, celled, program_of

pytestmark = pytest.mark.anyio


async def test_large_tensors_lie_in_an_arena_without_a_name_until_nobody_needs_them() -> None:
    program = program_of(lambda: lambda x: x + 1)
    x = np.zeros(2**19, np.float32)
    async with celled(program, arena_bytes=2**25) as orchestrator:
        for _ in range(20):
            np.testing.assert_array_equal(await ask(orchestrator, program, x), x + 1)
        assert orchestrator.tensors.exchange.arena.name not in os.listdir(arena_folder())
        report = orchestrator.tensors.report()
        assert report["arenas"]["server"]["size_bytes"] == 2**25
        await wait_until_async(lambda: orchestrator.tensors.report()["num_blocks"] == 0, "all are released")


async def test_a_tensor_that_the_arena_can_never_hold_is_refused() -> None:
    program = program_of(lambda: lambda x: np.repeat(x, 3, axis=1))
    async with celled(program, arena_bytes=2**23) as orchestrator:
        with pytest.raises(PayloadTooLargeError, match="16777216 bytes"):
            await ask(orchestrator, program, np.zeros(2**22, np.float32))
        with pytest.raises(ProgramError, match="arena"):
            await ask(orchestrator, program, np.zeros(2**20, np.float32))
        np.testing.assert_array_equal(await ask(orchestrator, program, X), np.repeat(X, 3))


@dyorc.program(max_batch_size=2)
class Ramp:
    """Writes a large tensor into memory that it asks for."""

    def __call__(self, start: Float[np.ndarray, "batch 1"]) -> Float[np.ndarray, "batch 1000000"]:
        found = dyorc.empty((len(start), 1_000_000), np.float32)
        found[...] = start + np.arange(1_000_000, dtype=np.float32)
        return found


@dyorc.program(max_batch_size=2)
class Scribble:
    """Writes to its input."""

    def __call__(self, x: Float[np.ndarray, "batch 1000000"]) -> Float[np.ndarray, "batch 1"]:
        first = x[:, :1].copy()
        x[:, ::1000] = -1
        return first + x[:, -1:]


@dyorc.program
class Mirror:
    """Returns its input, changed where it lies."""

    def __call__(self, x: Float[np.ndarray, "batch 1000000"]) -> Float[np.ndarray, "batch 1000000"]:
        x *= -1
        return x


ramp, scribble, mirror = Ramp(), Scribble(), Mirror()


@dyorc.workflow
async def scribbled(start: Float[np.ndarray, "1"]) -> Float[np.ndarray, "4"]:
    x = ramp(start)
    first, second = await dyorc.gather(scribble(x), scribble(x))
    turned = mirror(x)
    third = await scribble(x)
    values = await turned
    return np.concatenate([first, second, third, values[:1] + values[-1:]])


@pytest.mark.parametrize("limit_s", [0.0, 1.0])
async def test_what_a_program_writes_to_a_large_input_reaches_nobody_else(limit_s: float) -> None:
    async with celled(scribbled, inline_limit_s=limit_s, arena_bytes=2**28) as orchestrator:
        for turn in range(15):
            starts = [np.array([turn + 10 * number], np.float32) for number in range(4)]
            found = await asyncio.gather(*(orchestrator.infer(submission(scribbled, [start])) for start in starts))
            for start, (sums,) in zip(starts, found, strict=True):
                total = 2 * start[0] + 999_999
                np.testing.assert_array_equal(sums, [total, total, total, -total])
        link = orchestrator.report()["link"]
        assert link["num_batches_inline"] if limit_s else not link["num_batches_inline"]
        await wait_until_async(lambda: orchestrator.tensors.report()["num_blocks"] == 0, "all are released")


def mapped_arenas() -> list[tuple[int, int]]:
    """Returns where this process maps arenas without a name."""
    lines = [line.split()[0] for line in Path("/proc/self/maps").read_text().splitlines() if "memfd:dyorc-arena" in line]
    ends = [line.split("-") for line in lines]
    return [(int(start, 16), int(end, 16)) for start, end in ends]


async def test_a_large_tensor_goes_from_program_to_program_without_a_copy() -> None:
    places: list[int] = []

    @dyorc.program(name="look")
    def look(x: Float[np.ndarray, "batch 1000000"]) -> Float[np.ndarray, "batch 1"]:
        places.append(x.ctypes.data)
        return x[:, -1:].copy()

    @dyorc.workflow(name="looked", programs=[ramp, look])
    async def looked(start: Float[np.ndarray, "1"]) -> Float[np.ndarray, "1"]:
        return look(ramp(start))

    async with celled(looked, arena_bytes=2**28) as orchestrator:
        for _ in range(5):
            (last,) = await orchestrator.infer(submission(looked, [np.zeros(1, np.float32)]))
            assert last == 999_999
        assert all(any(start <= place < end for start, end in mapped_arenas()) for place in places)
