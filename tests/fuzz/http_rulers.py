"""How other parsers of HTTP/1.1 cut the bytes of a connection into requests: h11's and gunicorn's, neither of them llhttp.

A request that one server reads and the next one reads otherwise, or does not see as a request, is how requests are smuggled past
a proxy (RFC 9112, section 11.2).
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import h11
from gunicorn.config import Config
from gunicorn.http.errors import ChunkMissingTerminator, InvalidChunkSize, NoMoreData, ParseException
from gunicorn.http.parser import RequestParser as GunicornParser

from dyorc.errors import InvalidInputError
from dyorc.gateway.http.heads import read_head
from dyorc.gateway.http.request_parser import ParsedHead, RequestParser

_MAX_HEAD_BYTES = 64 * 1024
_CONFIG = Config()
_CONFIG.set("limit_request_fields", 1000)
_CONFIG.set("limit_request_line", 0)
_CONFIG.set("limit_request_field_size", 0)


class CutRequest(NamedTuple):
    """What a parser takes for one request."""

    method: bytes
    body: bytes


@dataclass(slots=True)
class CutConnection:
    """What a parser makes of a connection's bytes.

    Attributes:
        requests: The complete ones.
        is_refused: Whether what follows them is refused, as opposed to incomplete or left unread.
    """

    requests: list[CutRequest] = field(default_factory=list[CutRequest])
    is_refused: bool = False


class _Collector:
    """Listens to our parser, and reads heads as the gateway does."""

    def __init__(self) -> None:
        self.connection = CutConnection()
        self._method = b""
        self._body = bytearray()

    def on_begin(self) -> None:
        pass

    def on_head(self, head: ParsedHead) -> None:
        self._method, self._body = head.method.encode(), bytearray()
        head.scope()
        with suppress(InvalidInputError):
            read_head(head.headers, is_old=head.version == "1.0")

    def on_body(self, part: bytes) -> None:
        self._body += part

    def on_end(self) -> None:
        self.connection.requests.append(CutRequest(self._method, bytes(self._body)))


def cut_by_us(data: bytes, piece_bytes: int = 2**30) -> CutConnection:
    """Returns what our parser makes of bytes that come in pieces."""
    collector = _Collector()
    parser = RequestParser(collector, _MAX_HEAD_BYTES)
    for at in range(0, len(data), piece_bytes):
        if parser.feed(data[at : at + piece_bytes]) is not None:
            collector.connection.is_refused = True
            break
    return collector.connection


def cut_by_h11(data: bytes) -> CutConnection:
    """Returns what h11 makes of the bytes."""
    connection, whole = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD_BYTES), CutConnection()
    connection.receive_data(data)
    method, body = b"", bytearray()
    try:
        while True:
            match connection.next_event():
                case h11.Request() as request:
                    method, body = request.method, bytearray()
                case h11.Data() as part:
                    body += part.data
                case h11.EndOfMessage():
                    whole.requests.append(CutRequest(method, bytes(body)))
                    connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                    connection.send(h11.EndOfMessage())
                    if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                        return whole
                    connection.start_next_cycle()
                case _:
                    return whole
    except h11.RemoteProtocolError:
        whole.is_refused = True
    except h11.LocalProtocolError:  # the answer that it expects is another one, to CONNECT or an old client
        pass
    return whole


def cut_by_gunicorn(data: bytes) -> CutConnection:
    """Returns what gunicorn makes of the bytes."""
    whole = CutConnection()
    parser: Iterator[Any] = GunicornParser(_CONFIG, iter([data]), ("127.0.0.1", 1))
    try:
        for request in parser:
            whole.requests.append(CutRequest(request.method.encode("latin-1"), request.body.read()))
    except (NoMoreData, StopIteration):
        pass
    except (ParseException, InvalidChunkSize, ChunkMissingTerminator):
        whole.is_refused = True
    return whole


RULERS: dict[str, Callable[[bytes], CutConnection]] = {"h11": cut_by_h11, "gunicorn": cut_by_gunicorn}
