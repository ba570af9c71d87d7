"""Records become counts: every planned request is in exactly one count, with the time that it waited."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram

from loadgen import measures
from loadgen.recording import Recorder, Records
from loadgen.results import Counts
from loadgen.targets.base import RawAnswer

MS = 1_000_000
START = 5_000_000_000


def judge(index: int, answer: RawAnswer) -> str:
    """Returns whether an answer is right: the right one is the request's number."""
    return "" if answer == b"%d" % index else f"request {index}: {answer!r} came"


def recorded(recorder: Recorder, ended_ns: int) -> Records:
    return replace(recorder.finish(ended_ns), start_ns=START)


def planned(recorder: Recorder, *times_ms: int) -> None:
    recorder.plan(np.arange(len(times_ms)) % 3, np.array(times_ms) * MS + START)


def test_each_request_is_in_one_count() -> None:
    recorder = Recorder(judge, 3)
    planned(recorder, 0, 10, 20, 30, 40, 50, 60)  # the last is due when the measured time is over
    for number, sent_ms in enumerate((0, 10, 20, 35, 40)):
        recorder.mark_sent(number, START + sent_ms * MS)
    recorder.mark_answered(0, START + 5 * MS, b"0")  # before the measured time
    recorder.mark_answered(1, START + 12 * MS, b"1")
    recorder.mark_answered(2, START + 29 * MS, b"5")
    recorder.mark_failed(3, START + 90 * MS, "HTTP 503")
    found = measures.select_measured([recorded(recorder, START + 200 * MS)], 10 * MS, 60 * MS)

    expected = Counts(planned=5, correct=1, wrong=1, failed=1, unanswered=2, within_slo=1)
    assert measures.counts(found, 0.005) == expected
    assert measures.counts(found, 0.001).within_slo == 0
    assert found.errors == {"HTTP 503": 1}
    assert found.wrong == "request 2: b'5' came"
    # 40 was sent and got no answer, 50 was never sent: both waited until the end.
    assert found.latency_ns.tolist() == [2 * MS, 9 * MS, 60 * MS, 160 * MS, 150 * MS]
    assert found.send_delay_ns.tolist() == [0, 0, 5 * MS, 0, 150 * MS]


def test_the_records_of_workers_are_merged() -> None:
    parts: list[Records] = []
    for error in ("HTTP 503", "HTTP 500"):
        recorder = Recorder(None, 3)
        planned(recorder, 0, 10)
        recorder.mark_failed(0, START + 1 * MS, "HTTP 503")
        recorder.mark_failed(1, START + 12 * MS, error)
        parts.append(recorded(recorder, START + 20 * MS))
    measured = measures.select_measured(parts, 0, 60 * MS)

    assert measured.errors == {"HTTP 503": 3, "HTTP 500": 1}
    assert measures.quantiles(measured.latency_ns).max == 2.0


def test_the_same_answer_is_judged_once_and_a_new_one_again() -> None:
    judged: list[RawAnswer] = []

    def count(index: int, answer: RawAnswer) -> str:
        judged.append(answer)
        return judge(index, answer)

    recorder = Recorder(count, 1)
    recorder.plan(np.zeros(6, np.int64), np.arange(6) + START)
    for number, answer in enumerate((b"0", b"1", b"0", b"1", b"1", b"0")):
        recorder.mark_answered(number, START + number + 1, bytes(bytearray(answer)))
    assert judged == []  # not while it runs
    measured = measures.select_measured([recorded(recorder, START + 9)], 0, MS)

    assert judged == [b"0", b"1"]
    assert (measures.counts(measured, None).correct, measures.counts(measured, None).wrong) == (3, 3)


def test_answers_that_exceed_the_room_are_judged_at_once() -> None:
    judged: list[int] = []

    def note(index: int, answer: RawAnswer) -> str:
        judged.append(index)
        return judge(index, answer)

    recorder = Recorder(note, 3, max_kept_bytes=2)
    planned(recorder, 0, 1, 2, 3, 4, 5)
    for number, answer in enumerate((b"0", b"1", b"2", b"wrong", b"1", b"2")):
        recorder.mark_answered(number, START + 9 * MS, answer)
    assert judged == [2, 0, 2]
    measured = measures.select_measured([recorded(recorder, START + 9 * MS)], 0, MS * 60)

    assert measured.outcome.tolist() == [1, 1, 1, 2, 1, 1]
    assert measured.wrong == "request 0: b'wrong' came"


def test_the_number_of_kept_errors_is_bounded() -> None:
    recorder = Recorder(None, 1)
    recorder.plan(np.zeros(1000, np.int64), np.arange(1000) + START)
    for number in range(1000):
        recorder.mark_failed(number, START + 2000, f"error {number}")
    measured = measures.select_measured([recorded(recorder, START + 3000)], 0, MS)

    assert sum(measured.errors.values()) == 1000
    assert measured.errors["other errors"] == 800


def test_records_reach_the_parent_unchanged(tmp_path: Path) -> None:
    recorder = Recorder(judge, 3)
    planned(recorder, 0, 10, 20)
    recorder.mark_answered(1, START + 11 * MS, b"no")
    before = recorded(recorder, START + 20 * MS)
    before.save(tmp_path / "records.npz")
    after = Records.load(tmp_path / "records.npz")

    assert (after.outcome.tolist(), after.done_ns.tolist()) == ([0, 2, 0], [0, START + 11 * MS, 0])
    assert (after.wrong, after.errors, after.ended_ns, after.start_ns) == ("request 1: b'no' came", [], START + 20 * MS, START)


def test_branches_are_told_apart() -> None:
    recorder = Recorder(None, 3)
    planned(recorder, 0, 10, 20, 30)
    for number, took_ms in enumerate((1, 100, 3, 5)):
        recorder.mark_answered(number, START + (10 * number + took_ms) * MS, b"")
    measured = measures.select_measured([recorded(recorder, START + 200 * MS)], 0, 60 * MS)
    branches = measures.by_branch(measured, ["small", "large", "small"])

    assert {name: one.num_requests for name, one in branches.items()} == {"small": 3, "large": 1}
    assert (branches["small"].latency_ms.max, branches["large"].latency_ms.p50) == (5.0, 100.0)
    assert measures.by_branch(measured, []) == {}


def test_the_histogram_holds_every_latency() -> None:
    times_ns = np.array([1, 500, 1_000_000, 2_000_000, 9_000_000_000], np.int64)
    found = HdrHistogram.decode(measures.histogram(times_ns))

    assert found.get_total_count() == 5
    assert found.get_value_at_percentile(50) == pytest.approx(1000, rel=1e-3)
    assert found.get_max_value() == pytest.approx(9_000_000, rel=1e-3)


def test_nothing_measured_is_an_error() -> None:
    recorder = Recorder(None, 3)
    planned(recorder, 0)

    with pytest.raises(ValueError, match="no request was due in the measured time"):
        measures.select_measured([recorded(recorder, START + 1)], 10, 20)


@pytest.mark.parametrize(
    ("delay_ms", "p50_ms", "cpu", "text"),
    [
        (0.9, 1.0, 0.5, ""),
        (1.1, 1.0, 0.5, "sent more than 1.1 ms late"),
        (1.1, 20.0, 0.5, ""),
        (0.1, 1.0, 0.9, "used 90% of a core"),
    ],
)
def test_the_generator_says_when_it_is_the_limit(delay_ms: float, p50_ms: float, cpu: float, text: str) -> None:
    warning = measures.client_warning(delay_ms, p50_ms, cpu)

    assert (text in warning) if text else not warning
    assert not warning or "--workers" in warning
