"""Reads the frames of a streamed answer (`dyorc.protocol.media_types.FRAMES`) as their bytes come.

Keeps at most one frame, and refuses one that is too long at its beginning.
"""

from collections.abc import Iterator

import msgspec

from dyorc.errors import TransportError
from dyorc.protocol.inference_answer import Answer, padding, parse_answer
from dyorc.protocol.media_types import FRAME_LENGTHS
from dyorc.protocol.wire_errors import ErrorBody, error_decoder, error_from_body, malformed


class FrameReader:
    """Puts frames together.

    Args:
        max_part_bytes: The longest frame that is accepted.
    """

    def __init__(self, max_part_bytes: int) -> None:
        self._max_part_bytes = max_part_bytes
        self._lengths = bytearray()
        self._frame: bytearray | None = None
        self._start = self._json_bytes = self._end = 0

    def feed(self, chunk: bytes) -> Iterator[Answer]:
        """Yields the parts completed by these bytes; exhaust it before the next call.

        Raises:
            DyOrcError: The error in a frame, after the parts before it.
            TransportError: If a frame is malformed, or too long.
        """
        rest = memoryview(chunk)
        while rest or self._is_complete():
            if self._frame is None:
                rest = self._take_lengths(rest)
                continue
            missing = self._end - len(self._frame)
            self._frame += rest[:missing]
            rest = rest[missing:]
            if self._is_complete():
                frame, self._frame = memoryview(self._frame)[self._start :], None
                yield _part(frame, self._json_bytes)

    def finish(self) -> None:
        """Checks that the stream may end here.

        Raises:
            TransportError: If a frame is not complete.
        """
        if self._lengths or self._frame is not None:
            raise TransportError("the stream ended within a part")

    def _is_complete(self) -> bool:
        return self._frame is not None and len(self._frame) == self._end

    def _take_lengths(self, rest: memoryview) -> memoryview:
        missing = FRAME_LENGTHS.size - len(self._lengths)
        self._lengths += rest[:missing]
        if len(self._lengths) == FRAME_LENGTHS.size:
            self._json_bytes, rest_bytes = FRAME_LENGTHS.unpack(self._lengths)
            self._lengths = bytearray()
            num_bytes = self._json_bytes + rest_bytes
            if num_bytes > self._max_part_bytes:
                raise malformed(f"a part of the stream has {num_bytes} bytes, the client takes {self._max_part_bytes}")
            self._start = padding(self._json_bytes)
            self._end = self._start + num_bytes
            self._frame = bytearray(self._start)
        return rest[missing:]


def _part(frame: memoryview, json_bytes: int) -> Answer:
    try:
        return parse_answer(frame, json_bytes)
    except TransportError:
        error = _error_in(frame[:json_bytes])
        if error is None:
            raise
    raise error_from_body(error)


def _error_in(head: memoryview) -> ErrorBody | None:
    """Returns the error that a frame reports, if any. Called last, so that parts are not parsed twice."""
    try:
        return error_decoder.decode(head)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
