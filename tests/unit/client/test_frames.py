"""The frames of a stream are read, in whatever pieces they arrive."""

import json

import numpy as np
import pytest

from dyorc.client.frame_reader import FrameReader
from dyorc.errors import DyOrcError, ProgramError, TransportError
from dyorc.protocol.inference_answer import Answer
from tests.scripted_server import binary_answer, frame

LIMIT = 10_000


def _part(number: int) -> bytes:
    return frame(*binary_answer({"x": np.full(number, number, np.float32)}))


def _read(content: bytes, piece: int, limit: int = LIMIT) -> list[Answer]:
    reader = FrameReader(limit)
    found = [part for at in range(0, len(content), piece) for part in reader.feed(content[at : at + piece])]
    reader.finish()
    return found


@pytest.mark.parametrize("piece", [1, 2, 7, 8, 9, 64, 10_000])
def test_parts_come_whole_and_in_order(piece: int) -> None:
    content = b"".join(_part(number) for number in (3, 0, 1, 500))
    found = [part.value for part in _read(content, piece)]
    assert [array.tolist() for array in found] == [[3.0] * 3, [], [1.0], [500.0] * 500]
    assert all(array.flags.aligned and array.flags.writeable for array in found if array.size)


def test_a_part_comes_out_with_its_last_byte() -> None:
    reader = FrameReader(LIMIT)
    content = _part(3)
    assert list(reader.feed(content[:-1])) == []
    assert len(list(reader.feed(content[-1:] + _part(2)[:5]))) == 1


@pytest.mark.parametrize("piece", [1, 10_000])
def test_an_error_comes_after_the_parts_before_it(piece: int) -> None:
    body = {"error": "program 'p' failed: ValueError: no", "code": "program", "retryable": False}
    content = _part(1) + _part(2) + frame(json.dumps(body).encode())
    reader = FrameReader(LIMIT)
    found: list[Answer] = []

    def read() -> None:
        for at in range(0, len(content), piece):
            for part in reader.feed(content[at : at + piece]):
                found.append(part)

    with pytest.raises(ProgramError, match="program 'p' failed: ValueError: no"):
        read()
    assert len(found) == 2


@pytest.mark.parametrize("cut", [1, 4, 7, 9, 40])
def test_a_stream_that_ends_within_a_part_says_so(cut: int) -> None:
    with pytest.raises(TransportError, match="the stream ended within a part"):
        _read(_part(2) + _part(3)[:cut], 16)


def test_a_part_that_is_too_long_is_not_begun() -> None:
    assert len(_read(_part(4), 100, len(_part(4)) - 8)) == 1
    with pytest.raises(TransportError, match=r"a part of the stream has \d+ bytes, the client takes \d+"):
        _read(_part(4), 100, len(_part(4)) - 9)
    reader = FrameReader(LIMIT)
    with pytest.raises(TransportError, match="8589934590 bytes"):
        list(reader.feed(b"\xff" * 8))


@pytest.mark.parametrize("head", [b"", b"{}", b"[]", b"\x00", b'{"outputs": 3}', b'{"error": 3}'])
def test_a_malformed_frame_is_a_transport_error(head: bytes) -> None:
    with pytest.raises(TransportError, match="JSON is malformed") as found:
        _read(frame(head), 100)
    assert not found.value.retryable


def test_an_error_frame_may_have_a_code_that_nobody_knows() -> None:
    with pytest.raises(DyOrcError, match="odd") as found:
        _read(frame(json.dumps({"error": "odd", "code": "odd", "retryable": True}).encode()), 3)
    assert found.value.retryable
