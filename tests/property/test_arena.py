"""Blocks never overlap, in whatever order they are allocated and freed, and a reader never reads bytes of another block."""

import os
import struct
from collections.abc import Generator
from contextlib import contextmanager
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from dyorc.errors import TensorLostError, TransportError
from dyorc.transport.arena import Arena, ArenaBlock
from dyorc.transport.arena_file import PAGE_BYTES
from dyorc.transport.arena_views import ArenaView
from tests.shared_folders import shared_folder

NUM_PAGES = 24
NUM_SLOTS = 8
SIZE_BYTES = (NUM_PAGES + 2) * PAGE_BYTES
lengths = st.integers(0, NUM_PAGES * PAGE_BYTES + 1) | st.integers(0, 4).map(lambda pages: pages * PAGE_BYTES) | st.integers(0, 9)


@contextmanager
def opened() -> Generator[tuple[str, Arena]]:
    with shared_folder() as folder, Arena(folder, SIZE_BYTES, NUM_SLOTS) as arena:
        yield folder, arena


class Blocks(RuleBasedStateMachine):
    """An arena beside a model of it: a dictionary of contents."""

    blocks = Bundle("blocks")
    published = Bundle("published")

    def __init__(self) -> None:
        super().__init__()
        self._context = opened()
        folder, self.arena = self._context.__enter__()
        self.view = ArenaView(folder, self.arena.name)
        self.live: dict[int, tuple[ArenaBlock, bytes]] = {}
        self.visible: set[int] = set()
        self.freed: set[int] = set()

    def teardown(self) -> None:
        for block_id in list(self.live):
            assert self.arena.free(block_id)
        assert (self.arena.num_blocks, self.arena.num_bytes_used) == (0, 0)
        assert self.arena.allocate(self.arena.max_block_bytes) is not None  # all free ranges are one again
        self.view.close()
        self._context.__exit__(None, None, None)

    @rule(target=blocks, num_bytes=lengths, fill=st.integers(1, 255))
    def allocate(self, num_bytes: int, fill: int) -> object:
        block = self.arena.allocate(num_bytes)
        if block is None:
            assert len(self.live) == NUM_SLOTS or self.largest_gap() < pages(num_bytes)
            return multiple()
        assert len(self.live) < NUM_SLOTS
        assert block.block_id not in self.freed
        assert (block.offset % PAGE_BYTES, block.num_bytes, len(block.memory)) == (0, num_bytes, num_bytes)
        assert block.offset == self.lowest_gap(pages(num_bytes))
        content = bytes([fill]) * num_bytes
        block.memory[:] = content
        self.live[block.block_id] = (block, content)
        return block

    @rule(target=published, block=blocks)
    def publish(self, block: ArenaBlock) -> object:
        if block.block_id in self.live:
            self.arena.publish(block)
            self.visible.add(block.block_id)
            return block
        try:
            self.arena.publish(block)
        except TransportError:
            return multiple()
        raise AssertionError("a freed block was published")

    @rule(block=consumes(blocks) | consumes(published) | blocks)
    def free(self, block: ArenaBlock) -> None:
        assert self.arena.free(block.block_id) == (block.block_id in self.live)
        self.live.pop(block.block_id, None)
        self.visible.discard(block.block_id)
        self.freed.add(block.block_id)

    @rule()
    def free_all(self) -> None:
        self.arena.free_all()
        self.freed.update(self.live)
        self.live.clear()
        self.visible.clear()

    @rule(block=published, at=st.integers(0, 10_000))
    def write_privately(self, block: ArenaBlock, at: int) -> None:
        if block.block_id in self.visible and block.num_bytes:
            memory = self.view.writable(block.block_id, block.offset, block.num_bytes)
            memory[at % block.num_bytes] = 0
            self.view.restore(block.offset, block.num_bytes)

    @invariant()
    def contents_are_as_written(self) -> None:
        for block_id, (block, content) in self.live.items():
            assert block.memory == content
            assert self.view.is_intact(block_id) == (block_id in self.visible)
            if block_id in self.visible:
                assert self.view.read_only(block_id, block.offset, block.num_bytes) == content
                assert self.view.writable(block_id, block.offset, block.num_bytes) == content
        assert not any(self.view.is_intact(block_id) for block_id in self.freed)

    @invariant()
    def blocks_do_not_meet(self) -> None:
        ranges = self.ranges()
        assert all(end <= start for (_, end), (start, _) in pairwise(ranges))
        assert all(self.data_start <= start and end <= SIZE_BYTES for start, end in ranges)
        assert self.arena.num_blocks == len(ranges)
        assert self.arena.num_bytes_used == sum(end - start for start, end in ranges)

    @property
    def data_start(self) -> int:
        return SIZE_BYTES - self.arena.max_block_bytes

    def ranges(self) -> list[tuple[int, int]]:
        return sorted((block.offset, block.offset + pages(block.num_bytes)) for block, _ in self.live.values())

    def gaps(self) -> list[tuple[int, int]]:
        ends = [self.data_start, *(end for _, end in self.ranges())]
        starts = [*(start for start, _ in self.ranges()), SIZE_BYTES]
        return list(zip(ends, starts, strict=True))

    def largest_gap(self) -> int:
        return max(end - start for start, end in self.gaps())

    def lowest_gap(self, num_bytes: int) -> int:
        return next(start for start, end in self.gaps() if end - start >= num_bytes)


