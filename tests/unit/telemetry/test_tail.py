"""The slowest requests beside typical ones, of one process and of several."""

import pytest

from dyorc.telemetry.critical_path import RequestStage, WrongGuesses
from dyorc.telemetry.record import RequestRecord
from dyorc.telemetry.tail import MAX_SLOWEST, ProcessTail, merge_tails, pick, timed
from tests.unit.telemetry.stories import batch, call, record


def _asked(number: int, waits_ms: float = 0.0, computes_ms: float = 5.0) -> RequestRecord:
    """Returns a request with one call, which waits in its queue and then computes."""
    started, ended = 2 + waits_ms, 2 + waits_ms + computes_ms
    ran = batch("work", started, started, ended)
    return record(ended + 1, [call(1, "work", 2, 2, ended, batches=[ran])], request_id=f"r{number}", number=number)


def _tail(records: list[RequestRecord]) -> ProcessTail:
    slowest, typical = ([timed(each, WrongGuesses()) for each in picked] for picked in pick(records))
    return ProcessTail(len(records), slowest, typical)


def test_a_wait_of_the_slowest_is_their_cause() -> None:
    records = [_asked(number) for number in range(297)] + [_asked(number, waits_ms=40) for number in range(297, 300)]
    report = merge_tails([_tail(records)], 0.01)
    assert (report["num_requests"], report["num_slowest"]) == (300, 3)
    assert report["from_ms"] - report["median_ms"] == pytest.approx(40)
    first = report["stages"][0]
    assert first["stage"] == "queue"
    assert first["slowest_ms"] - first["typical_ms"] == pytest.approx(40)
    assert first["num_caused"] == 3
    assert {each["stage"]: each["program"] for each in report["stages"]} == {
        "queue": "work", "compute": "work", "admission": "", "reading": "", "engine": ""
    }  # fmt: skip
    assert {each["request_id"] for each in report["slowest"]} == {"r297", "r298", "r299"}


def test_stages_add_up_to_durations() -> None:
    records = [_asked(number, waits_ms=number / 7, computes_ms=1 + number % 5) for number in range(100)]
    report = merge_tails([_tail(records)], 0.1)
    slowest = sorted((each.duration_ns for each in records), reverse=True)[:10]
    assert sum(each["slowest_ms"] for each in report["stages"]) == pytest.approx(sum(slowest) / 10 / 1e6, abs=0.01)
    assert sum(each["num_caused"] for each in report["stages"]) == report["num_slowest"] == 10


def test_processes_are_merged_as_if_they_were_one() -> None:
    quick, slow = [_asked(number) for number in range(80)], [_asked(number, waits_ms=30) for number in range(80, 100)]
    merged, together = merge_tails([_tail(quick), _tail(slow)], 0.05), merge_tails([_tail(quick + slow)], 0.05)
    for name in ("num_requests", "num_slowest", "from_ms", "median_ms"):
        assert merged[name] == together[name]
    assert [each["slowest_ms"] for each in merged["stages"]] == [each["slowest_ms"] for each in together["stages"]]


def test_only_some_are_picked_of_many() -> None:
    tail = _tail([_asked(number, waits_ms=number % 3) for number in range(5000)])
    assert len(tail.slowest) == MAX_SLOWEST
    assert len(tail.typical) <= 60
    assert merge_tails([tail], 0.5)["num_slowest"] == MAX_SLOWEST


@pytest.mark.parametrize("num", [1, 2, 3])
def test_of_few_requests_one_is_the_slowest(num: int) -> None:
    report = merge_tails([_tail([_asked(number, waits_ms=number) for number in range(num)])], 0.01)
    assert report["num_slowest"] == 1
    assert report["slowest"][0]["request_id"] == f"r{num - 1}"


def test_without_requests_there_is_nothing_to_say() -> None:
    report = merge_tails([_tail([])], 0.01)
    assert report == {
        "num_requests": 0,
        "num_slowest": 0,
        "from_ms": None,
        "median_ms": None,
        "stages": [],
        "slowest": [],
    }


def test_stages_have_their_names() -> None:
    report = merge_tails([_tail([_asked(1, waits_ms=3)])], 0.01)
    assert {each["stage"] for each in report["stages"]} <= {str(stage) for stage in RequestStage}
