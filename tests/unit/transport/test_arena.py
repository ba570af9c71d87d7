"""An arena and its readers: published blocks can be read, by nobody else, until the reader closes."""

import gc
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dyorc.errors import TensorLostError, TransportError
from dyorc.transport.arena import Arena
from dyorc.transport.arena_file import PAGE_BYTES
from dyorc.transport.arena_views import ArenaView
from tests.leaks import no_leaks
from tests.unit.transport.arena_blocks import NUM_SLOTS, SIZE_BYTES, put, read


def test_a_reader_sees_what_was_published(arena: Arena, view: ArenaView) -> None:
    content = bytes(range(256)) * 40
    block = put(arena, content)
    assert block.offset % PAGE_BYTES == 0
    assert read(view, block) == content
    assert bytes(view.read_only(block.block_id, block.offset + 3, 5)) == content[3:8]
    assert bytes(view.writable(block.block_id, block.offset + 3, 5)) == content[3:8]
    assert view.is_intact(block.block_id)


def test_the_bytes_of_a_reader_cannot_be_written(arena: Arena, view: ArenaView) -> None:
    block = put(arena, b"abc")
    found = view.read_only(block.block_id, block.offset, 3)
    assert found.readonly
    assert not np.frombuffer(found, np.uint8).flags.writeable


def test_an_empty_block_can_be_read_and_freed(arena: Arena, view: ArenaView) -> None:
    block = put(arena, b"")
    other = put(arena, b"x")
    assert block.offset != other.offset
    assert read(view, block) == b""
    assert bytes(view.writable(block.block_id, block.offset, 0)) == b""
    assert arena.free(block.block_id)


def test_a_block_cannot_be_read_before_it_is_published(arena: Arena, view: ArenaView) -> None:
    block = arena.allocate(10)
    assert block is not None
    assert not view.is_intact(block.block_id)
    with pytest.raises(TensorLostError, match=f"does not hold block {block.block_id}"):
        read(view, block)


def test_the_number_of_a_block_becomes_visible_after_its_bounds(arena: Arena) -> None:
    stores: list[int] = []

    class Recorder(np.ndarray):
        def __setitem__(self, at: Any, value: Any) -> None:
            stores.append(at % 4)
            super().__setitem__(at, value)

    arena._table = arena._table.view(Recorder)  # pyright: ignore[reportPrivateUsage]
    put(arena, b"abc")
    assert stores[-1] == 0
    assert {1, 2} <= set(stores[:-1])
    assert 0 not in stores[:-1]


def test_the_number_of_a_block_is_gone_before_its_room_is_free(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    block = put(arena, b"abc")
    seen: list[int] = []
    space = arena._space  # pyright: ignore[reportPrivateUsage]
    give_back = space.give_back

    def watch(start: int, length: int) -> None:
        seen.append(int(arena._table[block.block_id % NUM_SLOTS * 4]))  # pyright: ignore[reportPrivateUsage]
        give_back(start, length)

    monkeypatch.setattr(space, "give_back", watch)
    arena.free(block.block_id)
    assert seen == [0]


def test_block_numbers_fit_63_bits_and_differ_between_arenas(folder: str) -> None:
    found = []
    for _ in range(20):
        with Arena(folder, SIZE_BYTES, NUM_SLOTS) as arena:
            found.append(put(arena, b"x").block_id)
    assert len(set(found)) == len(found)
    assert all(0 < block_id < 2**63 for block_id in found)


def test_an_arena_that_is_not_open_is_refused(folder: str) -> None:
    arena = Arena(folder, SIZE_BYTES)
    with pytest.raises(TransportError, match="is not open"):
        arena.allocate(1)
    with arena:
        block = put(arena, b"abc")
    with pytest.raises(TransportError, match="is not open"):
        arena.allocate(1)
    assert not arena.free(block.block_id)
    arena.free_all()


def test_an_arena_can_be_opened_again(folder: str) -> None:
    arena = Arena(folder, SIZE_BYTES * 4)
    for _ in range(2):
        with arena:
            put(arena, b"x" * arena.max_block_bytes)
            assert os.stat(os.path.join(folder, arena.name)).st_blocks * 512 == arena.size_bytes  # memory was reserved again


def test_an_owner_can_close_while_its_memory_is_in_use(folder: str) -> None:
    with no_leaks():
        with Arena(folder, SIZE_BYTES) as arena:
            block = put(arena, b"abc")
            array = np.frombuffer(block.memory, np.uint8)
            view = ArenaView(folder, arena.name)
        assert os.listdir(folder) == []
        assert array.tobytes() == b"abc"
        assert read(view, block) == b"abc"  # a reader that has mapped it can go on reading
        view.close()
        with pytest.raises(TensorLostError):
            ArenaView(folder, arena.name)
        del array, block


def test_a_view_can_close_while_its_bytes_are_in_use(folder: str, arena: Arena) -> None:
    with no_leaks():
        block = put(arena, b"abc")
        view = ArenaView(folder, arena.name)
        arrays = [
            np.frombuffer(view.read_only(block.block_id, block.offset, 3), np.uint8),
            np.frombuffer(view.writable(block.block_id, block.offset, 3), np.uint8),
        ]
        view.close()
        view.close()
        assert [array.tobytes() for array in arrays] == [b"abc", b"abc"]
        with pytest.raises(TensorLostError, match="is closed"):
            read(view, block)
        assert not view.is_intact(block.block_id)
        view.restore(block.offset, 3)
        del arrays
        gc.collect()
        mappings = Path("/proc/self/maps").read_text().replace(f"{arena.name}\n", "", 1)  # without the owner's
        assert arena.name not in mappings


def test_only_the_user_may_read_the_file(folder: str, arena: Arena) -> None:
    assert os.stat(os.path.join(folder, arena.name)).st_mode & 0o777 == 0o600
