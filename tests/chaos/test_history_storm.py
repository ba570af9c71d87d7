"""A short storm whose histories are judged (``make chaos-histories`` has a minute for each store)."""

import pytest

from tests.chaos.history_storm import run
from tests.leaks import no_leaks


@pytest.mark.parametrize("store", ["sqlite", pytest.param("redis", marks=pytest.mark.slow)])
def test_one_order_explains_what_clients_saw(store: str) -> None:
    with no_leaks():
        figures = run(store, seconds=3.0, num_clients=4, seed=1, keep=None)
    print(f"\n{figures}")
    assert (figures["not_linearizable"], figures["undecided"], figures["wrong"]) == (0, 0, 0)
    assert sum(figures.get(kind, 0) for kind in ("kills", "ends", "freezes", "clock_jumps")) >= 1