def pages(num_bytes: int) -> int:
    """Returns the room that this many bytes take."""
    return max(-(-num_bytes // PAGE_BYTES), 1) * PAGE_BYTES


TestBlocks = Blocks.TestCase
TestBlocks.settings = settings(stateful_step_count=30)

words = st.integers(0, 2**64 - 1) | st.integers(0, 2 * SIZE_BYTES) | st.integers(-3, 3).map(lambda step: step % 2**64)
signed = st.integers(-(2**65), 2**65) | st.integers(-PAGE_BYTES, SIZE_BYTES + PAGE_BYTES)


def put_some(arena: Arena) -> list[ArenaBlock]:
    found = []
    for num_bytes in (5, 3 * PAGE_BYTES, 100, 0):
        block = arena.allocate(num_bytes)
        assert block is not None
        block.memory[:] = bytes([num_bytes % 251 + 1]) * num_bytes
        arena.publish(block)
        found.append(block)
    return found


@given(st.integers(0, 3), st.integers(-2, 2) | signed, signed, signed)
def test_a_reader_gets_bytes_of_the_block_or_an_error(which: int, id_step: int, offset: int, num_bytes: int) -> None:
    with opened() as (folder, arena):
        block = put_some(arena)[which]
        view = ArenaView(folder, arena.name)
        is_inside = 0 <= offset <= offset + num_bytes <= block.num_bytes and num_bytes >= 0
        for read in (view.read_only, view.writable):
            try:
                found = read(block.block_id + id_step, block.offset + offset, num_bytes)
            except TensorLostError:
                assert id_step
            except TransportError:
                assert id_step or not is_inside
            else:
                assert not id_step or num_bytes <= 3 * PAGE_BYTES
                assert id_step or (is_inside and found == block.memory[offset : offset + num_bytes])
        view.close()


@given(
    st.lists(st.tuples(st.integers(0, 6), words), max_size=2),
    st.lists(st.tuples(st.integers(0, NUM_SLOTS * 4 - 1), words), max_size=8),
    st.lists(st.tuples(st.integers(0, 3), words, words), min_size=1, max_size=4),
)
def test_a_corrupt_arena_leads_to_errors_only(
    header: list[tuple[int, int]], table: list[tuple[int, int]], reads: list[tuple[int, int, int]]
) -> None:
    with opened() as (folder, arena):
        blocks = put_some(arena)
        with open(os.path.join(folder, arena.name), "r+b") as file:
            for start, changes in ((0, header), (PAGE_BYTES, table)):
                for at, word in changes:
                    file.seek(start + at * 8)
                    file.write(struct.pack("=Q", word))
            file.seek(0)
            content = file.read()
        data_start = SIZE_BYTES - arena.max_block_bytes
        try:
            view = ArenaView(folder, arena.name)
        except TransportError:
            assert header
            return
        for which, offset, num_bytes in [*reads, *((at, block.offset, block.num_bytes) for at, block in enumerate(blocks))]:
            for read in (view.read_only, view.writable):
                try:
                    found = read(blocks[which].block_id, offset, num_bytes)
                except TransportError:
                    assert table or (offset, num_bytes) != (blocks[which].offset, blocks[which].num_bytes)
                else:
                    assert data_start <= offset <= offset + num_bytes <= SIZE_BYTES
                    assert found == content[offset : offset + num_bytes]
        view.close()
