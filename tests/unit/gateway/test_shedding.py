"""How far the loop is behind, and who is refused for it."""

from collections.abc import Callable

import pytest

from dyorc.gateway.http.loop_lag import LoopLag
from dyorc.gateway.http.shedding import Shedding


class Loop:
    """A loop whose turns, and their lengths, the test decides."""

    def __init__(self) -> None:
        self.now_ns = 10**12
        self._ready: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._ready.append(callback)

    def clock_s(self) -> float:
        return self.now_ns / 1e9

    def clock_ns(self) -> int:
        return self.now_ns

    @property
    def is_idle(self) -> bool:
        return not self._ready

    def turn(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)
        ready, self._ready = self._ready, []
        for callback in ready:
            callback()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def lag(loop: Loop) -> LoopLag:
    return LoopLag(loop.clock_s, loop.call_soon)


@pytest.fixture
def shedding(loop: Loop, lag: LoopLag) -> Shedding:
    return Shedding(lag, loop.clock_ns)


def busy(loop: Loop, lag: LoopLag, *turns_s: float, num: int = 1) -> None:
    """Turns that take so long, with requests in each."""
    for turn_s in turns_s:
        for _ in range(num):
            lag.saw_request()
            lag.let_in()
        loop.turn(turn_s)


def test_a_loop_that_takes_long_turns_is_behind_and_one_long_turn_is_no_reason(loop: Loop, lag: LoopLag) -> None:
    busy(loop, lag, 0.001, 0.001, 0.5)
    assert lag.expected_s == pytest.approx(0.006)
    busy(loop, lag, 0.1, 0.1)
    assert lag.expected_s == pytest.approx(0.6)


def test_many_requests_in_one_turn_are_foretold_by_what_one_cost_so_far(loop: Loop, lag: LoopLag) -> None:
    for _ in range(100):
        busy(loop, lag, 0.02, num=20)
        loop.turn(0)  # nothing came
    assert lag.expected_s == 0
    for _ in range(50):
        lag.saw_request()
        lag.let_in()
    assert lag.expected_s == pytest.approx(6 * 50 * 0.001, rel=0.1)


def test_an_idle_loop_is_not_watched_and_not_behind(loop: Loop, lag: LoopLag) -> None:
    busy(loop, lag, 0.1, 0.1)
    loop.turn(0.1)
    assert loop.is_idle
    assert lag.expected_s == 0


LIMIT = [(b"host", b"a"), (b"request-timeout", b"0.2")]


@pytest.mark.parametrize(
    ("waited_s", "turn_s", "status"),
    [(0.0, 0.001, None), (0.19, 0.001, None), (0.2, 0.001, 504), (0.0, 0.04, 503), (0.15, 0.01, 503), (0.0, 0.03, None)],
)
def test_what_cannot_be_answered_in_time_is_refused(
    loop: Loop, lag: LoopLag, shedding: Shedding, waited_s: float, turn_s: float, status: int | None
) -> None:
    busy(loop, lag, *[turn_s] * 4)
    refusal = shedding.refusal(LIMIT, loop.now_ns - round(waited_s * 1e9))
    assert (refusal and refusal.status) == status
    if refusal is not None:
        assert (refusal.code, refusal.retry_after_s) == (("deadline", None) if status == 504 else ("capacity", 1))


@pytest.mark.parametrize("headers", [[(b"host", b"a")], [(b"request-timeout", b"soon")]])
def test_who_names_no_limit_is_not_refused(
    loop: Loop, lag: LoopLag, shedding: Shedding, headers: list[tuple[bytes, bytes]]
) -> None:
    busy(loop, lag, *[1.0] * 4)
    assert shedding.refusal(headers, loop.now_ns - 10**10) is None


def test_a_turn_lets_in_what_it_can_serve_and_those_refused_do_not_count(loop: Loop, lag: LoopLag, shedding: Shedding) -> None:
    busy(loop, lag, *[0.02] * 50, num=20)  # 1 ms each
    loop.turn(0)
    refusals = [shedding.refusal(LIMIT, loop.now_ns) for _ in range(1000)]
    num_let_in = refusals.count(None)
    assert 25 <= num_let_in <= 40
    assert all(refusals[num_let_in:])
