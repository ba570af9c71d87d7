"""The course of a measurement over its time."""

from collections.abc import Sequence

import numpy as np
import pytest

from loadgen.recording import CORRECT, FIRST_ERROR, UNANSWERED, WRONG, Records
from loadgen.timeline import MAX_STEPS, timeline

_NS_PER_MS = 1_000_000


def records(requests: Sequence[tuple[float, float, int]], *, ended_ms: float = 9_000, start_ms: float = 0) -> Records:
    """Makes records of requests: when each was due, when it was answered (0: never), and how it ended; milliseconds from the
    start.
    """

    def ns(values: Sequence[float]) -> np.ndarray:
        return np.array([round((value + start_ms) * _NS_PER_MS) if value else 0 for value in values], np.int64)

    planned, done, outcome = zip(*requests, strict=True)
    return Records(
        index=np.zeros(len(requests), np.int64),
        planned_ns=np.array([round((value + start_ms) * _NS_PER_MS) for value in planned], np.int64),
        sent_ns=ns(done),
        done_ns=ns(done),
        outcome=np.array(outcome, np.int64),
        errors=["HTTP 503"],
        ended_ns=round((ended_ms + start_ms) * _NS_PER_MS),
        wrong="",
        start_ns=round(start_ms * _NS_PER_MS),
    )


def course(*workers: Records, warm_up_ms: float = 0, end_ms: float = 400):
    return timeline(workers, round(warm_up_ms * _NS_PER_MS), round(end_ms * _NS_PER_MS))


def test_requests_count_in_the_step_in_which_they_were_due_and_answers_when_they_came() -> None:
    found = course(records([(10, 40, CORRECT), (50, 250, CORRECT), (300, 310, CORRECT)]))

    assert found.edges_s == [0, 0.1, 0.2, 0.3, 0.4]
    assert found.num_due == [2, 0, 0, 1]
    assert found.num_answered == [1, 0, 1, 1]
    assert found.p50_ms == [30, None, None, 10]
    assert found.p99_ms == [200, None, None, 10]


def test_every_answer_that_is_not_right_counts_as_bad() -> None:
    outcomes = [(10, 20, CORRECT), (10, 20, WRONG), (10, 20, FIRST_ERROR), (10, 0, UNANSWERED)]

    found = course(records(outcomes))

    assert found.num_bad == [3, 0, 0, 0]
    assert found.num_answered == [3, 0, 0, 0]
    assert found.p99_ms[0] == 8990  # the last one waited until the end


def test_the_backlog_counts_requests_from_when_they_were_due() -> None:
    found = course(records([(10, 290, CORRECT), (20, 30, CORRECT), (40, 50, CORRECT), (350, 0, UNANSWERED)]))

    assert found.max_waiting == [2, 1, 1, 1]


def test_the_backlog_of_the_warm_up_is_included() -> None:
    found = course(records([(50, 260, CORRECT), (60, 0, UNANSWERED), (210, 220, CORRECT)]), warm_up_ms=100)

    assert found.edges_s == [0, 0.1, 0.2, 0.3]
    assert found.num_due == [0, 1, 0]
    assert found.num_answered == [0, 2, 0]
    assert found.max_waiting == [2, 3, 1]


def test_a_client_that_sends_with_its_answer_is_one_request() -> None:
    found = course(records([(at, at + 100, CORRECT) for at in (0, 100, 200, 300)]))

    assert found.max_waiting == [1, 1, 1, 1]


def test_the_records_of_workers_are_aligned_by_their_own_start() -> None:
    one, other = records([(10, 20, CORRECT)]), records([(10, 20, CORRECT), (310, 320, CORRECT)], start_ms=5_000)

    found = course(one, other)

    assert found.num_due == [2, 0, 0, 1]
    assert found.max_waiting == [2, 0, 0, 1]


@pytest.mark.parametrize("duration_ms", [10, 100, 6_000, 6_010, 10_000, 61_000, 3_600_000, 86_400_000])
def test_steps_are_round_few_and_cover_everything(duration_ms: float) -> None:
    found = course(records([(1, 2, CORRECT)]), end_ms=duration_ms)

    assert 1 <= len(found.num_due) <= MAX_STEPS
    assert found.edges_s[0] == 0
    assert found.edges_s[-1] == pytest.approx(duration_ms / 1e3)
    assert all(begin < end for begin, end in zip(found.edges_s, found.edges_s[1:], strict=False))
    assert sum(found.num_due) == 1
