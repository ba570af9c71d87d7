"""Counts what the examples of a property meet: a property that never met its subject has shown nothing."""

import functools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import event

from tests.effort import IS_THOROUGH


class Tally:
    """Counts what happens in the examples of one test.

    Attributes:
        totals: Over all examples so far.
    """

    def __init__(self) -> None:
        self.totals: Counter[str] = Counter()

    def add(self, counts: Mapping[str, int]) -> None:
        """Counts what one example met, and tells Hypothesis."""
        self.totals.update(counts)
        for what, number in counts.items():
            if number:
                event(what)


def comes_across(tally: Tally, *what: str, least: int = 10) -> Callable[[Any], Any]:
    """Fails a property whose examples, all together, have seen less than `least` of something.

    The check is part of the test itself. A second test that reads what the first has counted would be skipped, or pass by
    mistake, where the two run in different processes.
    """

    def check_of(test: Any) -> Any:
        @functools.wraps(test)
        def checked(*args: Any, **kwargs: Any) -> None:
            tally.totals.clear()
            test(*args, **kwargs)
            wanted = least if IS_THOROUGH else 1  # few examples meet what is rare only once
            rare = {name: tally.totals[name] for name in what if tally.totals[name] < wanted}
            assert not rare, f"expected {wanted} of each in all examples, found {rare}"

        return checked

    return check_of
