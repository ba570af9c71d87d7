"""How far the loop is behind, and which requests are refused for it."""

import contextlib

import pytest
import structlog

from dyorc.errors import DeadlineError, DyOrcError, OverloadedError
from dyorc.gateway.shedding import LoopLag, Shedding
from tests.slow_loops import Loop, busy


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def lag(loop: Loop) -> LoopLag:
    return LoopLag(loop.clock_s, loop.call_soon)


@pytest.fixture
def shedding(loop: Loop, lag: LoopLag) -> Shedding:
    return Shedding(lag, loop.clock_ns)


def test_a_loop_with_long_turns_is_behind_and_with_a_single_long_turn_is_not(loop: Loop, lag: LoopLag) -> None:
    busy(loop, lag, 0.001, 0.001, 0.5)
    assert lag.expected_s == pytest.approx(0.006)
    busy(loop, lag, 0.1, 0.1)
    assert lag.expected_s == pytest.approx(0.6)


def test_the_length_of_a_turn_is_predicted_from_its_requests(loop: Loop, lag: LoopLag) -> None:
    for _ in range(100):
        busy(loop, lag, 0.02, num=20)
        loop.turn(0)  # nothing came
    assert lag.expected_s == 0
    for _ in range(50):
        lag.on_request()
        lag.on_admitted()
    assert lag.expected_s == pytest.approx(6 * 50 * 0.001, rel=0.1)


def test_an_idle_loop_is_not_watched_and_not_behind(loop: Loop, lag: LoopLag) -> None:
    busy(loop, lag, 0.1, 0.1)
    loop.turn(0.1)
    assert loop.is_idle
    assert lag.expected_s == 0


def limit_s() -> float | None:
    return 0.2


def no_limit_s() -> float | None:
    return None


@pytest.mark.parametrize(
    ("waited_s", "turn_s", "kind"),
    [
        (0.0, 0.001, None),
        (0.19, 0.001, None),
        (0.2, 0.001, DeadlineError),
        (0.0, 0.04, OverloadedError),
        (0.15, 0.01, OverloadedError),
        (0.0, 0.03, None),
    ],
)
def test_a_request_that_cannot_be_answered_in_time_is_refused(
    loop: Loop, lag: LoopLag, shedding: Shedding, waited_s: float, turn_s: float, kind: type[DyOrcError] | None
) -> None:
    busy(loop, lag, *[turn_s] * 4)
    refusal = shedding.refusal(loop.now_ns - round(waited_s * 1e9), limit_s)
    assert (None if refusal is None else type(refusal)) is kind
    if refusal is not None:
        assert (refusal.retryable, refusal.retry_after_s) == ((False, None) if kind is DeadlineError else (True, 1))


def test_a_limit_that_no_server_meets_is_no_overload(loop: Loop, lag: LoopLag, shedding: Shedding) -> None:
    busy(loop, lag, 0.1, 0.1)
    with structlog.testing.capture_logs() as logs:
        assert isinstance(shedding.refusal(loop.clock_ns(), lambda: 0.0), DeadlineError)
        assert not logs
        assert isinstance(shedding.refusal(loop.clock_ns(), lambda: 0.1), OverloadedError)
    assert [(log["event"], log["num_refused"]) for log in logs] == [("overloaded", 1)]


def test_a_request_without_a_limit_is_not_refused(loop: Loop, lag: LoopLag, shedding: Shedding) -> None:
    busy(loop, lag, *[1.0] * 4)
    assert shedding.refusal(loop.now_ns - 10**10, no_limit_s) is None


def test_a_turn_admits_what_it_can_serve_and_refused_requests_do_not_count(loop: Loop, lag: LoopLag, shedding: Shedding) -> None:
    busy(loop, lag, *[0.02] * 50, num=20)  # 1 ms each
    loop.turn(0)
    refusals = [shedding.refusal(loop.now_ns, limit_s) for _ in range(1000)]
    num_let_in = refusals.count(None)
    assert 25 <= num_let_in <= 40
    assert all(refusals[num_let_in:])


@pytest.mark.parametrize(
    ("waited_s", "turn_s", "kind"),
    [(0.0, 0.045, None), (0.0, 0.055, OverloadedError), (0.15, 0.02, OverloadedError), (0.2, 0.0, DeadlineError)],
)
def test_a_request_whose_body_names_a_limit_is_judged_by_the_turns_that_it_still_needs(
    loop: Loop, lag: LoopLag, shedding: Shedding, waited_s: float, turn_s: float, kind: type[DyOrcError] | None
) -> None:
    busy(loop, lag, *[turn_s] * 4)
    arrived_ns = loop.now_ns - round(waited_s * 1e9)
    assert shedding.refusal(arrived_ns, no_limit_s) is None
    loop.turn(turn_s)
    with contextlib.nullcontext() if kind is None else pytest.raises(kind):
        shedding.check_once_read(arrived_ns, 0.2 + turn_s)
