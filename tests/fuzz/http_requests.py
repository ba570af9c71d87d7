"""What a client sends over a connection: cut into requests as others cut it, however its bytes come."""

import re

from tests.fuzz.contract import FuzzTarget, InputForm, check
from tests.fuzz.http_rulers import RULERS, CutConnection, cut_by_us

_GET = b"GET /v2/health/live?a=b HTTP/1.1\r\nHost: here\r\nAccept: */*\r\n\r\n"
_POST = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\n\r\nbody"
_CHUNKED = (
    b"POST /run/m HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"
    b"4;name=value\r\nbody\r\nA\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\n"
)
_OFFER = b"POST /run/m HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nab"
_HEADS = (
    b"POST /v2/models/a%20b/versions/1/infer HTTP/1.1\r\nHost: [::1]:80\r\nContent-Length: 2\r\nExpect: 100-continue\r\n"
    b"Inference-Header-Content-Length: 1\r\nAccept-Encoding: gzip;q=0.5, deflate, *;q=0\r\nContent-Encoding: gzip\r\n"
    b"Request-Timeout: 0.5\r\nX-Priority: 1\r\nX-Request-Id: abc\r\nConnection: close\r\n"
    b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\ntracestate: a=b\r\n\r\n{}"
)
_OLD = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"

WORDS = (
    b"Content-Length: 4\r\n", b"Content-Length: 0\r\n", b"Content-Length: +4\r\n", b"Content-Length: 4, 4\r\n",
    b"Content-Length : 4\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: identity\r\n", b"Transfer-Encoding: gzip, chunked\r\n",
    b"Transfer-Encoding: chunked, identity\r\n", b"Transfer-Encoding: \x0bchunked\r\n", b"Transfer-Encoding:\r\n chunked\r\n",
    b"Transfer-Encoding : chunked\r\n", b"Host: there\r\n", b"Host:\r\n", b" folded\r\n", b"\tfolded\r\n", b"0\r\n\r\n",
    b"4\r\nbody\r\n",
    b"00000004\r\n", b"4;a=\"\r\n\"\r\n", b"4 \r\nbody\r\n", b"0x4\r\nbody\r\n", b"-1\r\n", b"FFFFFFFFFFFFFFFFF\r\n", b"\r\n\r\n",
    b"Connection: close\r\n", b"Connection: Upgrade\r\nUpgrade: h2c\r\n", b"CONNECT here:80 HTTP/1.1\r\nHost: here\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"OPTIONS * HTTP/1.1\r\n", b"GET http://there/ HTTP/1.1\r\n", b"HTTP/1.0",
    b"HTTP/0.9", b"HTTP/1.2",
    b"%00", b"%ff", b"//", b"#part", b"\xc3\xa9", _GET, _POST,
)  # fmt: skip

_ALLOWED = re.compile(rb"[A-Z-]  |(^|[\r\n])(\n|\r(?!\n))")
"""What llhttp reads and others refuse, and RFC 9112 lets a server read: several spaces in a request's first line (section 3), and
lines before it that end with a single CR or LF (section 2.2). They move no request's beginning or end."""


def _difference_from_others(whole: CutConnection, data: bytes) -> str:
    """Returns how our requests differ from those of other parsers; empty if they do not."""
    others = {name: cut(data) for name, cut in RULERS.items()}
    for at, request in enumerate(whole.requests):
        seen = {name: other.requests[at] for name, other in others.items() if at < len(other.requests)}
        if any(other == request for other in seen.values()):
            continue
        if seen:
            return f"request {at} is {request}, expected as in {seen}"
        if not _ALLOWED.search(data) and all(other.is_refused and len(other.requests) == at for other in others.values()):
            return f"request {at} is {request}, and {', '.join(others)} refuse it"
    return ""


def _read(data: bytes) -> None:
    whole = cut_by_us(data)
    for piece_bytes in (1, 7):
        check(cut_by_us(data, piece_bytes) == whole, f"in pieces of {piece_bytes} it is read as other requests")
    problem = _difference_from_others(whole, data)
    check(not problem, problem)


def build() -> FuzzTarget:
    """Returns the target."""
    return FuzzTarget(
        name="http_requests",
        read=_read,
        errors=(),
        seeds=(_GET, _POST, _CHUNKED, _OFFER, _HEADS, _OLD + _GET, _POST + _CHUNKED + _GET, _OFFER + _POST),
        form=InputForm.LINES,
        words=WORDS,
    )
