"""How requests end: each has its record, whatever its receiver does with the answer."""

from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from dyorc.answering.input_identity import InputsIdentity
from dyorc.answering.local_answers import LocalAnswers
from dyorc.answering.requests_in_flight import RequestInFlight
from dyorc.errors import InternalError


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
