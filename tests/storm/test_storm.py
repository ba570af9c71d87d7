"""A short storm over two shapes (`make storm` has all of them, and takes as long as one likes)."""

import random
import time

import pytest

from tests.storm.driver import storm
from tests.storm.shapes import make_shape

_SECONDS = 15.0
_MIN_FAULTS = 3


@pytest.mark.timeout(600)  # more than the limits in here, which say what hangs
@pytest.mark.parametrize("name", ["cell", "parts"])
def test_nothing_is_wrong_lost_doubled_or_left_whatever_happens(name: str) -> None:
    began_s = time.monotonic()
    shape = make_shape(name, random.Random(2))
    result = storm(shape, 2, lambda num: num >= _MIN_FAULTS and time.monotonic() > began_s + _SECONDS, num_clients=3)
    print(f"\n{name}: {[strike.names for strike in result.strikes]}, {result.num_answers} answers, {result.settlement.num_jobs}")
    assert result.violations == []
    assert len(result.strikes) >= _MIN_FAULTS
    assert all(strike.back_s is not None for strike in result.strikes)
    assert sum(result.settlement.num_jobs.values()) > 0
