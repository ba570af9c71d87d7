"""What a program writes into its inputs is private, and gone once they are restored."""

import numpy as np
import pytest

from dyorc.errors import TransportError
from dyorc.transport import arena_views
from dyorc.transport.arena import Arena
from dyorc.transport.arena_file import PAGE_BYTES
from dyorc.transport.arena_views import ArenaView
from tests.unit.transport.arena_blocks import SIZE_BYTES, put, read


@pytest.mark.parametrize("pagemap", ["/proc/self/pagemap", "/proc/self/there is no such file", "/dev/null"])
def test_writes_of_a_program_are_private_and_gone_after_restore(
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
def test_restore_refuses_bytes_outside_of_the_arena(view: ArenaView, offset: int, num_bytes: int) -> None:
    with pytest.raises(TransportError, match="not within arena"):
        view.restore(offset, num_bytes)
