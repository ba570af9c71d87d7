"""Gateways outlive their orchestrators: what is unanswered is answered by the next, and nothing has an effect twice."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.asking import submission
from tests.chaos.parted import Group, ask, gateway
from tests.chaos.parted_storm import storm
from tests.deadlines import wait_until_async
from tests.integration.stack import within
from tests.workflows import parted

pytestmark = pytest.mark.anyio


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    """Starts one orchestrator."""
    found = Group(tmp_path)
    found.start()
    try:
        yield found
    finally:
        found.close()


async def test_requests_parts_and_stored_tensors_pass_between_processes(group: Group) -> None:
    async with gateway(group.folder, "gateway-1") as first, gateway(group.folder, "gateway-2") as second:
        await wait_until_async(lambda: bool(first.status.programs) and first.status.is_ready, "programs are loaded")
        await wait_until_async(lambda: second.is_connected, "the other is there")
        assert {offer.name for offer in first.offers.all} >= {"squared", "doubled", "noted", "counted"}
        for backend in (first, second):
            (y, pid) = await ask(backend, parted.squared, [7])
            assert (int(y), int(pid)) == (50, group.processes[0].pid)
            large = np.arange(100_000, dtype=np.float32)
            (y,) = await ask(backend, parted.doubled, [large])
            np.testing.assert_array_equal(y, large * 4)
            parts = backend.stream(
                submission(parted.counted, [np.asarray(1)], (12,), within(60)), take=lambda arrays: int(arrays[0])
            )
            assert [part async for together in parts for part in together] == [(1 + step) ** 2 + 1 for step in range(12)]
            (y,) = await ask(backend, parted.noted, [5], str(group.folder))
            assert int(y) == 6
            arena = backend.tensors.exchange.arena
            await wait_until_async(lambda arena=arena: arena.num_blocks == 0, "all inputs are freed")
        await first.refresh()
        assert first.levels().programs["doubled_program"].num_calls == 4
        assert first.statistics("squared").inference_count == 2


async def test_killed_orchestrators_cost_no_answer_and_no_effect_is_had_twice(group: Group) -> None:
    """The long form of this is `make chaos-services`."""
    found = await storm(group, num_kills=3, num_clients=8)
    assert found["failed"] == found["wrong"] == found["run_twice"] == 0, found
    assert found["requests"] > 50, found
