"""A short storm over jobs on each store, three kills (``make chaos-jobs`` has twenty)."""

import pytest

from tests.chaos import jobs_storm
from tests.leaks import no_leaks


@pytest.mark.parametrize("store", ["sqlite", pytest.param("redis", marks=pytest.mark.slow)])
def test_every_job_ends_once_with_its_result_when_servers_are_killed(store: str) -> None:
    with no_leaks():
        figures, wrong = jobs_storm.run(store, num_jobs=100, num_kills=3, seed=2)
    print(f"\n{figures}")
    assert wrong == []
    assert figures["kills"] == 3
