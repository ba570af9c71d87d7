"""The same examples in every run; no example is timed, because the machine's load is not under our control."""

import gc
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "dyorc", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("dyorc")


@pytest.fixture(scope="module", autouse=True)
def thawed() -> Iterator[None]:
    """Collects what a module's tests have hidden from the garbage collector."""
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()
