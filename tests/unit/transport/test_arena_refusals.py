"""What arenas and their readers refuse: bytes outside of a block, unknown blocks, malformed files."""

import os
import struct
from pathlib import Path

import pytest

from dyorc.errors import TensorLostError, TransportError
from dyorc.transport.arena import Arena
from dyorc.transport.arena_file import PAGE_BYTES
from dyorc.transport.arena_views import ArenaView
from tests.leaks import no_leaks
from tests.unit.transport.arena_blocks import NUM_SLOTS, SIZE_BYTES, put, read


def patch_header(folder: str, name: str, **words: int) -> None:
    """Overwrites these words of the header."""
    names = ("magic", "version", "num_slots", "size", "data_start", "token", "pid")
    with open(os.path.join(folder, name), "r+b") as file:
        for word, value in words.items():
            file.seek(8 * names.index(word))
            file.write(struct.pack("=Q", value))


@pytest.mark.parametrize(
    ("offset", "num_bytes"),
    [(-1, 1), (-1, 0), (0, 101), (1, 100), (100, 1), (101, 0), (0, -1), (50, -50), (2**63, 1), (-(2**63), 2**63), (0, 2**64)],
)
@pytest.mark.parametrize("method", ["read_only", "writable"])
def test_bytes_outside_of_the_block_are_refused(arena: Arena, view: ArenaView, method: str, offset: int, num_bytes: int) -> None:
    put(arena, b"before")
    block = put(arena, b"x" * 100)
    put(arena, b"after")
    with pytest.raises(TransportError, match="not within block") as caught:
        getattr(view, method)(block.block_id, block.offset + offset, num_bytes)
    assert not isinstance(caught.value, TensorLostError)


@pytest.mark.parametrize("change", [-1, 1, NUM_SLOTS, -NUM_SLOTS, 2**63])
def test_a_wrong_block_number_is_refused(arena: Arena, view: ArenaView, change: int) -> None:
    block = put(arena, b"abc")
    with pytest.raises(TensorLostError):
        view.read_only(block.block_id + change, block.offset, 3)


@pytest.mark.parametrize("block_id", [0, -1, -NUM_SLOTS, 2**64, 2**200])
def test_an_impossible_block_number_is_refused(view: ArenaView, block_id: int) -> None:
    with pytest.raises(TensorLostError):
        view.read_only(block_id, PAGE_BYTES * 2, 0)
    assert not view.is_intact(block_id)


def test_an_old_block_number_is_refused_once_its_slot_and_room_hold_a_new_block(arena: Arena, view: ArenaView) -> None:
    old = put(arena, b"old")
    assert arena.free(old.block_id)
    assert not view.is_intact(old.block_id)
    with pytest.raises(TensorLostError):
        read(view, old)
    new = put(arena, b"new")
    assert (new.offset, new.block_id % NUM_SLOTS) == (old.offset, old.block_id % NUM_SLOTS)
    assert new.block_id != old.block_id
    with pytest.raises(TensorLostError):
        read(view, old)
    assert not arena.free(old.block_id)
    assert read(view, new) == b"new"


@pytest.mark.parametrize(
    "name",
    ["", "x", "dyorc-arena-", "dyorc-arena-XYZ", "dyorc-arena-../../../../etc", "/etc/passwd", "dyorc-arena-0123456789abcdef/.."],
)
def test_an_invalid_name_is_refused_without_opening_a_file(folder: str, name: str) -> None:
    with pytest.raises(TransportError, match="not the name of an arena") as caught:
        ArenaView(folder, name)
    assert not isinstance(caught.value, TensorLostError)


def test_a_missing_arena_is_lost_and_not_created(folder: str) -> None:
    with pytest.raises(TensorLostError, match="its owner is gone"):
        ArenaView(folder, "dyorc-arena-0123456789abcdef")
    assert os.listdir(folder) == []


def test_a_symbolic_link_is_not_followed(folder: str, arena: Arena) -> None:
    name = "dyorc-arena-0123456789abcdef"
    os.symlink(arena.name, os.path.join(folder, name))
    with pytest.raises(TransportError, match="cannot be opened"):
        ArenaView(folder, name)


@pytest.mark.parametrize(
    "words",
    [
        {"magic": 0},
        {"version": 2},
        {"num_slots": 0},
        {"num_slots": 2**40},
        {"num_slots": 2**64 - 1},
        {"size": SIZE_BYTES * 2},
        {"size": SIZE_BYTES // 2},
        {"size": 0},
        {"data_start": 0},
        {"data_start": PAGE_BYTES},
        {"token": 1},
        {"num_slots": 2**20, "data_start": 2**25 + PAGE_BYTES},
    ],
)
def test_a_malformed_header_is_refused(folder: str, arena: Arena, words: dict[str, int]) -> None:
    patch_header(folder, arena.name, **words)
    with no_leaks(), pytest.raises(TransportError) as caught:
        ArenaView(folder, arena.name)
    assert not isinstance(caught.value, TensorLostError)


@pytest.mark.parametrize("size", [0, 1, 55, 56, PAGE_BYTES, SIZE_BYTES // 2, SIZE_BYTES - 1])
def test_a_file_that_is_too_short_is_refused(folder: str, arena: Arena, size: int) -> None:
    path = os.path.join(folder, arena.name)
    content = Path(path).read_bytes()[:size]
    os.unlink(path)
    Path(path).write_bytes(content)
    with pytest.raises(TransportError):
        ArenaView(folder, arena.name)


def test_a_folder_or_pipe_with_an_arenas_name_is_refused(folder: str) -> None:
    os.mkdir(os.path.join(folder, "dyorc-arena-0000000000000000"))
    os.mkfifo(os.path.join(folder, "dyorc-arena-1111111111111111"))
    for digit in "01":
        with pytest.raises(TransportError, match="not a plain file"):
            ArenaView(folder, f"dyorc-arena-{digit * 16}")


@pytest.mark.parametrize(
    ("start", "length"), [(0, 10), (PAGE_BYTES, 10), (SIZE_BYTES, 1), (2**64 - 1, 2), (PAGE_BYTES * 4, 2**63)]
)
def test_a_malformed_entry_does_not_lead_outside_of_the_data(arena: Arena, view: ArenaView, start: int, length: int) -> None:
    block = put(arena, b"abc")
    at = block.block_id % NUM_SLOTS * 4
    arena._table[at + 1 : at + 3] = start, length  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(TransportError, match="outside of it"):
        view.read_only(block.block_id, start, 1)


@pytest.mark.parametrize(("size_bytes", "num_slots"), [(0, 1), (PAGE_BYTES * 2, 1), (2**20, 2**20), (2**20, 0), (2**20, -1)])
def test_an_arena_without_room_for_blocks_is_refused(folder: str, size_bytes: int, num_slots: int) -> None:
    with pytest.raises(ValueError, match="no room for blocks"):
        Arena(folder, size_bytes, num_slots)


def test_an_arena_in_a_missing_folder_is_refused(folder: str) -> None:
    with pytest.raises(TransportError, match="cannot create an arena"), Arena(f"{folder}/missing", SIZE_BYTES):
        pass
