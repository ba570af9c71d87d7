"""Parts are noticed as their bytes come, however these are cut."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dyorc.protocol.media_types import FRAME_LENGTHS
from loadgen.targets.base import RequestFailedError
from loadgen.targets.part_reading import EndWatch, FrameWatch, split_frames, stack_parts


def frame(head: bytes, rest: bytes = b"") -> bytes:
    return FRAME_LENGTHS.pack(len(head), len(rest)) + head + rest


FRAMES = st.lists(st.tuples(st.binary(max_size=12).filter(lambda head: not head.startswith(b"{")), st.binary(max_size=40)))


@given(FRAMES, st.data())
def test_each_frame_is_noticed_with_its_last_byte(frames: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    body = b"".join(frame(*one) for one in frames)
    seen: list[int] = []
    fed = 0
    watch = FrameWatch(lambda: seen.append(fed))
    while fed < len(body):
        num = data.draw(st.integers(1, len(body) - fed))
        fed += num
        watch.feed(body[fed - num : fed])
    watch.check()

    assert len(seen) == len(frames)
    ends = np.cumsum([len(frame(*one)) for one in frames]).tolist()
    assert all(at >= end for at, end in zip(seen, ends, strict=True))
    assert [(bytes(part), json_bytes) for part, json_bytes in split_frames(body)] == [
        (head + rest, len(head)) for head, rest in frames
    ]


@pytest.mark.parametrize("num_bytes", [1, 3, 1000])
def test_an_error_after_parts_is_no_part(num_bytes: int) -> None:
    error = json.dumps({"error": "program 'p' failed: 7", "code": "program_error"}, separators=(",", ":")).encode()
    body = frame(b"{}", b"1234") + frame(error)
    seen: list[int] = []
    watch = FrameWatch(lambda: seen.append(1))
    for at in range(0, len(body), num_bytes):
        watch.feed(body[at : at + num_bytes])

    assert seen == [1]
    with pytest.raises(RequestFailedError, match="in the stream: program_error: program 'p' failed: #"):
        watch.check()


@pytest.mark.parametrize("num_missing", [1, 5, 11])
def test_a_stream_that_ends_within_a_part_failed(num_missing: int) -> None:
    body = frame(b"{}", b"1234") + frame(b"{}", b"1234")
    watch = FrameWatch(lambda: None)
    watch.feed(body[:-num_missing])

    with pytest.raises(RequestFailedError, match="within a part"):
        watch.check()
    with pytest.raises(ValueError, match="within a frame"):
        split_frames(body[:-num_missing])


@pytest.mark.parametrize("part_end", [b"\n", b"\n\n"])
@pytest.mark.parametrize("num_bytes", [1, 2, 5, 100])
def test_lines_and_events_are_counted(part_end: bytes, num_bytes: int) -> None:
    body = b"".join(b"data: %d" % number + part_end for number in range(5))
    seen: list[int] = []
    watch = EndWatch(part_end, lambda: seen.append(1))
    for at in range(0, len(body), num_bytes):
        watch.feed(body[at : at + num_bytes])

    assert len(seen) == 5


def test_parts_are_stacked_if_they_agree() -> None:
    stacked = stack_parts([{"x": np.array(1)}, {"x": np.array(5)}])
    assert {name: array.tolist() for name, array in stacked.items()} == {"x": [1, 5]}
    assert stack_parts([]) == {}
    with pytest.raises(ValueError, match="output 'x' with the shapes"):
        stack_parts([{"x": np.array(1)}, {"x": np.array([5])}])
