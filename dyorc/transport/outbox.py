"""What a process publishes: small tensors as frames, large ones as blocks of its arena.

A column becomes one block, in which its calls follow each other, so that a batch of the same calls in the same order reads it as
one array. Publishing is the only copy that a tensor needs within a node.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import numpy as np

from dyorc.core.arrays import Array, address_of, dtype_of
from dyorc.core.tensor import DType
from dyorc.errors import TransportError
from dyorc.protocol.raw import encode_bytes
from dyorc.transport.arena import Arena, ArenaBlock
from dyorc.transport.arena_file import round_up
from dyorc.transport.column_codec import (
    ColumnHeader,
    Frame,
    Rows,
    StoredColumn,
    StoredRows,
    each_row,
    encode_column,
)

TENSOR_ALIGNMENT = 64
"""Alignment in bytes of unlike tensors that share a block, and of requests' tensors."""


class NoRoomError(Exception):
    """The arena is full now. Nothing was stored.

    Args:
        num_bytes: How much was to be stored.
        arena_bytes: How much the arena holds in all.
        remedy: What to do if that is too little.
    """

    def __init__(self, num_bytes: int, arena_bytes: int, remedy: str) -> None:
        super().__init__(f"no room for {num_bytes} bytes")
        self.num_bytes = num_bytes
        self._in_all = f"it holds {arena_bytes} bytes in all; {remedy}"

    def within(self, arena: str, limit_s: float, share: float) -> str:
        """Returns what happened, for people.

        Args:
            arena: Whose arena it is, in words.
            limit_s: `TransportConfig.arena_wait_s`, the longest wait for room.
            share: Which part of it a batch has waited.
        """
        if not share:
            wait = ", and none was waited for, as the batch's requests have waited before"
        elif share < 1:
            wait = f" within {limit_s * share:.3g} s, this attempt's share of transport.arena_wait_s ({limit_s:g} s)"
        else:
            wait = f" within {limit_s:.3g} s (transport.arena_wait_s)"
        return f"{arena} had no room for {self.num_bytes} bytes{wait}: {self._in_all}"


class TooLargeError(TransportError):
    """The arena can never hold that much in one block. Nothing was stored."""


