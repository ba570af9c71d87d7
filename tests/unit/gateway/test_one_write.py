"""The head of an answer waits for its body."""

from typing import Any, cast

import pytest

from dyorc.gateway.http.one_write import OneWrite


class _Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


@pytest.fixture
def transport() -> _Transport:
    return _Transport()


@pytest.fixture
def answer(transport: _Transport) -> OneWrite:
    return OneWrite(cast(Any, transport))


def test_head_and_body_are_one_write(transport: _Transport, answer: OneWrite) -> None:
    answer.write(b"head ")
    assert transport.written == []
    answer.write(memoryview(b"body"))
    answer.write(b"more")
    assert transport.written == [b"head body", b"more"]


def test_a_long_body_is_not_copied(transport: _Transport, answer: OneWrite) -> None:
    answer.write(b"head")
    answer.write(bytes(2**17))
    assert transport.written == [b"head", bytes(2**17)]


def test_a_client_that_waits_to_go_on_is_told_at_once(transport: _Transport, answer: OneWrite) -> None:
    answer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    answer.write(b"head")
    answer.write(b"")
    assert transport.written == [b"HTTP/1.1 100 Continue\r\n\r\n", b"head"]


def test_a_head_without_a_body_leaves_when_the_connection_closes(transport: _Transport, answer: OneWrite) -> None:
    answer.write(b"head")
    answer.close()
    assert transport.written == [b"head"]
    assert transport.is_closed
