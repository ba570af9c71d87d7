"""The tier within one process: a replica reads its own arena. Nothing moves."""

from collections.abc import Sequence

from dyorc.transport.arena_views import ArenaView
from dyorc.transport.moves import HERE
from dyorc.transport.tiers import ByteSpan, TensorHolder


class InPlaceTier:
    """Reads this process's own tensors.

    Args:
        holder_id: This process.
        view: Of its own arena: a program may write to its inputs, which must not reach what others read.
    """

    name = HERE

    def __init__(self, holder_id: str, view: ArenaView) -> None:
        self._holder_id = holder_id
        self._view = view

    def reaches(self, holder: TensorHolder) -> bool:
        """Returns whether the holder is this process."""
        return holder.holder_id == self._holder_id

    def view(self, holder: TensorHolder, span: ByteSpan, is_writable: bool) -> memoryview:
        """Returns the bytes where they lie."""
        read = self._view.writable if is_writable else self._view.read_only
        return read(span.block, span.offset, span.num_bytes)

    def is_intact(self, holder: TensorHolder, block: int) -> bool:
        """Returns whether a block is still what it was."""
        return self._view.is_intact(block)

    def restore(self, holder: TensorHolder, span: ByteSpan) -> None:
        """Undoes what a program wrote to a writable view."""
        self._view.restore(span.offset, span.num_bytes)

    def fetch(self, holder: TensorHolder, spans: Sequence[ByteSpan], into: Sequence[memoryview]) -> None:
        """Copies bytes."""
        for span, buffer in zip(spans, into, strict=True):
            buffer[:] = self.view(holder, span, False)

    def forget(self, holder_id: str) -> None:
        """Does nothing: this is our own process, which never goes."""

    def close(self) -> None:
        """Drops the view."""
        self._view.close()
