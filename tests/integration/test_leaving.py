"""Replicas that Serve ends: what they run is not run twice, and what they hold is read."""

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from structlog.testing import capture_logs

from dyorc.replica.assignment import ForkServerSpec, Hosting, Identity, ProgramSource, ReplicaAssignment
from dyorc.replica.fork_client import ForkClient
from dyorc.replica.replica_monitor import ReplicaMonitor
from tests.asking import submission
from tests.deadlines import TIMEOUT_S, wait_until_async
from tests.integration.stack import Stack, running
from tests.workflows import leaving
from tests.workflows.leaving import noted, sums, total

_TARGET = f"{leaving.__file__}:sums"
_X = np.ones(65536, np.float32)


@pytest.fixture
def folder() -> Iterator[str]:
    """A folder with a short path, as sockets need."""
    found = tempfile.mkdtemp(prefix="t-", dir="/tmp")
    yield found
    shutil.rmtree(found)


@pytest.fixture
def client(folder: str) -> Iterator[ForkClient]:
    found = ForkClient(ForkServerSpec(folder=f"{folder}/forks"))
    found.open()
    yield found
    found.close(TIMEOUT_S)


def assignment_of(stack: Stack, client: ForkClient, replica_id: str) -> ReplicaAssignment:
    """Returns the assignment of a replica of `noted`."""
    source = ProgramSource(folder=client.folder, target=_TARGET, program="noted")
    identity = Identity(replica_id=replica_id, program="noted", node="here")
    return ReplicaAssignment(source=source, identity=identity, uplink=stack.uplink, num_threads=1, graceful_s=TIMEOUT_S)


def monitor(stack: Stack, client: ForkClient, replica_id: str) -> ReplicaMonitor:
    """Returns what a Serve replica of `noted` has."""
    place = ForkServerSpec(folder=client.folder)
    hosting = Hosting(
        place=place, num_threads=1, environment={}, graceful_s=TIMEOUT_S, ping_s=0.1,
        answer_timeout_s=TIMEOUT_S, stopped_timeout_s=TIMEOUT_S,
    )  # fmt: skip
    return ReplicaMonitor(ForkClient(place), assignment_of(stack, client, replica_id), hosting)


async def keep(stack: Stack, client: ForkClient, replica_id: str) -> ReplicaMonitor:
    """Does what a Serve replica of `noted` does. Returns once its process takes batches."""
    before = set(stack.status(noted).replica_pids)
    keeper = monitor(stack, client, replica_id)
    keeper.start()
    await wait_until_async(lambda: len(stack.status(noted).replica_pids) > len(before), "its process takes batches")
    return keeper


async def test_what_a_replica_runs_when_serve_ends_it_is_not_run_twice_and_its_tensors_are_read(
    folder: str, client: ForkClient
) -> None:
    runs, gate = Path(folder, "runs"), Path(folder, "open")
    async with running([sums], num_replicas=0) as stack, contextlib.AsyncExitStack() as keepers:
        first = await keep(stack, client, "first")
        (pid,) = stack.status(noted).replica_pids.values()
        answer = asyncio.create_task(stack.orchestrator.infer(submission(sums, [_X], (folder,))))
        await wait_until_async(runs.exists, "it runs")
        second = await keep(stack, client, "second")
        keepers.push_async_callback(asyncio.to_thread, second.stop)
        ending = asyncio.create_task(asyncio.to_thread(first.stop))
        replicas = stack.status(noted).replicas
        await wait_until_async(lambda: any(one.is_leaving for one in replicas.values()), "it has said that it leaves")
        gate.touch()  # noqa: ASYNC240
        await wait_until_async(lambda: len(stack.status(noted).replica_pids) == 1, "it is let go")
        assert psutil.pid_exists(pid), "it holds what nobody has read yet"
        await stack.start_worker(total)
        (y,) = await answer
        assert y == 2 * _X.size
        await ending
        await wait_until_async(lambda: not psutil.pid_exists(pid), "its process is gone")
        await wait_until_async(lambda: len(replicas) == 1, "it is gone")
    assert runs.read_text() == f"{pid}\n"  # noqa: ASYNC240


