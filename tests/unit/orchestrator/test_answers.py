"""How requests end: each has its record, whatever its receiver does with the answer. And how values are read for workflows."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import structlog

from dyorc.answering.input_identity import InputsIdentity
from dyorc.answering.local_answers import LocalAnswers
from dyorc.answering.requests_in_flight import RequestInFlight
from dyorc.core.arrays import same_array
from dyorc.engine.actions import FetchValue
from dyorc.engine.events import Event, ValueFetched
from dyorc.errors import InternalError
from tests.exchanges import tensor_path


class Faulty:
    """A receiver that cannot deliver anything."""

    def take(self, arrays: Any, /) -> None:
        """Takes nothing."""

    def done(self, taken: Any) -> None:
        raise RuntimeError("the handler is closed")

    failed = done


@pytest.mark.parametrize("error", [None, InternalError("it failed")])
def test_the_record_of_a_request_ends_even_if_its_receiver_raises(error: Exception | None) -> None:
    tensors: Any = SimpleNamespace()
    answers, ends = LocalAnswers(tensors, lambda event: None), list[Exception | None]()
    recorded: Any = SimpleNamespace(end=ends.append)
    pending = [RequestInFlight(Faulty(), InputsIdentity("", (), ()), recorded) for _ in range(2)]
    with structlog.testing.capture_logs() as logs:
        for number, each in enumerate(pending):
            answers.open(number, each)
        if error is None:
            for number, each in enumerate(pending):
                answers._hand_over(number, each, [])
        else:
            answers.lose_all()
    assert answers.num_requests == 0
    assert [type(end) for end in ends] == [RuntimeError if error is None else InternalError] * 2
    assert [line["event"] for line in logs] == ["answer_not_delivered"] * 2


def test_values_of_one_batch_are_read_at_once_and_lost_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tensor_path(str(tmp_path)) as path:
        first, second = np.arange(3000.0).reshape(3, 1000), np.ones((3, 500), np.int64)
        batches = [path.publish([first, second]), path.publish([first + 1, second + 1])]
        events, sizes, read = list[Event](), list[int](), path.tensors.read
        monkeypatch.setattr(path.tensors, "read", lambda tensors: (sizes.append(len(tensors)), read(tensors))[1])
        answers = LocalAnswers(path.tensors, events.append)
        calls = [batches[0][0], batches[1][0], batches[0][1], batches[1][2], batches[0][2]]
        for number, call in enumerate(calls):
            answers.fetch(FetchValue(number, call))
        assert not events
        answers.end_turn()
        assert sizes == [6, 4]
        fetched = {event.fetch_id: event for event in events if isinstance(event, ValueFetched)}
        for number, (added, row) in enumerate([(0, 0), (1, 0), (0, 1), (1, 2), (0, 2)]):
            numbers, ones = fetched[number].arrays
            assert same_array(numbers, first[row] + added)
            assert same_array(ones, second[row] + added)
        events.clear()
        path.release(batches[0])
        for number, call in enumerate(calls):
            answers.fetch(FetchValue(number, call))
        answers.end_turn()
        assert {event.fetch_id for event in events if isinstance(event, ValueFetched) and event.lost} == {0, 2, 4}
        answers.end_turn()
        assert len(events) == 5
