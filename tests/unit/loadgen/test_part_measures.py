"""Times of parts become figures: none is left out, also of answers that break off or never begin."""

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
from hdrh.histogram import HdrHistogram

from loadgen.part_measures import measure_parts
from loadgen.recording import Recorder, Records
from loadgen.tables import run_table
from tests.unit.loadgen.made_results import result

MS = 1_000_000
START = 5_000_000_000


def records(*parts: tuple[int, int], due_ms: tuple[int, ...] = (0, 10, 20, 30), ended_ms: int = 200) -> Records:
    """Returns records of requests due at these times, with parts (request, time in ms). 0 and 1 are answered, 2 fails."""
    recorder = Recorder(None, 1)
    recorder.plan(np.zeros(len(due_ms), np.int64), np.array(due_ms) * MS + START)
    for number, at_ms in parts:
        recorder.mark_part(number, START + at_ms * MS)
    recorder.mark_answered(0, START + 50 * MS, b"")
    recorder.mark_answered(1, START + 60 * MS, b"")
    recorder.mark_failed(2, START + 90 * MS, "no")
    return replace(recorder.finish(START + ended_ms * MS), start_ns=START)


def times_ms(histogram: str) -> list[int]:
    found = HdrHistogram.decode(histogram)
    return [
        round(item.value_iterated_to / 1000)
        for item in found.get_recorded_iterator()
        for _ in range(item.count_added_in_this_iter_step)
    ]


def test_no_time_is_left_out() -> None:
    found = measure_parts([records((0, 5), (1, 12), (0, 9), (2, 40), (1, 30), (0, 49))], 0, 100 * MS)

    # 2 failed at 90 with a part at 40; 3 never began, and waited from 30 to 200.
    assert times_ms(found.first_part_histogram) == [2, 5, 20, 170]
    assert times_ms(found.between_parts_histogram) == [4, 18, 40, 50]
    assert (found.num_parts, found.parts_per_s) == (6, 60.0)
    assert found.first_part_ms.max == 170
    assert found.between_parts_ms is not None
    assert found.between_parts_ms.p50 == 18


def test_only_the_measured_time_counts() -> None:
    found = measure_parts([records((0, 5), (1, 12), (1, 30), (0, 49), (2, 150))], 10 * MS, 30 * MS)

    assert times_ms(found.first_part_histogram) == [2, 130]
    assert found.num_parts == 3
    assert found.parts_per_s == 1 / 0.02, "of any request, but only in that time"


def test_workers_are_joined_and_nothing_between_is_said() -> None:
    found = measure_parts([records((0, 5)), records((1, 15))], 0, 25 * MS)

    assert times_ms(found.first_part_histogram) == [5, 5, 50, 50, 70, 70]
    assert (found.between_parts_ms, found.between_parts_histogram) == (None, "")


def test_parts_reach_the_parent_and_the_table(tmp_path: Path) -> None:
    before = records((0, 5), (0, 9))
    before.save(tmp_path / "records.npz")
    after = Records.load(tmp_path / "records.npz")
    assert (after.part_of.tolist(), after.part_ns.tolist()) == (before.part_of.tolist(), before.part_ns.tolist())

    parts = measure_parts([after], 0, 15 * MS)
    _, _, first, between = run_table([msgspec.structs.replace(result("mine"), parts=parts)]).splitlines()
    assert first.split() == ["to", "the", "first", "part", "5.00", "50.0", "50.0", "50.0"]
    assert between.split() == ["between", "parts", "(2,", "133.3/s)", "4.00", "4.00", "4.00", "4.00"]
