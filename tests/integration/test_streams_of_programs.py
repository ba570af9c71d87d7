"""Workflows over programs that yield and read each other's streams, with replicas in processes of their own."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dyorc.authoring.program import Program
from dyorc.errors import EffectLostError
from tests.asking import submission
from tests.deadlines import wait_until_async
from tests.integration.stack import Stack, running
from tests.workflows import relayed

_TARGET = str(Path(relayed.__file__))


def number(value: int) -> Any:
    return np.array(value)


async def values(stack: Stack, workflow: Any, *statics: Any, first: int = 1, found: list[int] | None = None) -> list[int]:
    """Returns the parts of a streaming request, each by its first element; adds them to `found` as they come."""
    found = [] if found is None else found
    async for together in stack.orchestrator.stream(submission(workflow, [number(first)], statics)):
        found.extend(int(part[0].reshape(-1)[0]) for part in together)
    return found


async def start(stack: Stack, workflow: str, *programs: Program, number: int = 1) -> None:
    """Starts replicas in processes of their own."""
    for program in programs:
        for at in range(number):
            await stack.start_process(f"{_TARGET}:{workflow}", program, f"{program.name}-{at}")


async def until_idle(stack: Stack) -> None:
    """Waits until nothing runs, and no memory is taken."""
    await wait_until_async(lambda: not stack.orchestrator.num_requests, "no request is left")
    arenas = lambda: stack.orchestrator.report()["tensors"]  # noqa: E731
    await wait_until_async(lambda: not any(arena["used_bytes"] for arena in arenas()["arenas"].values()), "no memory is taken")


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Names the file in which programs note what they do, here and in other processes."""
    path = tmp_path / "notes"
    path.touch()
    monkeypatch.setenv(relayed.NOTES, str(path))
    return path


def lines(notes: Path) -> list[str]:
    """Returns what programs have noted."""
    return notes.read_text().splitlines()


async def test_three_programs_read_each_others_streams_replica_to_replica() -> None:
    async with running([relayed.relay, relayed.relay_to_the_end], num_replicas=0) as stack:
        await start(stack, "relay", relayed.numbers, relayed.doubled, relayed.added)
        await start(stack, "relay_to_the_end", relayed.last)
        asked = [values(stack, relayed.relay, 50, 0.001, first=first) for first in range(4)]
        for first, found in enumerate(await asyncio.gather(*asked)):
            assert found == [int(total) for total in np.cumsum([2 * (first + at) for at in range(50)])]
        ends = await stack.orchestrator.infer(submission(relayed.relay_to_the_end, [number(5)], (50, 0.0)))
        assert [int(end) for end in ends] == [54, 108]
        await until_idle(stack)


async def test_parts_of_8_mb_go_from_replica_to_replica_by_shared_memory() -> None:
    async with running([relayed.gallery], num_replicas=0) as stack:
        await start(stack, "gallery", relayed.pictures, relayed.brighter)
        assert await values(stack, relayed.gallery, 60) == [2 + at for at in range(60)], "an arena has room for 8"
        sent = stack.orchestrator.report()["link"]
        assert sent["num_bytes_sent"] + sent["num_bytes_received"] < 100_000, "no part went through the orchestrator's link"
        await until_idle(stack)


async def test_a_killed_replica_costs_no_part_and_none_comes_twice() -> None:
    async with running([relayed.relay], num_replicas=0) as stack:
        await start(stack, "relay", relayed.numbers, relayed.doubled, relayed.added, number=2)
        for victim in (relayed.numbers, relayed.doubled, relayed.added):
            found: list[int] = []
            asked = [
                asyncio.create_task(values(stack, relayed.relay, 200, 0.002, found=found if at == 0 else None)) for at in range(4)
            ]
            await wait_until_async(lambda found=found: len(found) > 20, "the first parts")
            stack.processes[f"{victim.name}-0"].kill()
            expected = [int(total) for total in np.cumsum([2 * (1 + at) for at in range(200)])]
            assert await asyncio.gather(*asked) == [expected] * 4
        await until_idle(stack)


async def test_parts_of_a_killed_replica_that_were_read_are_read_again_by_others() -> None:
    """Tensors in its memory are gone, though they were delivered."""
    async with running([relayed.gallery], num_replicas=0) as stack:
        await start(stack, "gallery", relayed.pictures, relayed.brighter, number=2)
        for victim in (relayed.pictures, relayed.brighter):
            found: list[int] = []
            asked = asyncio.create_task(values(stack, relayed.gallery, 60, found=found))
            await wait_until_async(lambda found=found: len(found) > 20, "the first parts")
            stack.processes[f"{victim.name}-0"].kill()
            assert await asked == [2 + at for at in range(60)]
        await until_idle(stack)


async def test_the_stream_of_a_killed_replica_that_had_effects_fails_after_its_parts(notes: Path) -> None:
    async with running([relayed.act], num_replicas=0) as stack:
        await start(stack, "act", relayed.effects, number=2)
        found: list[int] = []
        asked = asyncio.create_task(values(stack, relayed.act, 10_000, 0.005, first=7, found=found))
        await wait_until_async(lambda: len(found) > 5, "the first parts")
        for process in stack.processes.values():
            process.kill()
        with pytest.raises(EffectLostError):
            await asked
        assert found == list(range(7, 7 + len(found)))
        assert lines(notes) == ["effects from 7 begun"]


async def test_a_slow_client_slows_its_own_stream_only(notes: Path) -> None:
    async with running([relayed.count], num_replicas=0) as stack:
        await start(stack, "count", relayed.numbers)
        slow = stack.orchestrator.stream(submission(relayed.count, [number(1000)], (1000, 0.0)))
        assert int((await anext(slow))[0][0]) == 1000
        assert await values(stack, relayed.count, 1000, 0.0) == list(range(1, 1001))
        assert "numbers from 1000 closed" not in lines(notes), "it waits for its reader"
        rest = [int(part[0]) async for together in slow for part in together]
        assert rest[-1] == 1999
        await until_idle(stack)


async def test_a_client_that_goes_away_closes_all_generators(notes: Path) -> None:
    async with running([relayed.relay], num_replicas=0) as stack:
        await start(stack, "relay", relayed.numbers, relayed.doubled, relayed.added)
        found: list[int] = []
        asked = asyncio.create_task(values(stack, relayed.relay, 100_000, 0.001, found=found))
        await wait_until_async(lambda: len(found) > 5, "the first parts")
        asked.cancel()
        await wait_until_async(lambda: len(lines(notes)) == 2, "they are closed")
        assert sorted(lines(notes)) == ["doubled closed", "numbers from 1 closed"]
        await until_idle(stack)
        assert await values(stack, relayed.relay, 3, 0.0) == [2, 6, 12], "the replicas go on"


async def test_a_stopped_replica_is_noticed_and_its_stream_goes_on_elsewhere() -> None:
    async with running([relayed.count], num_replicas=0) as stack:
        await start(stack, "count", relayed.numbers)
        found: list[int] = []
        asked = asyncio.create_task(values(stack, relayed.count, 300, 0.005, found=found))
        await wait_until_async(lambda: len(found) > 5, "the first parts")
        os.kill(stack.processes["numbers-0"].pid, signal.SIGSTOP)
        await stack.start_process(f"{_TARGET}:count", relayed.numbers, "other")
        assert await asked == list(range(1, 301))
        os.kill(stack.processes["numbers-0"].pid, signal.SIGCONT)
        await stack.wait_for_replica(relayed.numbers, "numbers-0")
        assert await values(stack, relayed.count, 5, 0.0) == [1, 2, 3, 4, 5]
        await until_idle(stack)
