"""Collections of garbage come the more rarely the less they find."""

import gc
from collections.abc import Iterator

import pytest

from dyorc.system.garbage_collector import pause_garbage_collector, settle_garbage_collector


@pytest.fixture
def settled() -> Iterator[None]:
    """A collector that is set as in a server, until the test ends."""
    before, callbacks = gc.get_threshold(), list(gc.callbacks)
    settle_garbage_collector()
    yield
    gc.callbacks[:] = callbacks
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.usefixtures("settled")
def test_objects_that_live_are_hardly_walked_over() -> None:
    living = [[number] for number in range(400_000)]
    assert gc.get_threshold()[0] == 400_000, "after 50,000, 100,000 and 200,000 objects"
    assert len(living) == 400_000


@pytest.mark.usefixtures("settled")
def test_garbage_brings_collections_back() -> None:
    living = [[number] for number in range(200_000)]
    assert gc.get_threshold()[0] == 200_000
    for _ in range(250_000):
        cycle: list[object] = []
        cycle.append(cycle)
    assert gc.get_threshold()[0] == 50_000
    assert len(living) == 200_000


@pytest.mark.usefixtures("settled")
def test_however_much_lives_a_million_objects_are_walked_over_at_last() -> None:
    for _ in range(10):
        gc.collect(0)
    assert gc.get_threshold()[0] == 1_000_000


@pytest.mark.usefixtures("settled")
def test_settling_twice_adapts_once() -> None:
    settle_garbage_collector()
    gc.collect(0)
    assert gc.get_threshold()[0] == 100_000


def test_a_pause_leaves_a_collector_off_that_was_off() -> None:
    gc.disable()
    try:
        with pause_garbage_collector():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
    with pause_garbage_collector():
        assert not gc.isenabled()
    assert gc.isenabled()
