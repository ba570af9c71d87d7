"""A short storm over cells, six strikes (``make chaos-cells`` has sixty)."""

import pytest

from tests.chaos import cells_storm


@pytest.mark.slow
def test_nothing_is_wrong_or_left_and_others_notice_nothing_when_cells_are_struck() -> None:
    figures, wrong = cells_storm.run(num_kills=6, seed=1, num_clients=6, num_cells=2)
    print(f"\n{figures}")
    assert wrong == []
    assert sum(figures["strikes"].values()) == 6
    assert figures["answers"] > 6 * 12
