"""Every reader gets every record, and one that fails does no harm."""

from itertools import pairwise

import pytest
import structlog

from dyorc.config import RecordsConfig
from dyorc.telemetry.record import RequestRecord
from dyorc.telemetry.recording import Recording
from tests.unit.telemetry.stories import record


class _Reader:
    def __init__(self) -> None:
        self.taken: list[RequestRecord] = []

    def take(self, record: RequestRecord) -> None:
        self.taken.append(record)


class _Broken:
    def __init__(self) -> None:
        self.num_tries = 0

    def take(self, record: RequestRecord) -> None:
        self.num_tries += 1
        raise ValueError("no")


def test_a_reader_that_raises_is_reported_once_and_gets_no_more() -> None:
    recording = Recording(RecordsConfig())
    before, broken, after = _Reader(), _Broken(), _Reader()
    for sink in (before, broken, after):
        recording.add(sink)
    found = record(10)
    with structlog.testing.capture_logs() as logs:
        recording.ended(found)
        recording.ended(found)
    assert before.taken == after.taken == [found, found]
    assert broken.num_tries == 1
    assert [(log["event"], log["sink"], log["request_id"]) for log in logs] == [("sink_dropped", "_Broken", "r1")]


@pytest.mark.parametrize(("ratio", "num"), [(0.0, 0), (0.25, 25), (1.0, 100)])
def test_a_fraction_of_the_requests_is_recorded(ratio: float, num: int) -> None:
    draws = iter(one / 100 for one in range(100))
    recording = Recording(RecordsConfig(ratio=ratio), lambda: next(draws))
    recording.add(_Reader())
    assert sum(recording.wants() for _ in range(100)) == num


def test_nothing_is_recorded_if_nobody_reads() -> None:
    assert not Recording(RecordsConfig(ratio=1.0)).wants()


def test_of_a_flood_of_refusals_few_are_recorded_and_no_other_kind_is_lost() -> None:
    now_s = 100.0
    recording, reader, wants_all = Recording(RecordsConfig(), clock_s=lambda: now_s), _Reader(), _Reader()
    recording.add(reader)
    num_made = 0

    def refused() -> RequestRecord:
        nonlocal num_made
        num_made += 1
        return record(10)

    for _ in range(1000):
        recording.refused("capacity", refused)
    assert num_made == len(reader.taken) == 10, "those that nobody gets are not made"
    recording.refused("invalid_input", refused)
    assert len(reader.taken) == 11
    assert recording.wants(), "they have tokens of their own"
    recording.want_all(wants_all, is_wanted=True)
    for _ in range(5):
        recording.refused("capacity", refused)
    assert (len(reader.taken), len(wants_all.taken)) == (11, 5)
    now_s += 0.5
    for _ in range(10):
        recording.refused("capacity", refused)
    assert (len(reader.taken), len(wants_all.taken)) == (16, 15)


def test_where_no_request_is_recorded_refused_ones_are_not_either() -> None:
    recording, reader = Recording(RecordsConfig(ratio=0.0)), _Reader()
    recording.add(reader)
    recording.refused("capacity", lambda: record(10))
    assert not reader.taken


def test_a_busy_server_records_a_sample_evenly_spread() -> None:
    now_s = 100.0
    recording = Recording(RecordsConfig(max_per_s=10), clock_s=lambda: now_s)
    recording.add(_Reader())
    assert [recording.wants() for _ in range(12)] == [True] * 10 + [False] * 2
    wanted: list[float] = []
    for _ in range(2000):
        now_s += 0.001
        if recording.wants():
            wanted.append(now_s)
    assert len(wanted) in (19, 20)
    assert all(0.099 < later - earlier < 0.102 for earlier, later in pairwise(wanted))
    now_s += 1000.0
    assert sum(recording.wants() for _ in range(50)) == 10
