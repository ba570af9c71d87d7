"""Memory of an arena's file that nobody needs goes back to the system, and is taken again when it is needed."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dyorc.transport.arena import Arena, ArenaBlock
from dyorc.transport.arena_file import PAGE_BYTES, usage_of
from dyorc.transport.arena_views import ArenaView
from dyorc.transport.tensor_path import ArenaTrimmer
from tests.deadlines import wait_until

MIB = 2**20
ALL = 2**40


@pytest.fixture
def arena() -> Iterator[Arena]:
    """Opens an arena in shared memory itself: other file systems need not support holes."""
    with Arena("/dev/shm", 64 * MIB) as found:
        yield found


def stored_bytes(arena: Arena) -> int:
    """Returns the memory of the file, as the system counts it."""
    return os.stat(Path("/dev/shm") / arena.name).st_blocks * 512


def filled(arena: Arena, num_bytes: int, value: int) -> ArenaBlock:
    block = arena.allocate(num_bytes)
    assert block is not None
    np.frombuffer(block.memory, np.uint8)[:] = value
    arena.publish(block)
    return block


def values_of(arena: Arena, block: ArenaBlock) -> set[int]:
    view = ArenaView("/dev/shm", arena.name)
    try:
        return set(np.unique(np.frombuffer(view.read_only(block.block_id, block.offset, block.num_bytes), np.uint8)).tolist())
    finally:
        view.close()


def test_free_memory_goes_back_and_used_memory_stays(arena: Arena) -> None:
    blocks = [filled(arena, 8 * MIB, value) for value in range(1, 6)]
    empty = stored_bytes(arena) - arena.num_bytes_resident
    for number in (1, 2, 4):
        arena.free(blocks[number].block_id)
    assert arena.trim(0, ALL)
    assert not arena.trim(0, ALL)
    assert arena.num_bytes_resident == 16 * MIB
    assert stored_bytes(arena) == empty + 16 * MIB
    assert (values_of(arena, blocks[0]), values_of(arena, blocks[3])) == ({1}, {4})


def test_it_keeps_as_much_as_it_is_told_to_at_the_lowest_addresses(arena: Arena) -> None:
    blocks = [filled(arena, 8 * MIB, value) for value in range(1, 5)]
    for block in blocks[1:]:
        arena.free(block.block_id)
    while arena.trim(12 * MIB, 3 * MIB):
        pass
    assert arena.num_bytes_resident == 12 * MIB
    again = filled(arena, 4 * MIB, 9)
    assert (again.offset, arena.num_bytes_resident) == (blocks[1].offset, 12 * MIB)


def test_returned_memory_is_taken_again_before_it_is_written(arena: Arena) -> None:
    blocks = [filled(arena, 8 * MIB, value) for value in range(1, 5)]
    for block in (blocks[0], blocks[2]):
        arena.free(block.block_id)
    arena.trim(0, ALL)
    before = stored_bytes(arena)
    block = arena.allocate(8 * MIB)
    assert block is not None
    assert stored_bytes(arena) == before + 8 * MIB  # nothing has been written yet
    assert block.offset == blocks[0].offset
    across = filled(arena, 20 * MIB, 7)
    assert (values_of(arena, across), values_of(arena, blocks[1]), values_of(arena, blocks[3])) == ({7}, {2}, {4})
    assert arena.num_bytes_resident >= arena.num_bytes_used


def test_pieces_are_no_larger_than_asked_for(arena: Arena) -> None:
    arena.free(filled(arena, 8 * MIB, 1).block_id)
    before = arena.num_bytes_resident
    assert arena.trim(0, 3 * MIB + 1)
    assert arena.num_bytes_resident == before - 3 * MIB
    assert not arena.trim(arena.num_bytes_resident - PAGE_BYTES + 1, ALL)  # less than a page


def test_memory_needed_since_the_last_check_stays(arena: Arena) -> None:
    assert arena.take_peak() == 0
    block = filled(arena, 8 * MIB, 1)
    arena.free(block.block_id)
    assert arena.take_peak() == 8 * MIB
    assert arena.take_peak() == 0


def test_memory_goes_back_by_itself(arena: Arena) -> None:
    kept = filled(arena, 2 * MIB, 1)
    arena.free(filled(arena, 40 * MIB, 2).block_id)
    with ArenaTrimmer(arena, 4 * MIB, every_s=0.001):
        wait_until(lambda: arena.num_bytes_resident == 4 * MIB, "memory has been given back")
    assert values_of(arena, kept) == {1}


def test_reported_usage_is_the_systems(arena: Arena) -> None:
    blocks = [filled(arena, 8 * MIB - 5, value) for value in (1, 2)]
    arena.free(blocks[0].block_id)
    usage = usage_of("/dev/shm", arena.name)
    assert usage is not None
    assert usage == (arena.size_bytes, 8 * MIB - 5, stored_bytes(arena))
    assert usage_of("/dev/shm", "dyorc-arena-0123456789abcdef") is None
