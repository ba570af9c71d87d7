"""Counts the leases on blocks of memory, so that blocks are freed when they are no longer needed.

Stored tensors stay where they were made, in blocks that hold the outputs of a whole batch. A request pins the tensors it
needs: one lease on the block per row. A batch in flight has one on each block that it reads, because it may read until it ends,
even if its requests are cancelled; so has each fetch in progress. A block is freed at the end of the turn in which its last lease
was released: within one turn, a row may be released before its neighbour is acquired.

    unknown ── acquire_new ──> leased ── last release, end of turn ──> freed: its number is never used again
                                 │
                                 └── holder gone: no action follows; known again if it comes back and announces the block

Leases on blocks that are not known are counted, too. A gateway whose connection broke comes back with the same blocks, as
inputs of the requests that it submits again, and batches may still read them for the requests of before: if their leases were
forgotten, the end of such a batch would free a block that the new request needs. Who began to read before may also find that
it cannot: of a block that is back, as many losses are not believed as it had leases then.

A block that its holder does not have, or that could not be read from it, is *lost*: no reader is sent there. It is freed like
the others, because its holder is alive and may have it after all.

Tensors that travel inside messages have no leases and cost nothing here.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from dyorc.core.tensor import ON_DEVICE, BlockId, blocks_of
from dyorc.engine.actions import ReleaseTensors
from dyorc.engine.model.futures import Future

Pinned: TypeAlias = dict[Future, Sequence[BlockId]]
"""Futures whose tensors are pinned, each with the blocks its leases are on, one per row."""


class BlockLeases:
    """Counts the leases on each block.

    Attributes:
        holders: Processes in whose memory blocks may lie; parked replicas are among them, "" is the orchestrator, and
            `ON_DEVICE` what it has on devices.
        counts: Leases on each known block.
        absent_counts: Leases on each block that is not known.
        lost: Known blocks that cannot be read.
        doubts: How many losses of a block, which is back, are not believed.
        unleased: Blocks that have lost their last lease in this turn; some may have one again.
        evicted: Blocks that were dropped though they were leased.
    """

    def __init__(self) -> None:
        self.counts: dict[BlockId, int] = {}
        self.absent_counts: dict[BlockId, int] = {}
        self.lost: set[BlockId] = set()
        self.doubts: dict[BlockId, int] = {}
        self.holders = {"", ON_DEVICE}
        self.unleased: dict[BlockId, None] = {}
        self.evicted: list[BlockId] = []

    # Leases

    def acquire_new(self, blocks: Iterable[BlockId]) -> None:
        """Acquires leases on tensors just made. Blocks of a holder that is gone stay unknown."""
        for block in blocks:
            if block[0] in self.holders:
                count = self.counts.get(block)
                if count is None:
                    count = self.absent_counts.pop(block, 0)
                    if count:
                        self.doubts[block] = count
                self.counts[block] = count + 1
            else:
                self._acquire_absent(block)

    def acquire(self, blocks: Iterable[BlockId]) -> None:
        """Acquires one lease on each block."""
        for block in blocks:
            if block in self.counts:
                self.counts[block] += 1
            else:
                self._acquire_absent(block)

    def _acquire_absent(self, block: BlockId) -> None:
        self.absent_counts[block] = self.absent_counts.get(block, 0) + 1

    def release(self, blocks: Iterable[BlockId]) -> None:
        """Releases one lease on each block."""
        for block in blocks:
            count = self.counts.get(block)
            if count is not None:
                self.counts[block] = count - 1
                if count == 1:
                    self.unleased[block] = None
            elif (count := self.absent_counts.get(block)) is not None:
                if count > 1:
                    self.absent_counts[block] = count - 1
                else:
                    del self.absent_counts[block]

    def discard(self, blocks: Iterable[BlockId]) -> None:
        """Frees tensors that are not wanted."""
        blocks = list(blocks)
        self.acquire_new(blocks)
        self.release(blocks)

    def pin(self, pinned: Pinned, future: Future) -> None:
        """Pins a future's stored tensors, unless they are pinned already."""
        if future not in pinned:
            if blocks := blocks_of(future.tensors):
                pinned[future] = blocks
                self.acquire(blocks)
        elif future.resident_holds is not None:
            kept = pinned[future]
            released = [block for block in blocks_of(future.tensors) if block not in kept and block in self.counts]
            if released:  # something goes on reading it, and now it is needed again
                pinned[future] = [*kept, *released]
                self.acquire(released)

    def pin_new(self, pinned: Pinned, future: Future, blocks: list[BlockId]) -> None:
        """Pins tensors just made for a future, in place of those it had before."""
        self.unpin(pinned, future)
        if blocks:
            pinned[future] = blocks
            self.acquire_new(blocks)

    def unpin(self, pinned: Pinned, future: Future) -> None:
        """Unpins a future's tensors, if they are pinned."""
        blocks = pinned.pop(future, None)
        if blocks is not None:
            self.release(blocks)

    def unpin_block(self, pinned: Pinned, future: Future, block: BlockId) -> None:
        """Unpins one of a future's blocks, if it is pinned."""
        blocks = pinned.get(future, ())
        if block in blocks:
            kept = [other for other in blocks if other != block]
            if kept:
                pinned[future] = kept
            else:
                del pinned[future]
            self.release([block])

    def unpin_all(self, pinned: Pinned) -> None:
        """Unpins everything."""
        for blocks in pinned.values():
            self.release(blocks)
        pinned.clear()

    # Losses

    def is_there(self, block: BlockId) -> bool:
        """Returns whether a block can be read."""
        return block in self.counts and block not in self.lost

    def are_there(self, blocks: Sequence[BlockId]) -> bool:
        """Returns whether all blocks can be read."""
        return not blocks or all(block in self.counts and block not in self.lost for block in blocks)

    def lose(self, blocks: Iterable[BlockId]) -> bool:
        """Marks blocks as lost. Returns whether any was not lost before. Blocks of the orchestrator are never lost."""
        known = {block for block in blocks if block[0] and self.is_there(block)}
        doubted = known & self.doubts.keys()
        for block in doubted:  # the loss may be one of before its holder came back
            self.doubts[block] -= 1
            if not self.doubts[block]:
                del self.doubts[block]
        self.lost |= known - doubted
        return known != doubted

    def evict(self, block: BlockId) -> None:
        """Frees a block that its readers need, but have made again. Nothing may be reading it."""
        if block in self.counts:
            self._forget(block)
            self.evicted.append(block)

    def holder_joined(self, holder: str) -> None:
        """Adds a process. One that is known already keeps what it holds."""
        self.holders.add(holder)

    def holder_left(self, holder: str) -> bool:
        """Removes a process that is gone, and its blocks. Returns whether it held any."""
        if holder not in self.holders:
            return False
        self.holders.discard(holder)
        self.evicted = [block for block in self.evicted if block[0] != holder]
        held = [block for block in self.counts if block[0] == holder]
        for block in held:
            self._forget(block)
        return bool(held)

    def _forget(self, block: BlockId) -> None:
        if count := self.counts.pop(block):
            self.absent_counts[block] = count
        self.lost.discard(block)
        self.doubts.pop(block, None)
        self.unleased.pop(block, None)

    # Releases

    def flush(self) -> ReleaseTensors | None:
        """Frees the blocks without leases at the end of a turn. Returns None if all have leases."""
        released = [block for block in self.unleased if not self.counts[block]]
        self.unleased.clear()
        for block in released:
            self._forget(block)
        if self.evicted:
            released, self.evicted = self.evicted + released, []
        return ReleaseTensors(released) if released else None
