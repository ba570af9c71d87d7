"""Packs messages about running batches: what one turn has for a peer goes as few messages, each with many parts.

A message costs far more than the bytes of a small part. So the parts of a stream that are there together become one column, as
the calls of a batch do, and all streams of a peer share messages up to a size.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import TypeAlias

from dyorc.errors import TransportError
from dyorc.transport.column_codec import Column, ColumnHeader, Frame, StoredColumn
from dyorc.transport.messages import Message, Packed, PackedMessage, encode

MAX_PACKED_BYTES = 64 * 1024
"""Frames beyond this begin another message, so that the peer can begin with the first."""
MAX_PACKED = 256
"""Messages in one."""

Framed: TypeAlias = tuple[PackedMessage, Sequence[Frame]]
"""A message and its frames."""


def pack(messages: Iterable[Framed]) -> Generator[list[Frame]]:
    """Yields messages to send that hold the given ones, in order."""
    packed: list[PackedMessage] = []
    counts: list[int] = []
    frames: list[Frame] = []
    num_bytes = 0
    for message, parts in messages:
        length = sum(map(len, parts))
        if packed and (num_bytes + length > MAX_PACKED_BYTES or len(packed) == MAX_PACKED):
            yield _joined(packed, counts, frames)
            packed, counts, frames, num_bytes = [], [], [], 0
        packed.append(message)
        counts.append(len(parts))
        frames.extend(parts)
        num_bytes += length
    if packed:
        yield _joined(packed, counts, frames)


def _joined(packed: Sequence[PackedMessage], counts: Sequence[int], frames: Sequence[Frame]) -> list[Frame]:
    header = packed[0] if len(packed) == 1 else Packed(tuple(packed), tuple(counts))
    return [encode(header), *frames]


def unpack(message: Message, frames: Sequence[Frame]) -> Iterable[tuple[Message, Sequence[Frame]]]:
    """Returns the messages that one holds, each with its frames; a plain one holds itself.

    Raises:
        TransportError: If the frames are not as many as it says.
    """
    if not isinstance(message, Packed):
        return ((message, frames),)
    if len(message.counts) != len(message.messages) or min(message.counts, default=0) < 0 or sum(message.counts) != len(frames):
        raise TransportError(f"{len(message.messages)} packed messages announce {message.counts} frames, and have {len(frames)}")
    unpacked: list[tuple[Message, Sequence[Frame]]] = []
    at = 0
    for each, count in zip(message.messages, message.counts, strict=True):
        unpacked.append((each, frames[at : at + count]))
        at += count
    return unpacked


def join_rows(
    rows: Sequence[tuple[Sequence[ColumnHeader], Sequence[Frame]]],
) -> tuple[tuple[ColumnHeader, ...], list[Frame]] | None:
    """Joins columns of one row each, all of the same program, into columns with a row for each.

    Args:
        rows: Headers and frames of each row.

    Returns:
        The columns' headers and frames; None if they cannot be joined, since some are in shared memory or of other types.
    """
    headers: list[ColumnHeader] = []
    frames: list[Frame] = []
    first = rows[0][0]
    are_alike = all(columns == first for columns, _ in rows)
    at = 0
    for number, header in enumerate(first):
        if are_alike and isinstance(header, Column) and header.num_stacked:
            headers.append(Column(header.dtype, header.shapes, len(rows)))
            frames.append(b"".join([parts[at] for _, parts in rows]))
            at += 1
            continue
        joined = _joined_column([columns[number] for columns, _ in rows])
        if joined is None:
            return None
        headers.append(joined)
        if isinstance(joined, Column):
            frames.extend([parts[at] for _, parts in rows])
            at += 1
    return tuple(headers), frames


def _joined_column(headers: Sequence[ColumnHeader]) -> ColumnHeader | None:
    """Returns the header of a column whose rows have their own frames, or lie in shared memory."""
    dtype = headers[0].dtype
    if any(header.dtype is not dtype for header in headers):
        return None
    inline = [header for header in headers if isinstance(header, Column) and len(header.shapes) == 1]
    if len(inline) == len(headers):
        return Column(dtype, tuple([header.shapes[0] for header in inline]))
    stored = [header for header in headers if isinstance(header, StoredColumn)]
    if len(stored) == len(headers):
        return StoredColumn(dtype, tuple([part for header in stored for part in header.parts]))
    return None
