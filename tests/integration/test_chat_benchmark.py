"""The arithmetic of the chat benchmark: objectives of streams and of whole answers, and arrivals that repeat."""

import asyncio
import time

import pytest

from benchmarks.focused.chat.load import Asked, Point, arrivals, ask_all, point_of
from benchmarks.focused.chat.processor_time import cpu_of_descendants_s
from benchmarks.focused.chat.turn import Turn

MS = 1_000_000
TURN = Turn(b"Who?", (5, 6, 7, 8), b"Mara")


def point(*asked: Asked) -> Point:
    return point_of(asked, 0, rate_rps=1.0, warm_up_s=0.0, duration_s=10.0, cpu_s=0.08)


def streamed(*part_ms: int, due_ms: int = 100, text: bytes = TURN.text) -> Asked:
    return Asked(TURN, due_ms * MS, [at * MS for at in part_ms], part_ms[-1] * MS, text)


def whole(took_ms: int) -> Asked:
    return Asked(TURN, 100 * MS, [], (100 + took_ms) * MS, TURN.text)


def test_times_of_streams_count_from_when_they_were_due() -> None:
    found = point(streamed(200, 250, 280, 320), streamed(200, 210, 220, 290))

    assert found.first_s == pytest.approx((0.1, 0.1))
    assert found.between_s == pytest.approx((0.035, 0.07))
    assert (found.is_live, found.is_in_time, found.num_asked, found.num_wrong) == (True, True, 2, 0)
    assert found.tokens_per_s == pytest.approx(0.8)
    assert found.cpu_ms_per_token == pytest.approx(10.0)


@pytest.mark.parametrize("part_ms", [(301, 310), (200, 301)])
def test_a_late_first_token_or_a_pause_is_too_late_for_who_reads_along(part_ms: tuple[int, ...]) -> None:
    found = point(streamed(*part_ms))
    assert (found.is_live, found.is_in_time) == (False, True)


def test_a_stream_without_an_end_waits_and_a_wrong_one_misses() -> None:
    stuck = Asked(TURN, time.monotonic_ns() - 3000 * MS, [time.monotonic_ns() - 2000 * MS])
    found = point_of([stuck], stuck.due_ns, rate_rps=1.0, warm_up_s=0.0, duration_s=10.0, cpu_s=0.0)
    assert found.between_s is not None
    assert found.between_s[1] > 1.9
    assert not found.is_live
    assert not found.is_in_time
    wrong = point(streamed(200, 210, text=b"Jory"))
    assert (wrong.is_live, wrong.is_in_time) == (False, False)


@pytest.mark.parametrize(("took_ms", "is_in_time"), [(1299, True), (1301, False)])
def test_an_answer_has_the_time_of_its_length(took_ms: int, is_in_time: bool) -> None:
    """Four tokens: a second for the first, a tenth for each of the others; whether they came as they were made or not."""
    for found in (point(whole(took_ms)), point(streamed(150, 200, 100 + took_ms))):
        assert found.is_in_time == is_in_time
        assert not found.is_live


def test_a_whole_answer_shows_its_first_token_with_its_last() -> None:
    assert point(whole(199)).is_live
    assert not point(whole(201)).is_live
    assert point(whole(199)).between_s is None


def test_arrivals_repeat_and_have_the_rate() -> None:
    due = arrivals([TURN], 50.0, 20.0, seed=3)
    assert due == arrivals([TURN], 50.0, 20.0, seed=3)
    assert len(due) == pytest.approx(1000, rel=0.15)
    assert due[-1][0] < 20.0


async def test_questions_are_asked_when_due_and_late_ones_given_up() -> None:
    async def ask(asked: Asked) -> None:
        if asked.turn.question == b"never":
            await asyncio.Event().wait()
        asked.text, asked.done_ns = asked.turn.text, time.monotonic_ns()

    due = [(0.0, TURN), (0.05, Turn(b"never", (1,), b"")), (0.1, TURN)]
    asked, start_ns = await ask_all(ask, due, drain_s=0.1)

    assert [one.is_right for one in asked] == [True, False, True]
    assert asked[2].done_ns - start_ns >= 100 * MS


async def test_processor_time_of_descendants_grows() -> None:
    process = await asyncio.create_subprocess_exec("sh", "-c", "while :; do :; done")
    try:
        before_s = cpu_of_descendants_s()
        deadline_s = time.monotonic() + 30
        while cpu_of_descendants_s() < before_s + 0.05:
            assert time.monotonic() < deadline_s
            await asyncio.sleep(0.02)
    finally:
        process.kill()
        await process.wait()
