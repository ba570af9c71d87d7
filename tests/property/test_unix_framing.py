"""Messages survive the stream of a Unix socket however it is cut up; anything else is an error, and nothing worse."""

import struct
from collections import deque

from hypothesis import example, given
from hypothesis import strategies as st

from dyorc.transport.column_codec import Frame
from dyorc.transport.unix_framing import MAX_FRAMES, MAX_MESSAGE_BYTES, MessageReader, drop, pack

_FRAMES = st.lists(st.one_of(st.binary(max_size=40), st.sampled_from([b"", b"x" * 70_000])), min_size=1, max_size=8)
_CUTS = st.lists(st.integers(1, 70_000), min_size=1, max_size=20)


def _read(reader: MessageReader, stream: bytes, cuts: list[int]) -> list[list[bytes]]:
    """Returns what a reader makes of a stream that comes in pieces of such lengths, again and again."""
    found: list[list[bytes]] = []
    at = turn = 0
    while at < len(stream) and reader.error is None:
        space = reader.space()
        assert len(space) > 0
        piece = stream[at : at + min(len(space), cuts[turn % len(cuts)])]
        space[: len(piece)] = piece
        at, turn = at + len(piece), turn + 1
        found += [[bytes(frame) for frame in frames] for frames in reader.take(len(piece))]
    return found


@given(st.lists(_FRAMES, max_size=5), _CUTS)
def test_messages_come_out_as_they_went_in(messages: list[list[bytes]], cuts: list[int]) -> None:
    stream = b"".join(bytes(piece) for message in messages for piece in pack(message))
    reader = MessageReader()
    assert _read(reader, stream, cuts) == messages
    assert reader.error is None


@given(_FRAMES, st.data())
def test_written_bytes_are_removed(message: list[bytes], data: st.DataObject) -> None:
    pieces: deque[Frame] = deque(pack(message))
    assert all(len(piece) for piece in pieces)
    stream = b"".join(pieces)
    num_written = data.draw(st.integers(0, len(stream)))
    drop(pieces, num_written)
    assert b"".join(pieces) == stream[num_written:]


@given(st.binary(max_size=200), _CUTS)
@example(b"DyO1" + struct.pack("<IQ", 1, MAX_MESSAGE_BYTES), [1])
@example(b"DyO1" + struct.pack("<IQ", MAX_FRAMES, MAX_MESSAGE_BYTES), [7])
def test_any_bytes_are_read_or_refused(stream: bytes, cuts: list[int]) -> None:
    _read(MessageReader(), stream, cuts)


@given(_FRAMES, st.integers(0, 200), st.integers(1, 255), _CUTS)
def test_a_message_in_which_a_byte_has_changed_is_read_or_refused(
    message: list[bytes], at: int, change: int, cuts: list[int]
) -> None:
    stream = bytearray(b"".join(pack(message)))
    stream[at % len(stream)] ^= change
    for frames in _read(MessageReader(), bytes(stream), cuts):
        assert sum(map(len, frames)) <= len(stream)
