"""Who still needs which block of memory.

Tensors that are not carried along stay where they were made, in blocks that hold the outputs of a whole batch. Each row of a
block that a request keeps is a lease on it; so is each operand of a batch in flight, which may read it until it ends, whoever
was cancelled meanwhile, and each fetch in progress. A block is released when its last lease ends, at the end of the turn:
within one turn a row may be dropped before its neighbour is taken.

    unknown ── hold_new ──> held ── last drop, end of turn ──> released: unknown for ever, its number is never used again
                              │
                              └── holder gone: forgotten, nobody is told

A block that its holder says it does not have, or that could not be had from it, is *lost*: nobody may be sent there to read it.
It is released like others, because its holder is there and may have it after all.

Cost: none for tensors that are carried along.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from dyorc.engine.actions import ReleaseTensors
from dyorc.engine.model.cells import Cell
from dyorc.tensor import BlockId, blocks_of

Kept: TypeAlias = dict[Cell, Sequence[BlockId]]
"""The cells whose tensors somebody keeps, each with the blocks that its leases are on, one for each row."""


class Leases:
    """Counts leases.

    Attributes:
        counts: Leases on each block that is known.
        lost: Known blocks that nobody can read.
    """

    def __init__(self) -> None:
        self.counts: dict[BlockId, int] = {}
        self.lost: set[BlockId] = set()
        self._holders = {""}
        self._unleased: dict[BlockId, None] = {}

    # Leases

    def hold_new(self, blocks: Iterable[BlockId]) -> None:
        """Leases on tensors that have just been made. Of a holder that is gone there are none."""
        for block in blocks:
            if block[0] in self._holders:
                self.counts[block] = self.counts.get(block, 0) + 1

    def hold(self, blocks: Iterable[BlockId]) -> None:
        """One more lease on each. Blocks that are not known stay so."""
        for block in blocks:
            if block in self.counts:
                self.counts[block] += 1

    def drop(self, blocks: Iterable[BlockId]) -> None:
        """Ends a lease on each."""
        for block in blocks:
            count = self.counts.get(block)
            if count is not None:
                self.counts[block] = count - 1
                if count == 1:
                    self._unleased[block] = None

    def refuse(self, blocks: Iterable[BlockId]) -> None:
        """Takes in tensors that nobody wants, to have them released."""
        blocks = list(blocks)
        self.hold_new(blocks)
        self.drop(blocks)

    def keep(self, kept: Kept, cell: Cell) -> None:
        """Somebody keeps a cell's tensors, which are known or were lost. Nothing happens if they are all carried along."""
        if cell not in kept and (blocks := blocks_of(cell.tensors)):
            kept[cell] = blocks
            self.hold(blocks)

    def keep_new(self, kept: Kept, cell: Cell, blocks: list[BlockId]) -> None:
        """Somebody keeps tensors that have just been made for a cell, instead of those that it had before."""
        self.let_go(kept, cell)
        if blocks:
            kept[cell] = blocks
            self.hold_new(blocks)

    def let_go(self, kept: Kept, cell: Cell) -> None:
        """A cell's tensors are not kept any longer."""
        blocks = kept.pop(cell, None)
        if blocks is not None:
            self.drop(blocks)

    def let_all_go(self, kept: Kept) -> None:
        """Nothing is kept any longer."""
        for blocks in kept.values():
            self.drop(blocks)
        kept.clear()

    # Losses

    def is_there(self, block: BlockId) -> bool:
        """Whether somebody can be sent to read a block."""
        return block in self.counts and block not in self.lost

    def are_there(self, blocks: Sequence[BlockId]) -> bool:
        """Whether all of them can be read."""
        return all(block in self.counts and block not in self.lost for block in blocks)

    def lose(self, blocks: Iterable[BlockId]) -> bool:
        """Nobody can read these. Gives whether that is news. What the orchestrator holds is never lost."""
        known = {block for block in blocks if block[0] and self.is_there(block)}
        self.lost |= known
        return bool(known)

    def holder_joined(self, holder: str) -> None:
        """A process is there. It holds nothing yet."""
        self._holders.add(holder)

    def holder_left(self, holder: str) -> bool:
        """A process is gone with all that it held. Gives whether that was anything."""
        self._holders.discard(holder)
        gone = [block for block in self.counts if block[0] == holder]
        for block in gone:
            self._forget(block)
        return bool(gone)

    def _forget(self, block: BlockId) -> None:
        del self.counts[block]
        self.lost.discard(block)
        self._unleased.pop(block, None)

    # Releases

    def flush(self) -> ReleaseTensors | None:
        """What nobody needs any more at the end of a turn; None if that is nothing."""
        if not self._unleased:
            return None
        released = [block for block in self._unleased if not self.counts[block]]
        self._unleased.clear()
        for block in released:
            self._forget(block)
        return ReleaseTensors(released) if released else None

    def expected(self, leases: Iterable[Iterable[BlockId]]) -> Counter[BlockId]:
        """What the counts should be, given everybody's leases. For checks."""
        return Counter(block for blocks in leases for block in blocks if block in self.counts)
