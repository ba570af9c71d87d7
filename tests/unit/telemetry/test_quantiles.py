"""Quantiles of counts in buckets, over the last seconds."""

import pytest

from dyorc.telemetry.series import WINDOW_S, RecentCounts, quantile, quantile_ms

_BOUNDS = [10, 20, 40]


@pytest.mark.parametrize(
    ("counts", "part", "expected"),
    [
        ([10, 0, 0, 0], 0.5, 5),
        ([5, 5, 0, 0], 0.5, 10),
        ([5, 5, 0, 0], 0.9, 18),
        ([0, 0, 4, 0], 0.25, 25),
        ([0, 0, 0, 3], 0.5, 40),
        ([0, 0, 0, 0], 0.5, None),
    ],
)
def test_values_count_as_spread_evenly_over_their_bucket(counts: list[int], part: float, expected: float | None) -> None:
    assert quantile(_BOUNDS, counts, part) == (None if expected is None else pytest.approx(expected))


def test_durations_are_in_milliseconds() -> None:
    assert quantile_ms([2_000_000, 4_000_000], [0, 10, 0], 0.5) == 3


def test_only_what_was_counted_in_the_window_counts() -> None:
    recent = RecentCounts()
    assert recent.sample([100, 0]) == [0, 0]
    assert recent.sample([103, 1]) == [3, 1]
    later = [recent.sample([103, 2]) for _ in range(WINDOW_S + 1)]
    assert later[0] == [3, 2]
    assert later[-2:] == [[0, 1], [0, 0]]
