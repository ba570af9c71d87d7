import asyncio

import pytest

from dyorc.cluster import pending_requests
from dyorc.cluster.pending_requests import InputRetention
from dyorc.core.tensor import DType, TensorRef

INPUTS = (TensorRef(dtype=DType.INT64, shape=(100,), num_bytes=800, node="local", holder="", block=7),)


@pytest.fixture
def freed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    monkeypatch.setattr(pending_requests, "_LINGER_S", 0.0)
    return []


async def linger() -> None:
    """Lets the time pass in which a lost orchestrator's batches may still read."""
    await asyncio.sleep(0.001)


async def test_inputs_of_a_request_that_ends_between_two_orchestrators_are_freed(freed: list[int]) -> None:
    retention = InputRetention(freed.append)
    retention.keep(INPUTS)
    retention.lose_orchestrator()
    retention.end_request(INPUTS, was_sent=True)
    assert freed == []  # the lost orchestrator's batches may still read them
    await linger()
    assert freed == [7]


async def test_inputs_of_a_request_that_ends_long_after_its_orchestrator_are_freed(freed: list[int]) -> None:
    retention = InputRetention(freed.append)
    retention.keep(INPUTS)
    retention.lose_orchestrator()
    await linger()
    retention.end_request(INPUTS, was_sent=True)
    assert freed == [7]


async def test_inputs_that_are_submitted_again_are_kept_until_the_next_orchestrator_has_read_them(freed: list[int]) -> None:
    retention = InputRetention(freed.append)
    retention.keep(INPUTS)
    retention.lose_orchestrator()
    retention.resubmit(INPUTS)
    retention.end_request(INPUTS, was_sent=True)
    await linger()
    assert freed == []
    retention.release([7])
    assert freed == [7]
