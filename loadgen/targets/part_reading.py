"""Notices the parts of a streamed answer as their bytes come."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dyorc.protocol.media_types import FRAME_LENGTHS
from loadgen.pool import Tensors
from loadgen.targets.base import RequestFailedError
from loadgen.targets.failures import failure_text

_ERROR = b'{"error":'
"""How a frame begins that reports an error; such a frame has no tensors."""


class FrameWatch:
    """Reads frames (`dyorc.protocol.media_types.FRAMES`) only as far as needed to count them.

    Args:
        on_part: Called when a part is complete.
    """

    __slots__ = ("_head", "_is_bare", "_lengths", "_missing", "_on_part")

    def __init__(self, on_part: Callable[[], None]) -> None:
        self._on_part = on_part
        self._lengths = b""
        self._missing = 0
        self._is_bare = False  # whether the frame is only JSON, so that it may be an error
        self._head = b""

    def feed(self, data: bytes) -> None:
        """Takes the next bytes of the answer's body."""
        at = 0
        while at < len(data):
            if self._missing == 0:
                taken = data[at : at + FRAME_LENGTHS.size - len(self._lengths)]
                at += len(taken)
                self._lengths += taken
                if len(self._lengths) == FRAME_LENGTHS.size:
                    self._begin()
                continue
            if self._is_bare:
                self._head += data[at : at + self._missing]
            taken_bytes = min(self._missing, len(data) - at)
            at += taken_bytes
            self._missing -= taken_bytes
            if self._missing == 0:
                self._end()

    def _begin(self) -> None:
        json_bytes, rest_bytes = FRAME_LENGTHS.unpack(self._lengths)
        self._lengths, self._head = b"", b""
        self._missing = json_bytes + rest_bytes
        self._is_bare = rest_bytes == 0
        if self._missing == 0:
            self._end()

    def _end(self) -> None:
        if not self._head.startswith(_ERROR):
            self._on_part()

    def check(self) -> None:
        """Checks how the stream ended.

        Raises:
            RequestFailedError: If it ended with an error, or within a part.
        """
        if self._missing or self._lengths:
            raise RequestFailedError("the stream ended within a part")
        if self._head.startswith(_ERROR):
            raise RequestFailedError(f"in the stream: {failure_text(self._head)}")


class EndWatch:
    """Counts parts that end with certain bytes, such as a line break.

    Args:
        part_end: These bytes.
        on_part: Called when a part is complete.
    """

    __slots__ = ("_kept", "_on_part", "_part_end")

    def __init__(self, part_end: bytes, on_part: Callable[[], None]) -> None:
        self._part_end = part_end
        self._on_part = on_part
        self._kept = b""

    def feed(self, data: bytes) -> None:
        """Takes the next bytes of the answer's body."""
        data = self._kept + data
        *ended, rest = data.split(self._part_end)
        for _ in ended:
            self._on_part()
        self._kept = rest[-(len(self._part_end) - 1) :] if len(self._part_end) > 1 else b""


def split_frames(body: bytes) -> list[tuple[memoryview, int]]:
    """Returns each frame of an answer, without its lengths, and how many bytes of it are JSON.

    Raises:
        ValueError: If the answer ends within a frame.
    """
    frames: list[tuple[memoryview, int]] = []
    rest = memoryview(body)
    while rest:
        if len(rest) < FRAME_LENGTHS.size:
            raise ValueError("the stream ends within a frame")
        json_bytes, rest_bytes = FRAME_LENGTHS.unpack_from(rest)
        end = FRAME_LENGTHS.size + json_bytes + rest_bytes
        if len(rest) < end:
            raise ValueError("the stream ends within a frame")
        frames.append((rest[FRAME_LENGTHS.size : end], json_bytes))
        rest = rest[end:]
    return frames


def stack_parts(parts: Sequence[Tensors]) -> Tensors:
    """Returns a stream's answer: each output of all parts, stacked along a new first dimension. Without parts, nothing.

    Raises:
        ValueError: If parts differ in their outputs or shapes.
    """
    stacked: dict[str, np.ndarray[Any, Any]] = {}
    for name in parts[0] if parts else ():
        arrays = [np.asarray(part[name]) for part in parts if name in part]
        shapes = {array.shape for array in arrays}
        if len(arrays) < len(parts) or len(shapes) > 1:
            raise ValueError(
                f"the stream's parts have output {name!r} with the shapes {sorted(shapes)}, expected one shape in all"
            )
        stacked[name] = np.stack(arrays)
    return stacked
