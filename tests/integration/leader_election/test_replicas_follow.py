"""Replicas stay loaded when their orchestrator is succeeded: they find the next leader, and heed no older one."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import numpy as np
import pytest
from jaxtyping import Float

import dyorc
from dyorc.config import OrchestratorConfig
from dyorc.leader_election.leader import Leader, LeaderTerm, lease_name, lease_of
from dyorc.models.registry import ModelRegistry
from dyorc.orchestrator.link_fleet import Site
from dyorc.orchestrator.linked_orchestrator import linked_orchestrator
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.replica.assignment import Identity, OrchestratorGroup, Uplink
from dyorc.replica.leader_link import LeaderTracker
from dyorc.replica.worker import Worker
from dyorc.store.lease_store import LeaseStore
from dyorc.store.opening import leases_of
from dyorc.transport.messages import BatchRequest, ReplicaHello, ReplicaWelcome, Warm, decode, encode
from tests.asking import submission
from tests.deadlines import wait_until, wait_until_async
from tests.integration.jobs.stored_jobs import LONG_S
from tests.integration.links.hub import Hub
from tests.integration.stack import FAST_LINK, FAST_TRANSPORT

_num_loads = 0


@dyorc.program(warmup=False)
class _Counted:
    """Counts how often it is loaded."""

    def __init__(self) -> None:
        global _num_loads
        _num_loads += 1

    def __call__(self, x: Float[np.ndarray, " batch"]) -> Float[np.ndarray, " batch"]:
        return x + _num_loads


Counted = _Counted()


class _Leaders:
    """Orchestrators of one group, at addresses of their own, and the store that says which one leads."""

    def __init__(self, folder: Path, leases: LeaseStore) -> None:
        self.setting = f"sqlite://{folder}/jobs.sqlite"
        self._folder = folder
        self._leases = leases
        self.heard_of: list[int] = []

    def address(self, name: str) -> str:
        return f"unix://{self._folder}/{name}"

    @asynccontextmanager
    async def leading(self, name: str, fence: int, plan: str = "") -> AsyncGenerator[Orchestrator]:
        """Runs one. The store does not know it yet."""
        lead = LeaderTerm(group="g", fence=fence, is_sure=lambda: True, report_fence=self.heard_of.append, is_lost=lambda: False)
        site = Site(
            address=self.address(name), link=FAST_LINK, transport=FAST_TRANSPORT, node="here", lead=lead,
            plans={Counted.name: plan} if plan else {},
        )  # fmt: skip
        async with linked_orchestrator(ModelRegistry.of([Counted]), OrchestratorConfig(), site) as (orchestrator, _):
            yield orchestrator

    async def tell(self, name: str, fence: int) -> None:
        """Has the store say that one leads."""
        leader = Leader(group="g", fence=fence, address="", replicas_address=self.address(name))
        assert await self._leases.renew_lease(lease_name("g"), name, LONG_S, lease_of(leader))

    @contextmanager
    def replica(self, name: str, plan: str = "") -> Generator[Worker]:
        """Starts a replica that was told of an orchestrator when Serve was asked for it."""
        uplink = Uplink(
            address=self.address(name),
            link=FAST_LINK,
            transport=FAST_TRANSPORT,
            group=OrchestratorGroup(name="g", store=self.setting),
        )
        worker = Worker(lambda: Counted, Identity(replica_id="one", program=Counted.name, node="here"), uplink, plan)
        try:
            yield worker
        finally:
            worker.stop()


@pytest.fixture
async def leaders(tmp_path: Path) -> AsyncGenerator[_Leaders]:
    global _num_loads
    _num_loads = 0
    async with leases_of(f"sqlite://{tmp_path}/jobs.sqlite") as leases:
        yield _Leaders(tmp_path, leases)


async def _answer(orchestrator: Orchestrator) -> float:
    await wait_until_async(lambda: orchestrator.status.is_ready, "the replica is there")
    return float((await orchestrator.infer(submission(Counted, [np.array(10, np.float32)])))[0])


async def test_a_loaded_replica_finds_the_next_leader_at_another_address(leaders: _Leaders) -> None:
    with leaders.replica("first") as worker:
        async with leaders.leading("first", 1) as first:
            await leaders.tell("first", 1)
            await asyncio.to_thread(worker.start)
            assert await _answer(first) == 11
        async with leaders.leading("second", 2) as second:
            await leaders.tell("second", 2)
            assert await _answer(second) == 11, "it was loaded once"


async def test_a_replica_leaves_a_leader_that_was_succeeded_although_it_runs(leaders: _Leaders) -> None:
    """Its leader believes that it leads, as after it was stopped for a while."""
    with leaders.replica("first") as worker:
        async with leaders.leading("first", 1) as first, leaders.leading("second", 2) as second:
            await leaders.tell("first", 1)
            await asyncio.to_thread(worker.start)
            assert await _answer(first) == 11
            await leaders.tell("second", 2)
            assert await _answer(second) == 11
            assert not first.status.is_ready


async def test_a_replica_that_starts_late_looks_before_it_dials(leaders: _Leaders) -> None:
    async with leaders.leading("first", 1) as first, leaders.leading("second", 2) as second:
        await leaders.tell("second", 2)
        with leaders.replica("first") as worker:
            await asyncio.to_thread(worker.start)
            assert await _answer(second) == 11
            assert not first.status.programs[Counted.name].replicas


async def test_nothing_is_used_that_a_leader_with_an_older_fence_says(leaders: _Leaders) -> None:
    """It listens where the replica dials, as behind an address that several orchestrators share."""
    with leaders.replica("shared") as worker:
        async with leaders.leading("shared", 2) as second:
            await leaders.tell("shared", 2)
            await asyncio.to_thread(worker.start)
            assert await _answer(second) == 11
        async with Hub(leaders.address("shared")) as stale:
            await wait_until_async(lambda: stale.heard, "the replica dials")
            peer = stale.heard[-1][0]
            batch = BatchRequest(1, ())
            for message in (ReplicaWelcome(1), Warm(), batch):
                assert stale.link.send(peer, [encode(message)])
            num_before = len(stale.heard)
            await wait_until_async(lambda: len(stale.heard) > num_before + 2, "it has read them, and says hello again")
            said = {decode(frames[0]) for _, frames in stale.heard}
            assert {type(one) for one in said} == {ReplicaHello}, "no batch was answered"
            assert {one.fence for one in said if isinstance(one, ReplicaHello)} == {2}
        async with leaders.leading("shared", 3) as third:
            assert await _answer(third) == 11


async def test_a_leader_is_told_of_a_higher_fence_that_a_replica_knows(leaders: _Leaders) -> None:
    with leaders.replica("shared") as worker:
        async with leaders.leading("shared", 2) as second:
            await leaders.tell("shared", 2)
            await asyncio.to_thread(worker.start)
            assert await _answer(second) == 11
        async with leaders.leading("shared", 1) as first:
            await wait_until_async(lambda: leaders.heard_of, "the replica dials")
            assert set(leaders.heard_of) == {2}
            assert not first.status.is_ready


async def test_a_replica_of_other_code_is_not_taken(leaders: _Leaders) -> None:
    async with leaders.leading("first", 1, plan="new") as first:
        with leaders.replica("first", plan="old") as worker:
            await asyncio.to_thread(worker.start)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(10 * FAST_LINK.announce_interval_s):
                    await wait_until_async(lambda: first.status.programs[Counted.name].replicas, "never")
            assert not first.status.programs[Counted.name].replicas
        with leaders.replica("first", plan="new") as worker:
            await asyncio.to_thread(worker.start)
            assert await _answer(first) == 11


def test_a_store_that_does_not_answer_does_not_keep_a_replica_from_its_batches(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as redis:  # it accepts connections, and never says anything
        redis.bind(str(tmp_path / "redis"))
        redis.listen()
        group = OrchestratorGroup(name="g", store=f"unix://{tmp_path}/redis")
        following = LeaderTracker(Uplink(address="unix:///there", link=FAST_LINK, transport=FAST_TRANSPORT, group=group))
        following.look()
        assert following.is_looking
        assert following.address == "unix:///there"
        wait_until(lambda: not following.is_looking, "it gives up")
