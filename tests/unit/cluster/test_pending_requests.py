import types
from collections.abc import Callable
from functools import partial

import pytest

from dyorc.cluster import pending_requests
from dyorc.cluster.pending_requests import InputRetention
from dyorc.core.tensor import DType, TensorRef

INPUTS = (TensorRef(dtype=DType.INT64, shape=(100,), num_bytes=800, block=7),)


class Timers:
    """An event loop of timers alone."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], object]] = []

    def call_later(self, _delay_s: float, call: Callable[..., object], *values: object) -> None:
        self.calls.append(partial(call, *values))

    def fire(self) -> None:
        """Lets the time pass in which batches of a lost orchestrator may still read."""
        calls, self.calls = self.calls, []
        for call in calls:
            call()


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    timers = Timers()
    monkeypatch.setattr(pending_requests, "asyncio", types.SimpleNamespace(get_running_loop=lambda: timers))
    return timers


def test_inputs_of_a_request_that_ends_between_two_orchestrators_are_freed(timers: Timers) -> None:
    freed: list[int] = []
    retention = InputRetention(freed.append)
    retention.keep(INPUTS)
    retention.lose_orchestrator()
    retention.end_request(INPUTS, was_sent=True)
    assert freed == []  # batches of the lost orchestrator may still read them
    timers.fire()
    assert freed == [7]


def test_inputs_of_a_request_that_ends_long_after_its_orchestrator_are_freed(timers: Timers) -> None:
    freed: list[int] = []
    retention = InputRetention(freed.append)
    retention.keep(INPUTS)
    retention.lose_orchestrator()
    timers.fire()
    assert freed == []  # they may be submitted again
    retention.end_request(INPUTS, was_sent=True)
    assert freed == [7]


def test_inputs_that_are_submitted_again_are_kept_until_the_next_orchestrator_has_read_them(timers: Timers) -> None:
    freed: list[int] = []
    retention = InputRetention(freed.append)
    retention.keep(INPUTS)
    retention.lose_orchestrator()
    retention.resubmit(INPUTS)
    retention.end_request(INPUTS, was_sent=True)
    timers.fire()
    assert freed == []
    retention.release([7])
    assert freed == [7]
