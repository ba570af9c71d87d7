"""A short storm over gateways and orchestrators, whose histories are judged (``make chaos-histories`` has a minute for each
store)."""

import pytest

from tests.chaos.services_storm import run
from tests.leaks import no_leaks


@pytest.mark.parametrize("store", ["sqlite", pytest.param("redis", marks=pytest.mark.slow)])
def test_histories_of_versions_leases_effects_and_streams_are_explained(store: str) -> None:
    with no_leaks():
        figures = run(store, seconds=6.0, num_clients=4, seed=1)
    print(f"\n{figures}")
    assert not any(figures["violations"].values()), figures
    assert figures["undecided"] == 0
    assert figures["operations"]["ask"] > 0
    assert figures["acts"] > 0
