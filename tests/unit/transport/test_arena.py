"""The arena, its readers and its janitor: what is refused, what is never changed, and what is left when somebody is killed."""

import errno
import fcntl
import gc
import os
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dyorc
from dyorc.errors import TensorLostError, TransportError
from dyorc.transport import arena_views
from dyorc.transport.arena import Arena, Block
from dyorc.transport.arena_file import PAGE_BYTES, default_size, sweep
from dyorc.transport.arena_views import ArenaView
from tests.leaks import no_leaks
from tests.shared_folders import shared_folder

ROOT = Path(dyorc.__file__).parents[1]
SIZE_BYTES = 2**20
NUM_SLOTS = 16


@pytest.fixture
def folder() -> Iterator[str]:
    """A folder of our own in shared memory, where there is any."""
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


def put(arena: Arena, content: bytes) -> Block:
    """A published block."""
    block = arena.allocate(len(content))
    assert block is not None
    block.memory[:] = content
    arena.publish(block)
    return block


def read(view: ArenaView, block: Block) -> bytes:
    return bytes(view.read_only(block.block_id, block.offset, block.num_bytes))


def patch_header(folder: str, name: str, **words: int) -> None:
    """Overwrites single words of the header."""
    names = ("magic", "version", "num_slots", "size", "data_start", "token", "pid")
    with open(os.path.join(folder, name), "r+b") as file:
        for word, value in words.items():
            file.seek(8 * names.index(word))
            file.write(struct.pack("=Q", value))


# What is read


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


def test_an_empty_block_is_a_block(arena: Arena, view: ArenaView) -> None:
    block = put(arena, b"")
    other = put(arena, b"x")
    assert block.offset != other.offset
    assert read(view, block) == b""
    assert bytes(view.writable(block.block_id, block.offset, 0)) == b""
    assert arena.free(block.block_id)


def test_a_block_is_not_there_before_it_is_published(arena: Arena, view: ArenaView) -> None:
    block = arena.allocate(10)
    assert block is not None
    assert not view.is_intact(block.block_id)
    with pytest.raises(TensorLostError, match=f"does not hold block {block.block_id}"):
        read(view, block)


def test_the_number_becomes_visible_after_the_bounds(arena: Arena) -> None:
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