class Outbox:
    """Writes columns.

    Args:
        arena: This process's own.
        inline_limit_bytes: Tensors up to this size become frames.

    Attributes:
        num_copied_bytes: Bytes copied into the arena so far.
    """

    def __init__(self, arena: Arena, inline_limit_bytes: int) -> None:
        self._arena = arena
        self._reserved: dict[tuple[int, int], ArenaBlock] = {}
        self.inline_limit_bytes = inline_limit_bytes
        self.num_copied_bytes = 0

    def write(self, columns: Sequence[Rows]) -> tuple[tuple[ColumnHeader, ...], list[Frame]]:
        """Returns headers and frames of all columns of a batch.

        Raises:
            NoRoomError: If the arena has no room now; nothing stays stored.
            TooLargeError: If a column is larger than the arena can ever hold.
            TransportError: If one mixes types.
        """
        are_small = [self.is_small(rows) for rows in columns]
        if all(are_small):
            return self._write(columns, are_small, [])
        with self._all_or_none() as blocks:
            return self._write(columns, are_small, blocks)

    def _write(
        self, columns: Sequence[Rows], are_small: Sequence[bool], blocks: list[ArenaBlock]
    ) -> tuple[tuple[ColumnHeader, ...], list[Frame]]:
        headers: list[ColumnHeader] = []
        frames: list[Frame] = []
        for rows, is_small in zip(columns, are_small, strict=True):
            if is_small:
                header, parts = encode_column(rows)
                frames.extend(parts)
            else:
                header = self._store(rows, blocks)
            headers.append(header)
        return tuple(headers), frames

    def reserve(self, num_bytes: int) -> memoryview | None:
        """Returns memory for a result to be written; None if it is small, or there is no room.

        An array that fills it is published as it is. Memory that is not published stays until `drop_reserved`.
        """
        if num_bytes <= self.inline_limit_bytes:
            return None
        block = self._arena.allocate(num_bytes)
        if block is None:
            return None
        self._reserved[_extent_of(np.frombuffer(block.memory, np.uint8))] = block
        return block.memory

    def check_beside(self, num_bytes: int, num_read_bytes: int) -> None:
        """Checks that shared memory can hold a result of this size together with its inputs.

        Raises:
            TooLargeError: If it cannot, so that waiting is useless.
        """
        if not self._arena.can_hold(num_bytes, num_read_bytes):
            remedy = self._arena.remedy_for(num_bytes + num_read_bytes)
            raise TooLargeError(f"no room for results of {num_bytes} bytes next to inputs of {num_read_bytes} bytes; {remedy}")

    def drop_reserved(self) -> None:
        """Frees what was reserved and not published."""
        for block in self._reserved.values():
            self._arena.free(block.block_id)
        self._reserved.clear()

    def take_back(self, headers: Sequence[ColumnHeader]) -> None:
        """Frees what `write` has stored. No other process may know of it yet."""
        for header in headers:
            for part in header.parts if isinstance(header, StoredColumn) else ():
                if isinstance(part, StoredRows):
                    self._arena.free(part.block)

    def store(self, array: Array) -> StoredRows:
        """Puts one tensor into the arena.

        Raises:
            NoRoomError: If there is no room now.
            TooLargeError: If there never will be.
        """
        with self._all_or_none() as blocks:
            part = self._store([array], blocks).parts[0]
        assert isinstance(part, StoredRows)
        return part

    @contextmanager
    def _all_or_none(self) -> Generator[list[ArenaBlock], None, None]:
        """Frees the blocks added to the list if something raises; reserved ones are reserved again."""
        blocks: list[ArenaBlock] = []
        reserved = dict(self._reserved)
        try:
            yield blocks
        except BaseException:
            self._reserved = reserved  # what was written there is still to be published
            for block in blocks:
                self._arena.free(block.block_id)
            raise

    def is_small(self, rows: Rows) -> bool:
        """Returns whether the tensors of a column travel inline."""
        limit = self.inline_limit_bytes
        if isinstance(rows, np.ndarray) and rows.dtype != object:
            return rows.nbytes <= limit * max(1, len(rows))
        return all(num_bytes_of(row) <= limit for row in each_row(rows))

    def _store(self, rows: Rows, blocks: list[ArenaBlock]) -> StoredColumn:
        """Puts a column into a block, which is added to `blocks`."""
        dtype = dtype_of(rows if isinstance(rows, np.ndarray) else rows[0])
        if dtype is DType.BYTES:
            return self._store_texts(rows, blocks)
        shapes = {row.shape for row in rows}
        if len(shapes) == 1:
            return self._store_alike(rows, dtype, blocks)
        if any(row.dtype != rows[0].dtype for row in rows):
            raise TransportError(f"a column mixes {rows[0].dtype} with other types")
        offsets, end = offsets_of([row.nbytes for row in rows])
        block = self._allocate(end, blocks, rows)
        memory = np.frombuffer(block.memory, np.uint8)
        for row, at in zip(rows, offsets, strict=True):
            np.copyto(memory[at : at + row.nbytes].view(row.dtype).reshape(row.shape), row)
        places = [(at, int(row.nbytes), row.shape, int(row.size)) for row, at in zip(rows, offsets, strict=True)]
        return self._publish(dtype, block, end, places)

    def _store_alike(self, rows: Rows, dtype: DType, blocks: list[ArenaBlock]) -> StoredColumn:
        """Puts calls of one shape into a block, without gaps, so that they can be read as one array."""
        first = rows[0]
        if any(row.dtype != first.dtype for row in rows):
            raise TransportError(f"a column mixes {first.dtype} with other types")
        num_rows, num_bytes = len(rows), int(first.nbytes)
        block = self._take_reserved(rows)
        if block is None:
            block = self._allocate(num_rows * num_bytes, blocks, rows)
            place = np.frombuffer(block.memory, first.dtype).reshape(num_rows, *first.shape)
            if isinstance(rows, np.ndarray):
                np.copyto(place, rows)
            else:
                for at, row in enumerate(rows):
                    np.copyto(place[at, ...], row)
            self.num_copied_bytes += num_rows * num_bytes
        self._arena.publish(block)
        part = StoredRows(0, block.block_id, block.offset, num_bytes, first.shape, num_rows, int(first.size))
        return StoredColumn(dtype, (part,))

    def _take_reserved(self, rows: Rows) -> ArenaBlock | None:
        """Returns the block that an array fills already, if it was made by `reserve`."""
        return self._reserved.pop(_extent_of(rows), None) if self._reserved else None

    def _store_texts(self, rows: Rows, blocks: list[ArenaBlock]) -> StoredColumn:
        arrays = each_row(rows)
        encoded = [encode_bytes(row) for row in arrays]
        offsets, end = offsets_of([len(raw) for raw in encoded])
        block = self._allocate(end, blocks, rows)
        for raw, at in zip(encoded, offsets, strict=True):
            block.memory[at : at + len(raw)] = raw
        places = [(at, len(raw), row.shape, row.size) for row, raw, at in zip(arrays, encoded, offsets, strict=True)]
        return self._publish(DType.BYTES, block, end, places)

    def _publish(
        self, dtype: DType, block: ArenaBlock, num_bytes: int, places: Sequence[tuple[int, int, tuple[int, ...], int]]
    ) -> StoredColumn:
        """Publishes calls that differ in shape or length: each at its place (offset, bytes, shape, elements) in the block."""
        self._arena.publish(block)
        self.num_copied_bytes += num_bytes
        return StoredColumn(
            dtype,
            tuple(StoredRows(0, block.block_id, block.offset + at, length, shape, 1, size) for at, length, shape, size in places),
        )

    def _allocate(self, num_bytes: int, blocks: list[ArenaBlock], rows: Rows) -> ArenaBlock:
        limit = self._arena.max_block_bytes
        if num_bytes > limit:
            largest = max(map(num_bytes_of, each_row(rows)))
            if largest > limit:
                remedy = self._arena.remedy_for(largest)
                raise TooLargeError(f"a tensor has {largest} bytes, the arena holds {limit} in all; {remedy}")
            remedy = self._arena.remedy_for(num_bytes)
            raise TooLargeError(
                f"a tensor of a whole batch has {num_bytes} bytes, the arena holds {limit} in all; {remedy}, or "
                f"lower the program's max_batch_size"
            )
        block = self._arena.allocate(num_bytes)
        if block is None:
            raise NoRoomError(num_bytes, limit, self._arena.remedy_for(limit + num_bytes))
        blocks.append(block)
        return block


def _extent_of(rows: Rows) -> tuple[int, int]:
    """Returns where a column begins in this process's memory, and its bytes; (0, 0) if it is not one array without gaps."""
    return (address_of(rows), rows.nbytes) if isinstance(rows, np.ndarray) and rows.flags.c_contiguous else (0, 0)


def num_bytes_of(array: Array) -> int:
    """Returns the bytes of a tensor as it travels; approximate for BYTES."""
    return array.nbytes if array.dtype != object else sum(4 + len(item) for item in array.reshape(-1).tolist())


def offsets_of(lengths: Sequence[int]) -> tuple[list[int], int]:
    """Returns the aligned offsets of tensors of these lengths that follow each other, and their total length."""
    offsets: list[int] = []
    end = 0
    for length in lengths:
        offsets.append(end)
        end += round_up(length, TENSOR_ALIGNMENT)
    return offsets, end
