"""An arena in a folder of its own in shared memory, and a reader's view of it."""

from collections.abc import Iterator

import pytest

from dyorc.transport.arena import Arena
from dyorc.transport.arena_views import ArenaView
from tests.shared_folders import shared_folder
from tests.unit.transport.arena_blocks import NUM_SLOTS, SIZE_BYTES


@pytest.fixture
def folder() -> Iterator[str]:
    """Makes a folder of our own, in shared memory if there is any."""
    with shared_folder() as path:
        yield path


@pytest.fixture
def arena(folder: str) -> Iterator[Arena]:
    with Arena(folder, SIZE_BYTES, NUM_SLOTS) as arena:
        yield arena


@pytest.fixture
def view(folder: str, arena: Arena) -> Iterator[ArenaView]:
    view = ArenaView(folder, arena.name)
    yield view
    view.close()
