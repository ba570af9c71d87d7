"""The tiers within one machine, which read tensors in place: a process's own, and those of other processes."""

from collections.abc import Sequence

from dyorc.transport.arena_views import ArenaView
from dyorc.transport.tiers import HERE, ByteSpan, TensorHolder


class InPlaceTier:
    """Reads this process's own tensors. Nothing moves.

    Args:
        holder_id: This process.
        view: A view of its own arena: a program may write to its inputs, and others must not see that.
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
        """Does nothing: the holder is this process."""

    def close(self) -> None:
        """Closes the view."""
        self._view.close()


class SharedMemoryTier:
    """Maps the arenas of other processes with the same shared memory, and reads their tensors in place.

    Args:
        memory: The name of the shared memory.
        folder: Where it is mounted.
    """

    name = "shm"

    def __init__(self, memory: str, folder: str) -> None:
        self._memory = memory
        self._folder = folder
        self._views: dict[str, tuple[str, ArenaView]] = {}

    def reaches(self, holder: TensorHolder) -> bool:
        """Returns whether the holder has an arena in this memory."""
        return holder.memory == self._memory and bool(holder.arena)

    def view(self, holder: TensorHolder, span: ByteSpan, is_writable: bool) -> memoryview:
        """Returns the bytes where they lie.

        Raises:
            TensorLostError: If the holder's arena is gone, or the block.
            TransportError: If the span is not within the block.
        """
        view = self._open(holder)
        read = view.writable if is_writable else view.read_only
        return read(span.block, span.offset, span.num_bytes)

    def is_intact(self, holder: TensorHolder, block: int) -> bool:
        """Returns whether a block is still what it was."""
        view = self._opened(holder)
        return view is not None and view.is_intact(block)

    def restore(self, holder: TensorHolder, span: ByteSpan) -> None:
        """Undoes what a program wrote to a writable view."""
        view = self._opened(holder)
        if view is not None:  # otherwise the holder was forgotten, and its mapping is gone with all writes
            view.restore(span.offset, span.num_bytes)

    def fetch(self, holder: TensorHolder, spans: Sequence[ByteSpan], into: Sequence[memoryview]) -> None:
        """Copies bytes."""
        for span, buffer in zip(spans, into, strict=True):
            buffer[:] = self.view(holder, span, False)

    def forget(self, holder_id: str) -> None:
        """Unmaps a holder's arena; its memory is free once no process maps it."""
        _, view = self._views.pop(holder_id, ("", None))
        if view is not None:
            view.close()

    def close(self) -> None:
        """Unmaps everything."""
        for holder_id in list(self._views):
            self.forget(holder_id)

    def _opened(self, holder: TensorHolder) -> ArenaView | None:
        name, view = self._views.get(holder.holder_id, ("", None))
        return view if name == holder.arena else None

    def _open(self, holder: TensorHolder) -> ArenaView:
        view = self._opened(holder)
        if view is None:
            self.forget(holder.holder_id)  # it has restarted, with another arena
            view = ArenaView(self._folder, holder.arena)
            self._views[holder.holder_id] = (holder.arena, view)
        return view
