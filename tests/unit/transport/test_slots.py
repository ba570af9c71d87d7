"""Slots: a writer and a reader take turns, through two mappings of one file."""

import os
import threading

import pytest

from dyorc.errors import TensorLostError
from dyorc.transport.arena import Arena
from dyorc.transport.arena_slots import HEADER_BYTES, ArenaSlot, ArenaWindow

_NUM_BYTES = HEADER_BYTES + 8


def _both_ends(folder: str, arena: Arena) -> tuple[ArenaSlot, ArenaSlot]:
    """The writer's end and the reader's."""
    block = arena.allocate(_NUM_BYTES)
    assert block is not None
    return ArenaWindow(folder, arena.name).slot(block.offset, _NUM_BYTES), ArenaSlot(block.memory, "the slot")


def test_messages_arrive_whole_and_in_order_though_the_writer_never_asks(folder: str, arena: Arena) -> None:
    writer, reader = _both_ends(folder, arena)

    def write() -> None:
        for number in range(500):
            writer.begin(60)[:] = number.to_bytes(8, "little")
            writer.fill()

    thread = threading.Thread(target=write)
    thread.start()
    found: list[int] = []
    for _ in range(500):
        found.append(int.from_bytes(reader.take(60), "little"))
        reader.empty()
    thread.join()
    assert found == list(range(500))


def test_a_full_slot_is_not_written_and_an_empty_one_not_read(folder: str, arena: Arena) -> None:
    writer, reader = _both_ends(folder, arena)
    with pytest.raises(TensorLostError, match=r"the slot was not filled within 0.01 s"):
        reader.take(0.01)
    writer.begin(60)[:] = b"the 1st "
    writer.fill()
    with pytest.raises(TensorLostError, match=r"the slot at \d+ of arena dyorc-arena-\w+ was not emptied within 0.01 s"):
        writer.begin(0.01)
    assert bytes(reader.take(0)) == b"the 1st "
    reader.empty()
    writer.begin(0)[:] = b"the 2nd "


def test_a_window_refuses_what_is_not_within_the_arena_and_arenas_that_are_gone(folder: str, arena: Arena) -> None:
    window = ArenaWindow(folder, arena.name)
    with pytest.raises(TensorLostError, match="are not within arena"):
        window.slot(arena.size_bytes - 8, _NUM_BYTES)
    os.unlink(os.path.join(folder, arena.name))
    with pytest.raises(TensorLostError, match="its owner is gone"):
        ArenaWindow(folder, arena.name)
