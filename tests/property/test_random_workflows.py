"""Random workflows come to what plain Python makes of them, bit by bit, in this process."""

import pytest

from tests.effort import examples
from tests.random_workflows.trial import Tally, generated, outcomes


@pytest.mark.parametrize("mode", ["run", "local"])
def test_random_workflows_do_what_plain_python_does(mode: str) -> None:
    tally = Tally()
    for expected, outcome in outcomes(mode, generated(1, examples(200, 0.08)), seed=1, chunk=1):
        assert tally.add(expected, outcome) == [], expected.case.source
    if mode == "local":
        assert tally.counts["guesses_followed"] > tally.counts["guesses_wrong"] > 0
