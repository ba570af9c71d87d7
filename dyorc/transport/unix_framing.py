"""How messages lie in the stream of a Unix socket.

Numbers are little-endian. Everything begins at a multiple of 16 bytes, counted from the message's start, so that numbers in
frames are aligned as an allocator would align them:

    0        4            8                 16                       16 + 8 n, padded
    +--------+------------+-----------------+------------------------+---------------------+-----+
    | "DyO1" | n, frames  | bytes after 16  | n lengths of 8 bytes   | frame 0, padded     | ... |
    +--------+------------+-----------------+------------------------+---------------------+-----+

Both ends run on one machine, as one user. The marks and bounds are for unknown programs that find the socket, and for bugs.
"""

import struct
from collections import deque
from collections.abc import Sequence

import numpy as np

from dyorc.errors import TransportError
from dyorc.transport.column_codec import Frame

MAX_FRAMES = 2**18
MAX_MESSAGE_BYTES = 2**32
"""Bounds of one message: far above a batch, yet larger ones are refused before memory is requested."""

_MAGIC = b"DyO1"
_PREAMBLE = struct.Struct("<4sIQ")
_ALIGNMENT = 16
_LENGTH_BYTES = 8
_ZEROS = [bytes(num) for num in range(_ALIGNMENT)]
_SCRATCH_BYTES = 64 * 1024


def pack(frames: Sequence[Frame]) -> list[Frame]:
    """Returns a message as the pieces to write, one behind the other; none is empty. Frames are not copied.

    Raises:
        TransportError: If it is beyond the bounds, or has no frame.
    """
    num_frames = len(frames)
    if not 1 <= num_frames <= MAX_FRAMES:
        raise TransportError(f"a message has {num_frames} frames, expected 1 to {MAX_FRAMES}")
    pieces: list[Frame] = [b""]
    lengths: list[int] = []
    table_bytes = _padded(_LENGTH_BYTES * num_frames)
    num_bytes = table_bytes
    for frame in frames:
        if isinstance(frame, memoryview) and (frame.ndim != 1 or frame.itemsize != 1):
            frame = frame.cast("B")
        length = len(frame)
        lengths.append(length)
        if length:
            pieces.append(frame)
            if padding := -length % _ALIGNMENT:
                pieces.append(_ZEROS[padding])
            num_bytes += length + padding
    if num_bytes > MAX_MESSAGE_BYTES:
        raise TransportError(f"a message has {num_bytes} bytes, the limit is {MAX_MESSAGE_BYTES}")
    padding = table_bytes - _LENGTH_BYTES * num_frames
    pieces[0] = struct.pack(f"<4sIQ{num_frames}Q{padding}x", _MAGIC, num_frames, num_bytes, *lengths)
    return pieces


def drop(pieces: deque[Frame], num_bytes: int) -> None:
    """Removes this many written bytes from the front."""
    while num_bytes:
        first = pieces[0]
        if num_bytes < len(first):
            pieces[0] = memoryview(first)[num_bytes:]
            return
        num_bytes -= len(first)
        pieces.popleft()


class MessageReader:
    """Builds messages from the bytes of one connection.

    Receive into `space`, then call `take` with the number of bytes. Its messages belong to the caller: small ones are copied out,
    large ones were received straight into memory of their own.

    Attributes:
        error: Why nothing more can be read, once something other than a message came.
    """

    def __init__(self) -> None:
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._num_kept = 0
        self._body: memoryview | None = None
        self._num_frames = 0
        self._num_filled = 0
        self.error: TransportError | None = None

    def space(self) -> memoryview:
        """Returns where the next bytes go; never empty."""
        return self._scratch[self._num_kept :] if self._body is None else self._body[self._num_filled :]

    def take(self, num_bytes: int) -> list[list[Frame]]:
        """Returns the messages completed by the bytes that have come, including those before an `error`."""
        messages: list[list[Frame]] = []
        try:
            if self._body is None:
                self._take_scratch(self._num_kept + num_bytes, messages)
            else:
                self._num_filled += num_bytes
                if self._num_filled == len(self._body):
                    body, self._body = self._body, None
                    messages.append(_split(body, self._num_frames))
        except TransportError as error:
            self.error = error
        return messages

    def _take_scratch(self, end: int, messages: list[list[Frame]]) -> None:
        scratch, at = self._scratch, 0
        while end - at >= _PREAMBLE.size:
            num_frames, body_bytes = _checked(*_PREAMBLE.unpack_from(scratch, at))
            at += _PREAMBLE.size
            if end - at < body_bytes:
                self._begin(num_frames, body_bytes, scratch[at:end])
                at = end
                break
            messages.append(_split(memoryview(bytearray(scratch[at : at + body_bytes])), num_frames))
            at += body_bytes
        self._num_kept = end - at
        if at and self._num_kept:
            scratch[: self._num_kept] = scratch[at:end]

    def _begin(self, num_frames: int, body_bytes: int, beginning: memoryview) -> None:
        """Makes room for a message that has only begun. Memory is taken as it fills."""
        try:
            self._body = np.empty(body_bytes, np.uint8).data
        except MemoryError as error:
            raise TransportError(f"no memory for a message of {body_bytes} bytes") from error
        self._body[: len(beginning)] = beginning
        self._num_frames, self._num_filled = num_frames, len(beginning)


def _padded(num_bytes: int) -> int:
    return num_bytes + -num_bytes % _ALIGNMENT


def _checked(magic: bytes, num_frames: int, body_bytes: int) -> tuple[int, int]:
    if magic != _MAGIC:
        raise TransportError(f"received data begins with {magic!r}, which is not a message")
    if not 1 <= num_frames <= MAX_FRAMES or not _padded(_LENGTH_BYTES * num_frames) <= body_bytes <= MAX_MESSAGE_BYTES:
        raise TransportError(f"a message says it has {num_frames} frames in {body_bytes} bytes")
    return num_frames, body_bytes


def _split(body: memoryview, num_frames: int) -> list[Frame]:
    """Returns the frames of a message, views of `body`, which begins with the lengths."""
    at = _padded(_LENGTH_BYTES * num_frames)
    frames: list[Frame] = []
    for length in struct.unpack_from(f"<{num_frames}Q", body):
        frames.append(body[at : at + length])
        at += _padded(length)
    if at != len(body):  # also if one reaches beyond the end
        raise TransportError(f"a message of {len(body)} bytes has frames for {at}")
    return frames