def test_the_number_is_gone_before_the_room_is_free(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
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


# What is refused


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
def test_other_numbers_are_refused(arena: Arena, view: ArenaView, change: int) -> None:
    block = put(arena, b"abc")
    with pytest.raises(TensorLostError):
        view.read_only(block.block_id + change, block.offset, 3)


@pytest.mark.parametrize("block_id", [0, -1, -NUM_SLOTS, 2**64, 2**200])
def test_what_is_no_number_is_refused(view: ArenaView, block_id: int) -> None:
    with pytest.raises(TensorLostError):
        view.read_only(block_id, PAGE_BYTES * 2, 0)
    assert not view.is_intact(block_id)


def test_an_old_number_is_refused_after_slot_and_room_have_a_new_block(arena: Arena, view: ArenaView) -> None:
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


def test_numbers_fit_63_bits_and_differ_between_arenas(folder: str) -> None:
    found = []
    for _ in range(20):
        with Arena(folder, SIZE_BYTES, NUM_SLOTS) as arena:
            found.append(put(arena, b"x").block_id)
    assert len(set(found)) == len(found)
    assert all(0 < block_id < 2**63 for block_id in found)


@pytest.mark.parametrize(
    "name",
    ["", "x", "dyorc-arena-", "dyorc-arena-XYZ", "dyorc-arena-../../../../etc", "/etc/passwd", "dyorc-arena-0123456789abcdef/.."],
)
def test_what_is_no_name_is_refused_without_a_look(folder: str, name: str) -> None:
    with pytest.raises(TransportError, match="not the name of an arena") as caught:
        ArenaView(folder, name)
    assert not isinstance(caught.value, TensorLostError)


def test_a_missing_arena_is_lost_and_not_created(folder: str) -> None:
    with pytest.raises(TensorLostError, match="its owner is gone"):
        ArenaView(folder, "dyorc-arena-0123456789abcdef")
    assert os.listdir(folder) == []


def test_a_link_is_not_followed(folder: str, arena: Arena) -> None:
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


def test_a_folder_or_pipe_of_that_name_is_refused(folder: str) -> None:
    os.mkdir(os.path.join(folder, "dyorc-arena-0000000000000000"))
    os.mkfifo(os.path.join(folder, "dyorc-arena-1111111111111111"))
    for digit in "01":
        with pytest.raises(TransportError, match="no plain file"):
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


def test_an_arena_where_there_is_no_folder_is_refused(folder: str) -> None:
    with pytest.raises(TransportError, match="cannot create an arena"), Arena(f"{folder}/missing", SIZE_BYTES):
        pass


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
            assert os.stat(os.path.join(folder, arena.name)).st_blocks * 512 == arena.size_bytes  # memory was taken again


# Room


def test_a_full_arena_gives_none_and_has_room_again_after_free(arena: Arena) -> None:
    blocks = [arena.allocate(arena.max_block_bytes // 4 // PAGE_BYTES * PAGE_BYTES) for _ in range(4)]
    assert all(blocks)
    left = arena.max_block_bytes - arena.num_bytes_used
    assert arena.allocate(left + 1) is None
    assert blocks[1] is not None
    assert arena.free(blocks[1].block_id)
    again = arena.allocate(blocks[1].num_bytes)
    assert again is not None
    assert again.offset == blocks[1].offset


def test_the_largest_block_fits_and_one_byte_more_never(arena: Arena) -> None:
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


def test_the_lowest_room_is_taken_and_neighbours_are_joined(arena: Arena) -> None:
    blocks = [put(arena, b"x" * PAGE_BYTES) for _ in range(6)]
    for at in (1, 3, 2):  # the last one joins both sides
        arena.free(blocks[at].block_id)
    assert put(arena, b"x" * PAGE_BYTES * 3).offset == blocks[1].offset
    arena.free(blocks[5].block_id)
    arena.free(blocks[0].block_id)
    assert put(arena, b"x").offset == blocks[0].offset


def test_freeing_twice_or_what_never_was_says_so(arena: Arena) -> None:
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


def test_free_all_frees_all(arena: Arena, view: ArenaView) -> None:
    blocks = [put(arena, b"x" * 5000) for _ in range(5)]
    arena.free_all()
    assert (arena.num_blocks, arena.num_bytes_used) == (0, 0)
    assert not any(view.is_intact(block.block_id) for block in blocks)
    assert not any(arena.free(block.block_id) for block in blocks)
    new = put(arena, b"x" * arena.max_block_bytes)
    assert new.block_id not in {block.block_id for block in blocks}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.ENOMEM, errno.EDQUOT])
def test_a_full_folder_gives_none_and_room_again_later(arena: Arena, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(descriptor: int, offset: int, length: int) -> None:
        raise OSError(code, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", refuse)
        assert arena.allocate(10) is None
        assert (arena.num_blocks, arena.num_bytes_used) == (0, 0)
    put(arena, b"x" * arena.max_block_bytes)


def test_a_folder_with_little_room_gives_that(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_other_errors_of_the_folder_are_ours(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int, offset: int, length: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(TransportError, match="no memory for arena"):
        arena.allocate(10)


def test_memory_is_there_before_a_block_is_given(folder: str) -> None:
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


def test_two_threads_of_the_owner_do_not_meet_in_a_block(folder: str, request: pytest.FixtureRequest) -> None:
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


def test_each_step_holds_the_lock(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
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


# Programs that write their inputs


@pytest.mark.parametrize("pagemap", ["/proc/self/pagemap", "/proc/self/there is no such file", "/dev/null"])
def test_what_a_program_writes_is_its_own_and_gone_after_restore(
    arena: Arena, view: ArenaView, monkeypatch: pytest.MonkeyPatch, pagemap: str
) -> None:
    monkeypatch.setattr(arena_views, "_PAGEMAP", pagemap)
    content = bytes(range(250)) * 100
    for at in (0, 1, len(content) // 2, len(content) - 1):
        block = put(arena, content)
        array = np.frombuffer(view.writable(block.block_id, block.offset, block.num_bytes), np.uint8)
        assert array.tobytes() == content
        array[at] ^= 255
        assert array[at] == content[at] ^ 255
        assert read(view, block) == content
        assert bytes(block.memory) == content
        view.restore(block.offset, block.num_bytes)
        assert array.tobytes() == content
        arena.free(block.block_id)
        new = put(arena, content[::-1])
        assert new.offset == block.offset
        assert bytes(view.writable(new.block_id, new.offset, new.num_bytes)) == content[::-1]
        arena.free(new.block_id)


def test_restore_finds_a_written_page_in_any_chunk(arena: Arena, view: ArenaView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena_views, "_CHUNK_PAGES", 3)
    content = b"x" * (10 * PAGE_BYTES + 1)
    block = put(arena, content)
    array = np.frombuffer(view.writable(block.block_id, block.offset, block.num_bytes), np.uint8)
    for page in range(11):
        array[page * PAGE_BYTES] = 0
        view.restore(block.offset, block.num_bytes)
        assert array.tobytes() == content


def test_restore_leaves_other_blocks_as_they_are(arena: Arena, view: ArenaView) -> None:
    first, second = put(arena, b"first"), put(arena, b"second")
    arrays = [np.frombuffer(view.writable(block.block_id, block.offset, 5), np.uint8) for block in (first, second)]
    for array in arrays:
        array[0] = 0
    view.restore(first.offset, first.num_bytes)
    assert [array[0] for array in arrays] == [ord("f"), 0]


def test_restore_drops_nothing_that_was_only_read(arena: Arena, view: ArenaView) -> None:
    block = put(arena, b"x" * 50_000)
    array = np.frombuffer(view.writable(block.block_id, block.offset, block.num_bytes), np.uint8)
    assert array.sum()
    address = array.ctypes.data
    assert not arena_views._has_private_pages(address, 12)  # pyright: ignore[reportPrivateUsage]
    array[5 * PAGE_BYTES] = 0
    assert arena_views._has_private_pages(address, 12)  # pyright: ignore[reportPrivateUsage]
    assert not arena_views._has_private_pages(address, 5)  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(("offset", "num_bytes"), [(-1, 1), (0, SIZE_BYTES + 1), (SIZE_BYTES, 1), (0, -1)])
def test_restore_refuses_what_is_outside(view: ArenaView, offset: int, num_bytes: int) -> None:
    with pytest.raises(TransportError, match="not within arena"):
        view.restore(offset, num_bytes)


# The end


def test_an_owner_can_close_while_its_memory_is_in_use(folder: str) -> None:
    with no_leaks():
        with Arena(folder, SIZE_BYTES) as arena:
            block = put(arena, b"abc")
            array = np.frombuffer(block.memory, np.uint8)
            view = ArenaView(folder, arena.name)
        assert os.listdir(folder) == []
        assert array.tobytes() == b"abc"
        assert read(view, block) == b"abc"  # who has mapped it may read on
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
        assert arena.name not in Path("/proc/self/maps").read_text().replace(f"{arena.name}\n", "", 1)  # the owner's own one


def test_only_the_user_may_read_the_file(folder: str, arena: Arena) -> None:
    assert os.stat(os.path.join(folder, arena.name)).st_mode & 0o777 == 0o600


# The janitor

_CREATE = """
import fcntl, mmap, os, signal, sys
from dyorc.transport import arena
folder, module, step, kind = sys.argv[1:]
real_open = os.open

def open_as_told(path, flags, *mode, **others):
    if kind == "named" and flags & os.O_TMPFILE == os.O_TMPFILE:
        raise OSError(95, "no nameless files")
    found = real_open(path, flags, *mode, **others)
    if step == "open" and (flags & os.O_CREAT or flags & os.O_TMPFILE == os.O_TMPFILE):
        os.kill(os.getpid(), signal.SIGKILL)
    return found

os.open = open_as_told
if step not in ("open", "none"):
    owner = {"os": os, "fcntl": fcntl, "mmap": mmap}[module]
    real = getattr(owner, step)

    def then_die(*positional, **named):
        real(*positional, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, step, then_die)
with arena.Arena(folder, 2**20) as owned:
    block = owned.allocate(5)
    block.memory[:] = b"bytes"
    owned.publish(block)
    print(owned.name, block.block_id, block.offset, flush=True)
    sys.stdin.readline()
"""

_READ = """
import sys
import numpy as np
from dyorc.transport.arena_views import ArenaView
folder, name, block_id, offset, num_bytes = sys.argv[1:]
view = ArenaView(folder, name)
array = np.frombuffer(view.writable(int(block_id), int(offset), int(num_bytes)), np.uint8)
array[:] = 0
print("read", flush=True)
sys.stdin.readline()
"""


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def end(process: subprocess.Popen[str]) -> int:
    """Kills it, if it has not ended, and gives its exit status."""
    with process:
        process.kill()
    return process.returncode


@pytest.mark.parametrize("kind", ["nameless", "named"])
def test_a_living_owner_is_left_alone_and_a_killed_one_swept(folder: str, kind: str) -> None:
    process = start(_CREATE, folder, "", "none", kind)
    try:
        name, block_id, offset = line_of(process).split()
        assert os.listdir(folder) == [name]
        assert sweep(folder) == []
        view = ArenaView(folder, name)
        assert bytes(view.read_only(int(block_id), int(offset), 5)) == b"bytes"
    finally:
        assert end(process) == -signal.SIGKILL
    assert os.listdir(folder) == [name]
    assert bytes(view.read_only(int(block_id), int(offset), 5)) == b"bytes"  # what is mapped stays
    view.close()
    assert sweep(folder) == [name]
    assert os.listdir(folder) == []


@pytest.mark.parametrize(
    ("module", "step", "kind", "is_left"),
    [
        ("os", "open", "nameless", False),
        ("fcntl", "flock", "nameless", False),
        ("os", "ftruncate", "nameless", False),
        ("os", "pwrite", "nameless", False),
        ("os", "link", "nameless", True),
        ("mmap", "mmap", "nameless", True),
        ("os", "open", "named", True),
        ("fcntl", "flock", "named", True),
        ("os", "pwrite", "named", True),
        ("os", "rename", "named", True),
    ],
)
def test_an_owner_killed_while_it_creates_leaves_nothing_that_is_not_swept(
    folder: str, module: str, step: str, kind: str, is_left: bool
) -> None:
    process = start(_CREATE, folder, module, step, kind)
    with process:
        assert line_of(process) == ""
    assert process.returncode == -signal.SIGKILL
    assert len(os.listdir(folder)) == is_left
    assert len(sweep(folder)) == is_left
    assert os.listdir(folder) == []


def test_entering_sweeps(folder: str) -> None:
    with start(_CREATE, folder, "os", "link", "nameless"):
        pass
    assert len(os.listdir(folder)) == 1
    with Arena(folder, SIZE_BYTES) as arena:
        assert os.listdir(folder) == [arena.name]


@pytest.mark.parametrize("kind", ["nameless", "named"])
@pytest.mark.parametrize("step", ["flock before", "flock", "ftruncate", "posix_fallocate", "pwrite", "rename"])
def test_sweeps_do_not_disturb_an_arena_that_is_being_created(
    folder: str, monkeypatch: pytest.MonkeyPatch, kind: str, step: str
) -> None:
    real_open = os.open
    if kind == "named":

        def open_named(path: Any, flags: int, *mode: int, **others: Any) -> int:
            if flags & os.O_TMPFILE == os.O_TMPFILE:
                raise OSError(errno.EOPNOTSUPP, "no nameless files")
            return real_open(path, flags, *mode, **others)

        monkeypatch.setattr(os, "open", open_named)
    owner: Any = fcntl if "flock" in step else os
    name = step.split()[0]
    real = getattr(owner, name)
    swept: list[list[str]] = []

    def and_sweep(*arguments: Any) -> Any:
        monkeypatch.setattr(owner, name, real)  # once
        if step == "flock before":
            swept.append(sweep(folder))
        result = real(*arguments)
        swept.append(sweep(folder))
        return result

    monkeypatch.setattr(owner, name, and_sweep)
    with no_leaks(), Arena(folder, SIZE_BYTES) as arena:
        assert swept or (kind, step) == ("nameless", "rename")
        assert os.listdir(folder) == [arena.name]
        view = ArenaView(folder, arena.name)
        assert read(view, put(arena, b"abc")) == b"abc"
        view.close()
        assert sweep(folder) == []
    assert os.listdir(folder) == []


def test_a_sweep_that_holds_a_new_file_for_a_moment_makes_the_owner_take_another(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_open, real_flock = os.open, fcntl.flock
    held: list[int] = []

    def open_named(path: Any, flags: int, *mode: int, **others: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no nameless files")
        found = real_open(path, flags, *mode, **others)
        if flags & os.O_EXCL and not held:
            held.append(real_open(path, os.O_RDONLY))
            real_flock(held[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        return found

    monkeypatch.setattr(os, "open", open_named)
    with Arena(folder, SIZE_BYTES) as arena:
        os.close(held[0])
        assert os.listdir(folder) == [arena.name]


def test_what_is_not_an_orphan_of_ours_is_left_alone(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    orphan = "dyorc-arena-0123456789abcdef"
    target = os.path.join(folder, "target")
    Path(target).write_text("precious")
    os.symlink("target", os.path.join(folder, "dyorc-arena-1111111111111111"))
    os.mkdir(os.path.join(folder, "dyorc-arena-2222222222222222"))
    os.mkfifo(os.path.join(folder, "dyorc-arena-3333333333333333"))
    Path(folder, "dyorc-arena-notes").write_text("precious")
    before = set(os.listdir(folder))
    Path(folder, orphan).touch()
    Path(folder, orphan + ".new").touch()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert sweep(folder) == []
    assert sorted(sweep(folder)) == [orphan, orphan + ".new"]
    assert set(os.listdir(folder)) == before
    assert Path(target).read_text() == "precious"


def test_a_missing_folder_has_no_orphans(folder: str) -> None:
    assert sweep(f"{folder}/missing") == []


def test_concurrent_sweeps_remove_each_orphan_once(folder: str, arena: Arena) -> None:
    orphans = {f"dyorc-arena-{at:016x}" for at in range(100)}
    for name in orphans:
        Path(folder, name).touch()
    ready = threading.Barrier(4)
    removed: list[str] = []

    def work() -> None:
        ready.wait()
        removed.extend(sweep(folder))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert os.listdir(folder) == [arena.name]
    assert sorted(removed) == sorted(orphans)


def test_a_killed_reader_leaves_the_arena_as_it_was(folder: str, arena: Arena, view: ArenaView) -> None:
    block = put(arena, b"x" * 10_000)
    process = start(_READ, folder, arena.name, block.block_id, block.offset, block.num_bytes)
    try:
        assert line_of(process) == "read\n"
        assert read(view, block) == b"x" * 10_000
    finally:
        assert end(process) == -signal.SIGKILL
    assert read(view, block) == b"x" * 10_000
    assert arena.free(block.block_id)
    assert read(view, put(arena, b"new")) == b"new"
