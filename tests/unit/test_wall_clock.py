"""What happens once a second happens in that second, although timers fire early, late, or after the clock was set."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import TypeAlias

import pytest

from dyorc.system import wall_clock


class Clock:
    """A wall clock whose timers fire this much too late, one after the other."""

    def __init__(self, now_s: float, *errors_s: float) -> None:
        self.now_s = now_s
        self.num_sleeps = 0
        self._errors_s = list(errors_s)

    async def sleep(self, duration_s: float) -> None:
        self.num_sleeps += 1
        self.now_s += duration_s + (self._errors_s.pop(0) if self._errors_s else 0.0)

    def wait(self, period_s: float = 1.0, offset_s: float = 0.0) -> float:
        asyncio.run(wall_clock.wait_for_period(period_s, offset_s))
        return self.now_s


Make: TypeAlias = Callable[..., Clock]


@pytest.fixture
def clock_at(monkeypatch: pytest.MonkeyPatch) -> Make:
    def make(now_s: float, *errors_s: float) -> Clock:
        clock = Clock(now_s, *errors_s)
        monkeypatch.setattr(wall_clock, "time", SimpleNamespace(time=lambda: clock.now_s))
        monkeypatch.setattr(wall_clock, "asyncio", SimpleNamespace(sleep=clock.sleep))
        return clock

    return make


def test_an_early_timer_does_not_end_the_wait(clock_at: Make) -> None:
    clock = clock_at(100.3, -0.001, -0.0004, 0.0, -0.0009)
    for second in (101, 102, 103):
        assert second <= clock.wait() <= second + 0.001
    assert clock.num_sleeps == 6


def test_after_a_late_timer_the_next_period_is_waited_for(clock_at: Make) -> None:
    clock = clock_at(100.0, 0.7, 0.0, 2.4)
    assert clock.wait() == pytest.approx(101.7)
    assert clock.wait() == pytest.approx(102, abs=0.001)
    assert clock.wait() == pytest.approx(105.4, abs=0.001)
    assert clock.wait() == pytest.approx(106, abs=0.001)


def test_a_part_of_the_period_passes_first(clock_at: Make) -> None:
    clock = clock_at(100.05)
    assert [clock.wait(offset_s=0.1) for _ in range(2)] == [pytest.approx(100.1, abs=0.001), pytest.approx(101.1, abs=0.001)]
    assert clock.wait(period_s=0.25) == pytest.approx(101.25, abs=0.001)


@pytest.mark.parametrize("set_s", [-3600.0, 3600.0])
def test_a_clock_that_is_set_ends_the_wait(set_s: float, clock_at: Make) -> None:
    clock = clock_at(10_000.5, set_s)
    clock.wait()
    assert clock.num_sleeps == 1
    now_s = clock.now_s
    clock.wait()
    assert clock.now_s - now_s <= 1.001
