"""Random workflows come to what plain Python makes of them, bit by bit, in a cell that guesses at every decision."""

from tests.random_workflows.trial import Tally, generated, outcomes


def test_random_workflows_do_in_a_cell_what_plain_python_does() -> None:
    tally = Tally()
    for expected, outcome in outcomes("cell", generated(5000, 30), seed=1, chunk=30):
        assert tally.add(expected, outcome) == [], expected.case.source
    assert tally.counts["guesses_followed"] > tally.counts["guesses_wrong"] > 0
