"""Replicas that are parked and warmed while requests come: every request is answered, and answered right."""

import asyncio
import contextlib
import gc
import itertools
import os
from collections.abc import AsyncGenerator
from pathlib import Path

import numpy as np
import pytest

from dyorc.core.request import Terms
from dyorc.errors import DeadlineError
from dyorc.models.status import ProgramState, ReplicaState
from tests.asking import submission
from tests.deadlines import wait_until_async
from tests.integration.stack import Stack, running
from tests.workflows import weights
from tests.workflows.weights import fourfold, weighted

_TARGET = f"{weights.__file__}:fourfold"
_NUM_CLIENTS = 4
_X = np.arange(4, dtype=np.float32)


class Clients:
    """Clients that send one request after the other and check every answer."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._is_enough = asyncio.Event()
        self.num_answers = 0

    @contextlib.asynccontextmanager
    async def sending(self) -> AsyncGenerator[None]:
        async with asyncio.TaskGroup() as group:
            for client in range(_NUM_CLIENTS):
                group.create_task(self._send(client))
            yield
            self._is_enough.set()

    async def _send(self, client: int) -> None:
        for number in itertools.count():
            if self._is_enough.is_set():
                return
            x = np.array([client, number, 1, -1], np.float32)
            (y,) = await self._stack.orchestrator.infer(submission(fourfold, [x]))
            np.testing.assert_array_equal(y, x * 4)
            self.num_answers += 1
            await asyncio.sleep(0.002)  # keeps the load small

    async def more(self) -> None:
        """Waits for more answers."""
        enough = self.num_answers + 20
        await wait_until_async(lambda: self.num_answers >= enough, "more answers come")


def states(stack: Stack) -> dict[str, ReplicaState]:
    return {name: one.state for name, one in stack.status(weighted).replicas.items()}


async def reach(stack: Stack, **counts: int) -> None:
    """Waits until there are so many replicas of some states."""

    def is_there() -> bool:
        found = stack.status(weighted).counts()
        return all(getattr(found, name) == number for name, number in counts.items())

    await wait_until_async(is_there, f"there are {counts}")


async def ask(stack: Stack) -> None:
    (y,) = await stack.orchestrator.infer(submission(fourfold, [_X]))
    np.testing.assert_array_equal(y, 4 * _X)


async def test_a_replica_is_parked_and_warmed_while_clients_send() -> None:
    async with running([fourfold], num_replicas=0) as stack:
        for name in ("first", "second"):
            await stack.start_process(_TARGET, weighted, name)
        clients = Clients(stack)
        async with clients.sending():
            for _ in range(5):
                stack.orchestrator.want("weighted", 1, 1)
                await reach(stack, warm=1, parked=1)
                await clients.more()
                stack.orchestrator.want("weighted", 2, 0)
                await reach(stack, warm=2)
                await clients.more()
        lead = stack.status(weighted).lead
        assert lead is not None
        assert 0 < lead.from_parked_s < lead.from_cold_s


async def test_requests_are_held_while_a_program_is_scaled_to_zero_and_back() -> None:
    async with running([fourfold], num_replicas=0) as stack:
        await stack.start_process(_TARGET, weighted, "only")
        for _ in range(3):
            held = [asyncio.create_task(ask(stack)) for _ in range(3)]
            stack.orchestrator.want("weighted", 0, 1)
            await reach(stack, warm=0, parked=1)
            assert stack.status(weighted).state is ProgramState.PARKED
            assert stack.orchestrator.status.is_ready, "it is as it should be"
            held += [asyncio.create_task(ask(stack)) for _ in range(10)]
            await asyncio.sleep(0)
            assert stack.orchestrator.num_requests >= 10
            stack.orchestrator.want("weighted", 1, 0)
            await asyncio.gather(*held)


async def test_tensors_of_a_parked_replica_are_read_by_others() -> None:
    async with running([fourfold], num_replicas=0) as stack:
        await stack.start_process(_TARGET, weighted, "first")
        (y,) = await stack.orchestrator.infer(submission(fourfold, [_X]))
        np.testing.assert_array_equal(y, 4 * _X)
        stack.orchestrator.want("weighted", 0, 1)
        await reach(stack, parked=1)
        held = asyncio.create_task(ask(stack))
        stack.orchestrator.want("weighted", 1, 0)
        await held
        assert stack.status(weighted).replicas["first"].load_s > 0


async def test_a_request_that_cannot_wait_until_a_program_is_warm_fails_at_once() -> None:
    async with running([fourfold], num_replicas=0) as stack:
        stack.orchestrator.want("weighted", 0, 0, lead_s=60.0)
        deadline_ns = asyncio.get_running_loop().time() + 5
        terms = Terms(deadline_ns=int(deadline_ns * 1e9))
        with pytest.raises(DeadlineError, match="program 'weighted' is cold; a replica takes about 60 s to be ready"):
            await stack.orchestrator.infer(submission(fourfold, [_X], terms=terms))


async def test_a_parked_replica_is_killed() -> None:
    async with running([fourfold], num_replicas=0) as stack:
        for name in ("first", "second"):
            await stack.start_process(_TARGET, weighted, name)
        clients = Clients(stack)
        async with clients.sending():
            stack.orchestrator.want("weighted", 1, 1)
            await reach(stack, warm=1, parked=1)
            (victim,) = (name for name, state in states(stack).items() if state is not ReplicaState.READY)
            stack.processes[victim].kill()
            await reach(stack, parked=0)
            await clients.more()
            await stack.spawn_and_wait(_TARGET, weighted, "third", ReplicaState.PARKED)
            stack.orchestrator.want("weighted", 2, 0)
            await reach(stack, warm=2)
            await clients.more()


async def test_a_warming_replica_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(weights.GATE, str(tmp_path))
    async with running([fourfold], num_replicas=0) as stack:
        stack.orchestrator.want("weighted", 0, 2)
        for name in ("first", "second"):
            await stack.spawn_and_wait(_TARGET, weighted, name, ReplicaState.PARKED)
        held = [asyncio.create_task(ask(stack)) for _ in range(5)]
        stack.orchestrator.want("weighted", 1, 1)
        await reach(stack, warming=1, parked=1)
        (victim,) = (name for name, state in states(stack).items() if state is ReplicaState.LOADING)
        await wait_until_async(lambda: len(list(tmp_path.iterdir())) == 1, "it has begun to load")
        stack.processes[victim].kill()
        await wait_until_async(lambda: victim not in states(stack), "its death is noticed")
        assert list(states(stack).values()) == [ReplicaState.LOADING], "the other one takes its place"
        (tmp_path / "open").touch()
        await asyncio.gather(*held)


async def test_a_parked_replica_holds_no_weights() -> None:
    async with running([fourfold]) as stack:
        await ask(stack)
        gc.collect()
        num_before = len(weights.alive)
        stack.orchestrator.want("weighted", 0, 1)
        await reach(stack, parked=1)
        assert len(weights.alive) == num_before - 1
        stack.orchestrator.want("weighted", 1, 0)
        await ask(stack)


async def test_a_replica_that_cannot_load_stays_and_is_told_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds no gate folder; later there is one."""
    monkeypatch.setenv(weights.GATE, str(tmp_path / "missing"))
    async with running([fourfold], num_replicas=0) as stack:
        await stack.start_worker(weighted, "only")
        assert stack.status(weighted).state is ProgramState.FAILING
        held = asyncio.create_task(ask(stack))
        os.mkdir(tmp_path / "missing")
        (tmp_path / "missing" / "open").touch()
        await held
        assert list(states(stack)) == ["only"]
        assert stack.status(weighted).error == ""