async def test_a_replica_without_an_orchestrator_does_not_wait_for_one(folder: str, client: ForkClient) -> None:
    async with running([sums], num_replicas=0) as stack:
        keeper = await keep(stack, client, "only")
        (pid,) = stack.status(noted).replica_pids.values()
    async with asyncio.timeout(TIMEOUT_S / 2):  # of the time that it could take
        await asyncio.to_thread(keeper.stop)
    await wait_until_async(lambda: not psutil.pid_exists(pid), "its process is gone")


@pytest.mark.parametrize("is_stopped", [True, False])
async def test_a_replica_that_was_stopped_is_no_reason_for_a_warning(folder: str, client: ForkClient, is_stopped: bool) -> None:
    async with running([sums], num_replicas=0) as stack:
        keeper = await keep(stack, client, "only")
        (pid,) = stack.status(noted).replica_pids.values()
        with capture_logs() as logs:
            if not is_stopped:
                os.kill(pid, signal.SIGKILL)
            await asyncio.to_thread(keeper.stop)
            left = lambda: [(log["replica"], log["log_level"]) for log in logs if log["event"] == "replica_left"]  # noqa: E731
            await wait_until_async(left, "it is gone")
    assert left()[0][1] == ("info" if is_stopped else "warning")


@pytest.mark.parametrize("is_ordered", [True, False])
async def test_a_process_that_ends_without_a_word_is_no_reason_for_a_warning_if_fewer_are_ordered(
    client: ForkClient, is_ordered: bool
) -> None:
    async with running([sums], num_replicas=0) as stack:
        owner = await asyncio.to_thread(client.fork, assignment_of(stack, client, "only"), is_adopted=False)
        await wait_until_async(lambda: bool(stack.status(noted).replica_pids), "it takes batches")
        with capture_logs() as logs:
            stack.orchestrator.want(noted.name, 0 if is_ordered else 1, 0)
            owner.close()  # as an owner does that needs fewer
            left = lambda: [log["log_level"] for log in logs if log["event"] == "replica_left"]  # noqa: E731
            await wait_until_async(left, "it is gone")
    assert left() == ["info" if is_ordered else "warning"]


async def test_a_process_goes_on_when_its_serve_replica_is_killed_and_the_next_one_adopts_it(
    folder: str, client: ForkClient
) -> None:
    runs, gate = Path(folder, "runs"), Path(folder, "open")
    async with running([sums], num_replicas=0) as stack:
        await stack.start_worker(total)
        owner = await asyncio.to_thread(client.fork, assignment_of(stack, client, "one"), is_adopted=True)
        await wait_until_async(lambda: bool(stack.status(noted).replica_pids), "it takes batches")
        (pid,) = stack.status(noted).replica_pids.values()
        answer = asyncio.create_task(stack.orchestrator.infer(submission(sums, [_X], (folder,))))
        await wait_until_async(runs.exists, "it runs")
        owner.close()  # as the kernel does for a process that is killed
        next_one = monitor(stack, client, "two")
        next_one.start()
        await wait_until_async(lambda: next_one._handle is not None, "the next one has a process")
        assert next_one._handle is not None
        assert next_one._handle.process.pid == pid
        gate.touch()  # noqa: ASYNC240
        (y,) = await answer
        assert y == 2 * _X.size
        assert list(stack.status(noted).replica_pids.values()) == [pid]
        await asyncio.to_thread(next_one.stop)
        await wait_until_async(lambda: not psutil.pid_exists(pid), "it ends with the next one")
    assert runs.read_text() == f"{pid}\n"  # noqa: ASYNC240


async def test_a_process_that_has_run_a_batch_is_replaced_at_once_however_often_it_is_killed(
    folder: str, client: ForkClient
) -> None:
    Path(folder, "open").touch()  # noqa: ASYNC240
    async with running([sums], num_replicas=0) as stack:
        await stack.start_worker(total)
        keeper = await keep(stack, client, "only")
        pids = lambda: set(stack.status(noted).replica_pids.values())  # noqa: E731
        for has_run in (True, True, True, False, False):
            (pid,) = pids()
            if has_run:
                await stack.orchestrator.infer(submission(sums, [_X], (folder,)))
                await wait_until_async(lambda: keeper._has_worked, "its monitor knows")
            os.kill(pid, signal.SIGKILL)
            await wait_until_async(lambda pid=pid: pids() and pid not in pids(), "there is another")
            assert has_run is (keeper._num_failures == 0), "it waits the longer the more have died without having run a batch"
        await asyncio.to_thread(keeper.stop)
