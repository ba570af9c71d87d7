"""The room in an arena: how blocks use it up and give it back, also with several threads."""

import errno
import os
import sys
import threading
from typing import Any

import numpy as np
import pytest

from dyorc.errors import TransportError
from dyorc.transport.arena import Arena
from dyorc.transport.arena_file import PAGE_BYTES, default_size
from dyorc.transport.arena_views import ArenaView
from tests.unit.transport.arena_blocks import NUM_SLOTS, SIZE_BYTES, put


def test_a_full_arena_allocates_nothing_until_a_block_is_freed(arena: Arena) -> None:
    blocks = [arena.allocate(arena.max_block_bytes // 4 // PAGE_BYTES * PAGE_BYTES) for _ in range(4)]
    assert all(blocks)
    left = arena.max_block_bytes - arena.num_bytes_used
    assert arena.allocate(left + 1) is None
    assert blocks[1] is not None
    assert arena.free(blocks[1].block_id)
    again = arena.allocate(blocks[1].num_bytes)
    assert again is not None
    assert again.offset == blocks[1].offset


def test_the_largest_block_fits_and_one_byte_more_does_not(arena: Arena) -> None:
    assert arena.allocate(arena.max_block_bytes + 1) is None
    assert arena.allocate(2**62) is None
    block = put(arena, b"x" * arena.max_block_bytes)
    assert block.offset + block.num_bytes == arena.size_bytes
    assert arena.allocate(0) is None


def test_slots_run_out_and_come_back(arena: Arena) -> None:
    blocks = [put(arena, bytes([at])) for at in range(NUM_SLOTS)]
    assert arena.allocate(1) is None
    assert arena.num_blocks == NUM_SLOTS
    arena.free(blocks[3].block_id)
    assert put(arena, b"x").block_id % NUM_SLOTS == blocks[3].block_id % NUM_SLOTS


def test_the_lowest_free_room_is_taken_and_neighbours_are_joined(arena: Arena) -> None:
    blocks = [put(arena, b"x" * PAGE_BYTES) for _ in range(6)]
    for at in (1, 3, 2):  # the last one joins both sides
        arena.free(blocks[at].block_id)
    assert put(arena, b"x" * PAGE_BYTES * 3).offset == blocks[1].offset
    arena.free(blocks[5].block_id)
    arena.free(blocks[0].block_id)
    assert put(arena, b"x").offset == blocks[0].offset


def test_freeing_a_block_twice_or_an_unknown_one_returns_false(arena: Arena) -> None:
    block = put(arena, b"abc")
    assert arena.free(block.block_id)
    for block_id in (block.block_id, 0, -1, 7, 2**64):
        assert not arena.free(block_id)
    assert (arena.num_blocks, arena.num_bytes_used) == (0, 0)


def test_a_block_can_be_abandoned_before_it_is_published(arena: Arena) -> None:
    block = arena.allocate(10)
    assert block is not None
    assert arena.num_bytes_used == PAGE_BYTES
    assert arena.free(block.block_id)
    with pytest.raises(TransportError, match="was freed before it was published"):
        arena.publish(block)
    other = put(arena, b"other")
    assert other.offset == block.offset


def test_free_all_frees_every_block(arena: Arena, view: ArenaView) -> None:
    blocks = [put(arena, b"x" * 5000) for _ in range(5)]
    arena.free_all()
    assert (arena.num_blocks, arena.num_bytes_used) == (0, 0)
    assert not any(view.is_intact(block.block_id) for block in blocks)
    assert not any(arena.free(block.block_id) for block in blocks)
    new = put(arena, b"x" * arena.max_block_bytes)
    assert new.block_id not in {block.block_id for block in blocks}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.ENOMEM, errno.EDQUOT])
