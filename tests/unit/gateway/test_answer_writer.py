"""The bytes of an answer, and in how many writes they leave."""

from typing import Any, cast

import pytest

from dyorc.gateway.http.answer_writer import AnswerWriter, CommonHeaders
from dyorc.gateway.http.request_parser import ParsedHead
from dyorc.protocol.header_names import Header


class _Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))


@pytest.fixture
def transport() -> _Transport:
    return _Transport()


def writer_of(transport: _Transport, method: str = "POST", *, keeps_alive: bool = True) -> AnswerWriter:
    """Returns the writer of the answer to such a request."""
    head = ParsedHead(method, "/", b"/", b"", "1.1", [], keeps_alive=keeps_alive, expects_continue=False)
    return AnswerWriter(cast(Any, transport), CommonHeaders(), head)


def length(num_bytes: int) -> Header:
    return b"content-length", b"%d" % num_bytes


def test_head_and_body_are_one_write(transport: _Transport) -> None:
    answer = writer_of(transport)
    answer.start(200, [length(8)])
    assert transport.written == []
    answer.write(memoryview(b"body"), is_last_part=False)
    answer.write(b"more", is_last_part=True)
    first, second = transport.written
    assert first.startswith(b"HTTP/1.1 200 OK\r\n")
    assert first.endswith(b"\r\n\r\nbody")
    assert second == b"more"
    assert answer.is_complete


def test_a_long_body_is_not_copied(transport: _Transport) -> None:
    answer = writer_of(transport)
    answer.start(200, [length(2**17)])
    answer.write(bytes(2**17), is_last_part=True)
    assert [len(data) for data in transport.written][1:] == [2**17]


def test_a_body_of_unknown_length_comes_in_chunks(transport: _Transport) -> None:
    answer = writer_of(transport)
    answer.start(200, [])
    answer.write(b"0123456789abcdef", is_last_part=False)
    answer.write(b"", is_last_part=True)
    assert b"transfer-encoding: chunked\r\n" in transport.written[0]
    assert transport.written[0].endswith(b"\r\n\r\n10\r\n0123456789abcdef\r\n")
    assert transport.written[1:] == [b"0\r\n\r\n"]


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("POST", 204), ("POST", 304)])
def test_some_answers_have_no_body(transport: _Transport, method: str, status: int) -> None:
    answer = writer_of(transport, method)
    answer.start(status, [])
    answer.write(b"body", is_last_part=True)
    assert b"".join(transport.written).endswith(b"\r\n\r\n")
    assert b"chunked" not in transport.written[0]
    assert answer.is_complete


@pytest.mark.parametrize("body", [b"short", b"much too long"])
def test_a_body_must_be_as_long_as_announced(transport: _Transport, body: bytes) -> None:
    answer = writer_of(transport)
    answer.start(200, [length(10)])
    with pytest.raises(ValueError, match="differs from its Content-Length by"):
        answer.write(body, is_last_part=True)


def test_a_header_cannot_contain_a_line_break(transport: _Transport) -> None:
    with pytest.raises(ValueError, match="line break"):
        writer_of(transport).start(200, [(b"x-name", b"value\r\nset-cookie: a=b"), length(0)])


@pytest.mark.parametrize("says_so", ["client", "answer"])
def test_the_last_answer_of_a_connection_says_once_that_it_closes(transport: _Transport, says_so: str) -> None:
    answer = writer_of(transport, keeps_alive=says_so != "client")
    answer.start(200, [length(0), *([(b"connection", b"close")] if says_so == "answer" else [])])
    answer.write(b"", is_last_part=True)
    assert answer.is_last
    assert transport.written[0].count(b"connection: close\r\n") == 1


def test_a_status_without_a_name_is_written(transport: _Transport) -> None:
    answer = writer_of(transport)
    answer.start(499, [length(0)])
    answer.write(b"", is_last_part=True)
    assert transport.written[0].startswith(b"HTTP/1.1 499 \r\n")


def test_a_header_that_an_answer_has_itself_is_not_sent_twice(transport: _Transport) -> None:
    answer = writer_of(transport)
    answer.start(200, [(b"cache-control", b"max-age=60"), length(0)])
    answer.write(b"", is_last_part=True)
    names = [line.partition(b":")[0] for line in transport.written[0].split(b"\r\n")[1:-2]]
    assert sorted(names) == [b"cache-control", b"content-length", b"date", b"x-content-type-options"]
    assert b"max-age" in transport.written[0]
