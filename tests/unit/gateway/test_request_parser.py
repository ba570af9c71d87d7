"""How the bytes of a connection become requests."""

from collections.abc import Iterable

import pytest

from dyorc.gateway.http.request_parser import HttpRefusal, ParsedHead, RequestParser


class Listener:
    """Notes what it hears: each request as its head and its body, which is None until it is complete."""

    def __init__(self) -> None:
        self.requests: list[tuple[ParsedHead, bytes | None]] = []
        self.num_begun = 0
        self._body = b""

    def on_begin(self) -> None:
        self.num_begun += 1

    def on_head(self, head: ParsedHead) -> None:
        self.requests.append((head, None))
        self._body = b""

    def on_body(self, part: bytes) -> None:
        self._body += part

    def on_end(self) -> None:
        self.requests[-1] = self.requests[-1][0], self._body


def parse(pieces: Iterable[bytes], max_header_bytes: int = 4096) -> tuple[Listener, HttpRefusal | None]:
    """Feeds the pieces until one is refused."""
    listener = Listener()
    parser = RequestParser(listener, max_header_bytes)
    for piece in pieces:
        refusal = parser.feed(piece)
        if refusal is not None:
            return listener, refusal
    return listener, None


def in_pieces(data: bytes, size: int) -> Iterable[bytes]:
    """Returns the same bytes, in pieces as they may come."""
    return (data[at : at + size] for at in range(0, len(data), size))


POST = b"POST /a%20b?c=d HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\n\r\nbody"


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_requests_are_found_however_their_bytes_come(size: int) -> None:
    listener, refusal = parse(in_pieces(POST * 3, size))
    assert refusal is None
    assert listener.num_begun == len(listener.requests) == 3
    for head, body in listener.requests:
        assert (head.method, head.path, head.raw_path, head.query) == ("POST", "/a b", b"/a%20b", b"c=d")
        assert head.headers == [(b"host", b"here"), (b"content-length", b"4")]
        assert (head.version, head.keeps_alive, head.expects_continue, body) == ("1.1", True, False, b"body")


def test_trailers_do_not_become_headers() -> None:
    chunked = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nX-API-Key: mine\r\n\r\n"
    listener, refusal = parse([chunked])
    head, body = listener.requests[0]
    assert (refusal, body) == (None, b"ab")
    assert [name for name, _ in head.headers] == [b"host", b"transfer-encoding"]


def test_nothing_is_read_after_the_request_that_the_client_called_its_last() -> None:
    last = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    listener, refusal = parse([last + POST, b"\x16garbage"])
    assert refusal is None
    assert [(head.method, head.keeps_alive) for head, _ in listener.requests] == [("GET", False)]


@pytest.mark.parametrize("data", [b"\x16\x03\x01", b"GET  HTTP/9.9\r\n\r\n", b"GET http:// HTTP/1.1\r\nHost: a\r\n\r\n"])
def test_malformed_requests_are_refused(data: bytes) -> None:
    _, refusal = parse([data])
    assert refusal is not None
    assert (refusal.status, refusal.code, refusal.retry_after_s) == (400, "http", None)


def test_a_line_that_does_not_end_is_not_collected() -> None:
    _, refusal = parse(in_pieces(b"GET / HTTP/1.1\r\nX: " + b"v" * 20_000, 100))
    assert refusal is not None
    assert refusal.status == 431


def test_a_bug_of_the_listener_is_not_blamed_on_the_client() -> None:
    listener = Listener()
    listener.on_end = lambda: 1 / 0  # type: ignore[method-assign]
    with pytest.raises(Exception, match="callback"):
        RequestParser(listener, 4096).feed(POST)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (b"GET / HTTP/1.1\r\n", "has no Host header, expected one"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\nhost: a\r\n", "has 2 Host headers, expected one"),
        (b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n", "has 2 Host headers, expected one"),
        (b"GET / HTTP/1.1\r\nHost:\r\n", ""),
        (b"GET / HTTP/1.0\r\n", ""),
    ],
)
def test_a_request_has_one_host(lines: bytes, told: str) -> None:
    listener, refusal = parse([lines + b"\r\n"])
    assert len(listener.requests) == (not told)
    if told:
        assert refusal is not None
        assert (refusal.status, refusal.text) == (400, f"the request {told}")


def test_bytes_that_surely_belong_to_a_body_are_recognized() -> None:
    parser = RequestParser(Listener(), 4096)
    for piece, num in ((POST[:-4], 4), (b"bo", 2), (b"dy" + POST[:-4], 4), (b"body", 0)):
        parser.feed(piece)
        assert parser.num_missing_bytes == num


OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"


@pytest.mark.parametrize("size", [1, 7, 150, 1000])
def test_an_offer_of_another_protocol_is_ignored(size: int) -> None:
    get = b"GET /get HTTP/1.1\r\nHost: a\r\n" + OFFER + b"\r\n"
    post = b"POST /post HTTP/1.1\r\nHost: a\r\n" + OFFER + b"Content-Length: 4\r\n\r\nbody"
    chunked = b"POST /chunked HTTP/1.1\r\nHost: a\r\n" + OFFER + b"Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"
    last = b"GET /last HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: upgrade, close\r\n\r\n"
    listener, refusal = parse(in_pieces(get + post + get + chunked + POST + last + POST, size))
    assert refusal is None
    assert [(head.path, body) for head, body in listener.requests] == [
        ("/get", b""),
        ("/post", b"body"),
        ("/get", b""),
        ("/chunked", b"body"),
        ("/a b", b"body"),
        ("/last", b""),
    ]
    assert [head.keeps_alive for head, _ in listener.requests] == [True] * 5 + [False]
    assert listener.num_begun == 6


def test_a_body_after_an_upgrade_offer_must_be_well_formed() -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\n" + OFFER + b"Transfer-Encoding: chunked\r\n\r\n"
    _, refusal = parse([head + b"no length\r\n"])
    assert refusal is not None
    assert refusal.status == 400