def test_nothing_is_allocated_while_the_folder_is_full(arena: Arena, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(descriptor: int, offset: int, length: int) -> None:
        raise OSError(code, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", refuse)
        assert arena.allocate(10) is None
        assert (arena.num_blocks, arena.num_bytes_used) == (0, 0)
    put(arena, b"x" * arena.max_block_bytes)


def test_a_block_that_fits_into_a_nearly_full_folder_is_allocated(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def refuse_much(descriptor: int, offset: int, length: int) -> None:
        if length > PAGE_BYTES:
            raise OSError(errno.ENOSPC, "no room")
        taken.append(offset)

    with Arena(folder, SIZE_BYTES * 4) as arena:
        monkeypatch.setattr(os, "posix_fallocate", refuse_much)
        block = arena.allocate(PAGE_BYTES)
        assert block is not None
        assert taken == [block.offset]
        assert arena.allocate(2 * PAGE_BYTES) is None


def test_other_errors_of_the_folder_become_transport_errors(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int, offset: int, length: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(TransportError, match="no memory for arena"):
        arena.allocate(10)


def test_memory_is_reserved_before_a_block_is_returned(folder: str) -> None:
    with Arena(folder, SIZE_BYTES * 8) as arena:
        path = os.path.join(folder, arena.name)
        before = os.stat(path).st_blocks * 512
        assert before < SIZE_BYTES  # the file is sparse
        block = arena.allocate(SIZE_BYTES * 4)
        assert block is not None
        assert os.stat(path).st_blocks * 512 >= SIZE_BYTES * 4
        backed = os.stat(path).st_blocks
        arena.free(block.block_id)
        assert arena.allocate(SIZE_BYTES * 4) is not None
        assert os.stat(path).st_blocks == backed  # the same pages again


def test_threads_of_the_owner_never_share_a_block(folder: str, request: pytest.FixtureRequest) -> None:
    with Arena(folder, SIZE_BYTES * 4) as arena:
        wrong: list[int] = []

        def work(mark: int) -> None:
            for _ in range(500):
                block = arena.allocate(PAGE_BYTES * 2)
                assert block is not None
                block.memory[:] = bytes([mark]) * block.num_bytes
                arena.publish(block)
                if bytes(block.memory) != bytes([mark]) * block.num_bytes:
                    wrong.append(mark)
                arena.free(block.block_id)

        threads = [threading.Thread(target=work, args=(mark,)) for mark in range(4)]
        interval_s = sys.getswitchinterval()
        request.addfinalizer(lambda: sys.setswitchinterval(interval_s))
        sys.setswitchinterval(1e-6)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert (arena.num_blocks, arena.num_bytes_used) == (0, 0)


def test_every_change_holds_the_lock(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = arena._lock  # pyright: ignore[reportPrivateUsage]
    space = arena._space  # pyright: ignore[reportPrivateUsage]
    seen: list[tuple[str, bool]] = []

    class Recorder(np.ndarray):
        def __setitem__(self, at: Any, value: Any) -> None:
            seen.append(("store", lock.locked()))
            super().__setitem__(at, value)

    def watch(name: str) -> None:
        real = getattr(space, name)

        def watched(*arguments: int) -> Any:
            seen.append((name, lock.locked()))
            return real(*arguments)

        monkeypatch.setattr(space, name, watched)

    arena._table = arena._table.view(Recorder)  # pyright: ignore[reportPrivateUsage]
    watch("take")
    watch("give_back")
    arena.free(put(arena, b"abc").block_id)
    arena.free_all()
    assert seen == [(step, True) for step in ("take", "store", "store", "store", "store", "give_back", "store")]
    assert not lock.locked()


def test_the_default_size_is_half_of_the_folder(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    status = os.statvfs(folder)
    size = default_size(folder)
    assert size % PAGE_BYTES == 0
    assert abs(size - status.f_blocks * status.f_frsize / 2) <= PAGE_BYTES or size == 2**20
    tiny = os.statvfs_result((4096, 4096, 10, 10, 10, 0, 0, 0, 0, 255))

    def statvfs(path: str) -> os.statvfs_result:
        return tiny

    monkeypatch.setattr(os, "statvfs", statvfs)
    assert default_size(folder) == 2**20
