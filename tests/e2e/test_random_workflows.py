"""Random workflows come to what plain Python makes of them, bit by bit, on Ray."""

import pytest

from tests.random_workflows.trial import Tally, generated, outcomes

pytestmark = pytest.mark.ray


def test_random_workflows_do_on_ray_what_plain_python_does() -> None:
    tally = Tally()
    for expected, outcome in outcomes("ray", generated(9000, 20), seed=1, chunk=20):
        assert tally.add(expected, outcome) == [], expected.case.source
    assert tally.counts["guesses_followed"] > 0
