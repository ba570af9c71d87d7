"""A gateway on another machine than its orchestrator, by ZeroMQ with keys: requests by the link, large tensors past it."""

from collections.abc import AsyncIterator
from typing import NamedTuple

import numpy as np
import pytest

from dyorc.answering.local_answers import own_arrays
from dyorc.cluster.remote_backend import RemoteBackend
from dyorc.transport.cluster_network import ClusterSecrets, NodeNetwork
from tests.asking import submission
from tests.deadlines import wait_until_async
from tests.integration.cluster.ends import Told, gateway, gateway_server_of
from tests.integration.stack import Stack, running, within
from tests.workflows import arithmetic, large, streaming

RAMP = np.arange(large.NUM_VALUES, dtype=np.float32)


class Parted(NamedTuple):
    """A gateway's end, and what is behind it."""

    stack: Stack
    backend: RemoteBackend


@pytest.fixture(scope="module")
async def parted(leaves_nothing: None) -> AsyncIterator[Parted]:
    network = NodeNetwork(host="127.0.0.1", secrets=ClusterSecrets.generate())
    targets = [arithmetic.quadruple, large.whole, large.summed, streaming.ramps]
    async with (
        running(targets, network=network) as stack,
        gateway_server_of(stack.orchestrator, "tcp://127.0.0.1:*", network) as gateway_server,
    ):
        leaders = Told()
        leaders.tell(gateway_server)
        async with gateway(leaders, node="there", network=network) as backend:
            await wait_until_async(lambda: backend.status.programs and backend.status.is_ready, "programs are loaded")
            yield Parted(stack, backend)


async def nothing_is_left(parted: Parted) -> None:
    """Waits until no tensor is kept anywhere."""
    ends = [parted.backend.tensors.exchange, parted.stack.orchestrator.tensors.exchange]
    await wait_until_async(lambda: not any(end.num_tensors for end in ends), "all tensors are freed")
    await wait_until_async(lambda: not parted.stack.orchestrator.num_requests, "the orchestrator has forgotten all requests")


async def test_small_tensors_travel_with_the_messages(parted: Parted) -> None:
    x = np.array([1, 2, 3, 4], np.float32)
    for number in range(20):
        (y,) = await parted.backend.infer(submission(arithmetic.quadruple, [x + number], (), within(60)), take=own_arrays)
        np.testing.assert_array_equal(y, (x + number) * 4)
    await nothing_is_left(parted)


async def test_a_large_input_is_read_by_the_replica_where_it_lies(parted: Parted) -> None:
    x = np.ones(8_000_000, np.uint8)
    (total,) = await parted.backend.infer(submission(large.summed, [x], (), within(60)), take=own_arrays)
    assert total == 8_000_000
    await nothing_is_left(parted)


async def test_a_large_answer_is_read_by_the_gateway_where_it_lies(parted: Parted) -> None:
    (y,) = await parted.backend.infer(submission(large.whole, [np.array([5], np.float32)], (), within(60)), take=own_arrays)
    np.testing.assert_array_equal(y, RAMP + 6)
    await nothing_is_left(parted)


async def test_large_parts_come_in_order(parted: Parted) -> None:
    asked = submission(streaming.ramps, [np.array([1], np.float32)], (5,), within(60))
    firsts: list[float] = []
    async for parts in parted.backend.stream(asked, take=own_arrays):
        for (part,) in parts:
            np.testing.assert_array_equal(part, RAMP + part[0])
            firsts.append(float(part[0]))
    assert firsts == [1, 2, 3, 4, 5]
    await nothing_is_left(parted)
