"""Threads' turns: several parts may want them otherwise at once, and leave in any order."""

import contextlib
import sys
from collections.abc import Iterator

import pytest

from dyorc.system.switch_interval import switch_interval_at_least, switch_interval_at_most


@pytest.fixture(autouse=True)
def python_s() -> Iterator[float]:
    """Python's own turns, whatever a server in this process wants."""
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(0.005)
    yield 0.005
    sys.setswitchinterval(before_s)


def test_the_shortest_wish_holds_and_who_came_first_may_leave_first(python_s: float) -> None:
    first, second = contextlib.ExitStack(), contextlib.ExitStack()
    first.enter_context(switch_interval_at_most(0.002))
    second.enter_context(switch_interval_at_most(0.0005))
    assert sys.getswitchinterval() == pytest.approx(0.0005)
    first.close()
    assert sys.getswitchinterval() == pytest.approx(0.0005)
    second.close()
    assert sys.getswitchinterval() == pytest.approx(python_s), "nothing of the second is left behind"


def test_who_needs_a_longer_turn_gets_it_whatever_others_want(python_s: float) -> None:
    with switch_interval_at_most(0.0005):
        with switch_interval_at_least(0.002):
            assert sys.getswitchinterval() == pytest.approx(0.002)
        assert sys.getswitchinterval() == pytest.approx(0.0005)
    with switch_interval_at_most(0.5), switch_interval_at_least(0.002):
        assert sys.getswitchinterval() == pytest.approx(python_s), "longer than either wish already"
