"""Reads columns whose tensors came as frames, lie in an arena of this node, or are on another node.

The rule is at most one copy, and none where a view will do:

    frames, or one piece that this node holds      one array, where the bytes lie
    several pieces that this node holds            a list of arrays, where the bytes lie; the program's batch is the one copy
    pieces from other nodes                        fetched into one buffer, with what this node holds, as one array

Bytes read in place may be written to all the same: such views are private to this process (`ArenaView.writable`). If
columns overlap, only the first may.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dyorc.core.arrays import Array
from dyorc.core.tensor import BlockId, DType
from dyorc.errors import TensorLostError, TransportError
from dyorc.transport.column_codec import (
    Column,
    ColumnHeader,
    Frame,
    Rows,
    StoredColumn,
    StoredRows,
    check_stored,
    decode_column,
    decode_stored,
    each_row,
    num_frames,
)
from dyorc.transport.staging import Fetch
from dyorc.transport.tier_routes import Routes
from dyorc.transport.tiers import HERE, MESSAGE, ON_DEVICE, ByteSpan, InputMoves, TensorHolder, ViewTier


def _allocate(num_bytes: int) -> memoryview:
    return np.empty(num_bytes, np.uint8).data


class BatchBuffers:
    """One buffer for each place in a batch, as long as the longest so far. A new request for a place overwrites the last one.

    Args:
        allocate: Makes memory; a device's library has its own, which it copies from faster.
    """

    def __init__(self, allocate: Callable[[int], memoryview] = _allocate) -> None:
        self._allocate = allocate
        self._buffers: dict[int, memoryview] = {}

    def take(self, place: int, num_bytes: int) -> memoryview:
        """Returns memory of `num_bytes` for a place."""
        buffer = self._buffers.get(place)
        if buffer is None or len(buffer) < num_bytes:
            self._buffers.pop(place, None)  # free it first
            buffer = self._buffers[place] = self._allocate(max(num_bytes, 4096))
        return buffer[:num_bytes]


class InputsLostError(TensorLostError):
    """Tensors of a message cannot be read; `blocks` says which."""

    def __init__(self, blocks: Sequence[BlockId], reason: str) -> None:
        super().__init__(f"tensors in {len(blocks)} blocks cannot be read: {reason}")
        self.blocks = tuple(blocks)


@dataclass(frozen=True, slots=True)
class _Viewed:
    """A span that was read in place."""

    tier: ViewTier
    holder: TensorHolder
    span: ByteSpan
    is_writable: bool


class Inbox:
    """Reads the columns of a message. What it returns is valid until `done`.

    Args:
        landing: Returns a buffer for a column's bytes from other nodes: (number of the column, bytes).
        staged: Returns the bytes of a span that was fetched before, if it was (`StagingArea.take`). With a third argument it
            fetches and keeps them: if a batch needs a part of a tensor, the next one is likely to need another part.
        is_writing: Whether its results may be written to, where that costs no copy.

    Attributes:
        num_copied_bytes: Bytes copied so far, from other nodes or together with those.
        num_viewed_bytes: Bytes read in place.
        moves: How the inputs came here.
    """

    def __init__(
        self,
        routes: Routes,
        landing: Callable[[int, int], memoryview] = lambda at, num_bytes: memoryview(bytearray(num_bytes)),
        staged: Callable[[TensorHolder, ByteSpan, Fetch | None], memoryview | None] = lambda holder, span, fetch: None,
        is_writing: bool = True,
    ) -> None:
        self._is_writing = is_writing
        self._routes = routes
        self._landing = landing
        self._staged = staged
        self._viewed: list[_Viewed] = []
        self._num_fetches = 0
        self.num_copied_bytes = 0
        self.num_viewed_bytes = 0
        self.moves = InputMoves()

    def read(self, headers: Sequence[ColumnHeader], frames: Sequence[Frame], holders: Sequence[TensorHolder]) -> list[Rows]:
        """Returns the arrays of all columns.

        Raises:
            InputsLostError: If a holder is gone or no longer has a tensor.
            TransportError: If frames are missing, left over, or of another length than their header says.
        """
        num_expected = sum(num_frames(header) for header in headers)
        if num_expected != len(frames):
            raise TransportError(f"a message announces {num_expected} frames and has {len(frames)}")
        if frames:
            self.moves.add(MESSAGE, sum(map(len, frames)))
        columns: list[Rows] = []
        at = 0
        for number, header in enumerate(headers):
            end = at + num_frames(header)
            if isinstance(header, Column):
                columns.append(decode_column(header, frames[at:end]))
            else:
                columns.append(self._read_stored(number, header, frames[at:end], holders))
            at = end
        return columns

    def watch(self, holder: TensorHolder, part: StoredRows) -> None:
        """Has `check` look at the block of calls that are read on a device.

        Raises:
            InputsLostError: If it is gone.
        """
        span = ByteSpan(part.block, part.offset, 0)
        tier = self._routes.viewer(holder)
        try:
            if tier is None:
                raise TensorLostError(f"holder {holder.holder_id!r} is not on this node")
            tier.view(holder, span, False)
        except TensorLostError as error:
            raise InputsLostError([(holder.holder_id, part.block)], str(error)) from error
        self._viewed.append(_Viewed(tier, holder, span, False))
        self.moves.add(ON_DEVICE, part.num_rows * part.num_bytes)

    def lose(self, holder: TensorHolder, block: int) -> None:
        """Has a holder free a block that was overwritten on its device."""
        self._routes.lose(holder, block)

    def check(self) -> None:
        """Checks that everything viewed is still unchanged.

        Raises:
            InputsLostError: If a block was freed meanwhile, so that what was computed from it is worthless.
        """
        for viewed in self._viewed:
            if not viewed.tier.is_intact(viewed.holder, viewed.span.block):
                raise InputsLostError([(viewed.holder.holder_id, viewed.span.block)], "it was released while it was read")

    def done(self) -> None:
        """Ends reading, and undoes writes to views."""
        for viewed in self._viewed:
            if viewed.is_writable:
                viewed.tier.restore(viewed.holder, viewed.span)
        self._viewed.clear()

    def _read_stored(self, number: int, header: StoredColumn, frames: Sequence[Frame], holders: Sequence[TensorHolder]) -> Rows:
        parts, dtype = header.parts, header.dtype
        if not parts or any(isinstance(part, StoredRows) and not 0 <= part.holder < len(holders) for part in parts):
            raise TransportError(f"a column of {len(parts)} parts points beyond {len(holders)} holders")
        for part in parts:
            if isinstance(part, StoredRows):
                check_stored(dtype, part)
            elif part.dtype is not dtype:
                raise TransportError(f"a column of {dtype} has a part of {part.dtype}")
        is_alone = len(parts) == 1
        places = [self._view(holders[p.holder], p, is_alone) if isinstance(p, StoredRows) else None for p in parts]
        if any(place is None and isinstance(part, StoredRows) for part, place in zip(parts, places, strict=True)):
            whole = _as_whole(header)
            landing, places = self._land(number, parts, places, holders, whole is not None)
            if whole is not None:
                return decode_stored(dtype, whole, landing)
        rows: list[Array] = []
        frame = 0
        for part, place in zip(parts, places, strict=True):
            if isinstance(part, Column):
                rows.extend(each_row(decode_column(part, frames[frame : frame + len(part.shapes)])))
                frame += len(part.shapes)
            else:
                assert place is not None
                decoded = decode_stored(dtype, part, place)
                if is_alone:
                    return decoded
                rows.extend(each_row(decoded))
        return rows

    def _land(
        self,
        number: int,
        parts: Sequence[Column | StoredRows],
        places: Sequence[memoryview | None],
        holders: Sequence[TensorHolder],
        is_whole: bool,
    ) -> tuple[memoryview, list[memoryview | None]]:
        """Fetches the parts that are on other nodes; if `is_whole`, joins all parts, one behind the other.

        Returns:
            The buffer, and each part's place.
        """
        is_here = [place is not None or isinstance(part, Column) for part, place in zip(parts, places, strict=True)]
        lengths = [
            part.num_rows * part.num_bytes if isinstance(part, StoredRows) and (is_whole or not here) else 0
            for part, here in zip(parts, is_here, strict=True)
        ]
        try:
            landing = self._landing(number, sum(lengths))
        except (MemoryError, OverflowError, ValueError) as error:  # the latter if no machine could have it
            raise TransportError(f"no memory for a column of {sum(lengths)} bytes") from error
        wanted: dict[int, tuple[list[ByteSpan], list[memoryview]]] = {}
        landed: list[memoryview | None] = []
        at = 0
        for part, place, length in zip(parts, places, lengths, strict=True):
            into = landing[at : at + length]
            at += length
            if isinstance(part, Column) or (place is not None and not is_whole):
                landed.append(place)
                continue
            landed.append(into)
            if place is not None:
                into[:] = place
            else:
                spans, buffers = wanted.setdefault(part.holder, ([], []))
                spans.append(_span(part))
                buffers.append(into)
        for holder, (spans, buffers) in wanted.items():
            self._fetch(holders[holder], spans, buffers)
        self.num_copied_bytes += sum(lengths)
        return landing, landed

    def _view(self, holder: TensorHolder, part: StoredRows, is_alone: bool) -> memoryview | None:
        """Returns bytes of this node, in place; None if they are on another and were not fetched."""
        span = _span(part)
        tier = self._routes.viewer(holder)
        try:
            if tier is None:
                return self._view_staged(holder, span, is_part=part.strides is not None)
            if part.device is not None:
                self._routes.fill(holder, span.block, part.device)
            is_writable = is_alone and self._is_writing and not self._is_taken(holder, span)
            view = tier.view(holder, span, is_writable)
        except TensorLostError as error:
            raise InputsLostError([(holder.holder_id, span.block)], str(error)) from error
        self._viewed.append(_Viewed(tier, holder, span, is_writable))
        self.num_viewed_bytes += span.num_bytes
        self.moves.add(tier.name, span.num_bytes)
        return view

    def _view_staged(self, holder: TensorHolder, span: ByteSpan, *, is_part: bool) -> memoryview | None:
        """Returns bytes of another node that were fetched before; None if they were not. For a part, fetches the whole tensor."""
        started_s, num_fetches = time.perf_counter(), self._num_fetches
        staged = self._staged(holder, span, self._bring if is_part else None)
        if staged is None:
            return None
        if self._num_fetches == num_fetches:
            self.moves.add(HERE, span.num_bytes, time.perf_counter() - started_s)  # its end may just have come
        return staged.toreadonly()  # the next batch may need them, too

    def _bring(self, holder: TensorHolder, spans: Sequence[ByteSpan], into: Sequence[memoryview]) -> None:
        """Fetches bytes from another node."""
        started_s = time.perf_counter()
        tier = self._routes.fetch(holder, spans, into)
        self._num_fetches += 1
        self.moves.add(tier, sum([span.num_bytes for span in spans]), time.perf_counter() - started_s)

    def _is_taken(self, holder: TensorHolder, span: ByteSpan) -> bool:
        """Returns whether a span overlaps another that may be written to, as when a tensor is two inputs of one call."""
        return any(
            viewed.is_writable
            and (viewed.holder.holder_id, viewed.span.block) == (holder.holder_id, span.block)
            and max(viewed.span.offset, span.offset)
            < min(viewed.span.offset + viewed.span.num_bytes, span.offset + span.num_bytes)
            for viewed in self._viewed
        )

    def _fetch(self, holder: TensorHolder, spans: Sequence[ByteSpan], into: Sequence[memoryview]) -> None:
        try:
            self._bring(holder, spans, into)
        except TensorLostError as error:
            raise InputsLostError([(holder.holder_id, span.block) for span in spans], str(error)) from error


def _as_whole(header: StoredColumn) -> StoredRows | None:
    """Returns a column's parts as one piece, if they are alike."""
    first = header.parts[0]
    parts = [part for part in header.parts if isinstance(part, StoredRows) and part.strides is None]
    if header.dtype is DType.BYTES or len(parts) != len(header.parts) or not isinstance(first, StoredRows):
        return None
    if any((part.shape, part.num_bytes) != (first.shape, first.num_bytes) for part in parts):
        return None
    num_rows = sum(part.num_rows for part in parts)
    return StoredRows(0, 0, 0, first.num_bytes, first.shape, num_rows, math.prod(first.shape))


def _span(part: StoredRows) -> ByteSpan:
    return ByteSpan(part.block, part.offset, part.num_rows * part.num_bytes)
