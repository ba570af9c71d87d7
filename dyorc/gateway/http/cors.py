"""Which pages of browsers may call the server: cross-origin resource sharing.

Source: the Fetch standard, https://fetch.spec.whatwg.org/#http-cors-protocol. A browser sends a page's requests with the
page's origin, and shows the page an answer only if that allows the origin. Before requests that a plain form could not send it
sends a separate request, a preflight, which carries no key.
"""

from collections.abc import Iterable
from typing import Self

from dyorc.config import GatewayConfig
from dyorc.protocol import header_names as names
from dyorc.protocol.header_names import Header

_ORIGIN = b"origin"
_ASKED_METHOD = b"access-control-request-method"
_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
_SENT = (
    names.AUTHORIZATION, names.API_KEY, "content-type", "content-encoding", "accept", names.JSON_LENGTH, names.TIMEOUT,
    names.PRIORITY, names.REQUEST_ID, names.IDEMPOTENCY_KEY, names.TRACEPARENT, names.TRACESTATE, "last-event-id",
)  # fmt: skip
"""Headers that the server reads."""
_SHOWN = (names.REQUEST_ID, names.TRACEPARENT, names.JSON_LENGTH, names.RETRY_AFTER, "www-authenticate", "location")
"""Headers of answers that pages may read, besides the ones that they always may."""
_MAX_AGE_S = 600

PREFLIGHT = {
    "Access-Control-Allow-Methods": _METHODS,
    "Access-Control-Allow-Headers": ", ".join(_SENT),
    "Access-Control-Max-Age": str(_MAX_AGE_S),
}
"""Headers of the answer to a preflight, besides those of all answers to its origin."""


class Cors:
    """The origins that may call the server.

    Args:
        origins: Such as ``https://app.example.com``; ``*`` for all of them.
        has_credentials: Whether browsers may send cookies and client certificates.
    """

    def __init__(self, origins: Iterable[str], has_credentials: bool) -> None:
        self._origins = frozenset(origin.encode() for origin in origins)
        self._is_open = b"*" in self._origins
        self._vary: list[Header] = [] if self._is_open else [(b"vary", b"origin")]
        self._rest: list[Header] = [(b"access-control-expose-headers", ", ".join(_SHOWN).encode())]
        if has_credentials:
            self._rest.append((b"access-control-allow-credentials", b"true"))

    @classmethod
    def of(cls, config: GatewayConfig) -> Self | None:
        """Returns the allowed origins as configured; None if there are none."""
        return cls(config.cors_origins, config.cors_credentials) if config.cors_origins else None

    def headers(self, sent: Iterable[Header]) -> list[Header]:
        """Returns the headers of the answer to a request with these headers. Their names are in lower case."""
        origin = self._allowed_origin(sent)
        if origin is None:
            return self._vary
        return [(b"access-control-allow-origin", b"*" if self._is_open else origin), *self._rest, *self._vary]

    def lines(self, sent: Iterable[Header]) -> bytes:
        """Returns the same, encoded."""
        return b"".join([b"%b: %b\r\n" % header for header in self.headers(sent)])

    def is_preflight(self, method: str, sent: Iterable[Header]) -> bool:
        """Returns whether a browser asks whether a page of an allowed origin may send a request."""
        sent = list(sent)
        return method == "OPTIONS" and any(name == _ASKED_METHOD for name, _ in sent) and self._allowed_origin(sent) is not None

    def _allowed_origin(self, sent: Iterable[Header]) -> bytes | None:
        origin = next((value for name, value in sent if name == _ORIGIN), None)
        return origin if origin is not None and (self._is_open or origin in self._origins) else None
