"""The client's use of httpx, as far as both shells share it. Foreign exceptions enter through `broken`."""

import functools
import math
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import httpx
import numpy as np

from dyorc.client.effects import BrokenExchange, Reply
from dyorc.client.operations import json_bytes_of
from dyorc.errors import ConfigurationError, DeadlineError, InvalidInputError, TransportError, without_errno
from dyorc.protocol.header_names import AUTHORIZATION, JSON_LENGTH, REQUEST_ID, TIMEOUT, USABLE_KEY, USABLE_NAME
from dyorc.protocol.inference_answer import padding
from dyorc.protocol.inference_request import PreparedRequest
from dyorc.protocol.wire_errors import malformed

Verify: TypeAlias = bool | str | Path | ssl.SSLContext
Cert: TypeAlias = str | Path | tuple[str | Path, str | Path]

KEEP_ALIVE_S = 4.0
"""Shorter than servers keep idle connections, or requests would be lost on them."""

_OWN = frozenset({AUTHORIZATION, JSON_LENGTH, REQUEST_ID, TIMEOUT, "accept", "connection", "transfer-encoding"})

_NOT_SENT = (httpx.ConnectError, httpx.ProxyError)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEndpoint:
    """Where the server is, and how to get there.

    Attributes:
        base_url: Without a slash at its end.
        headers: Of every request.
        max_answer_bytes: The longest answer that is accepted.
    """

    base_url: str
    headers: tuple[tuple[str, str], ...]
    max_answer_bytes: int

    @classmethod
    def to(cls, url: str, api_key: str | None, max_answer_bytes: int, more: Mapping[str, str] | None = None) -> "ServerEndpoint":
        """Checks an address.

        Args:
            more: Further headers of every request.

        Raises:
            ValueError: If it is not an address, the key contains characters that a header cannot carry, or a header is malformed
                or one that the client sets itself.
        """
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise ValueError(f"url is {url!r}: {error}") from error
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise ValueError(f"url is {url!r}, expected http://host:port or https://host:port")
        # No compression: tensors hardly shrink, and could not be viewed where they are.
        headers = [("host", parsed.netloc.decode()), ("user-agent", "dyorc"), ("accept-encoding", "identity")]
        if api_key is not None:
            if not isinstance(api_key, str):  # pyright: ignore[reportUnnecessaryIsInstance] -- a mistake that people make
                raise ValueError(f"api_key is a {type(api_key).__name__}, expected a text")
            if not api_key:
                raise ValueError("api_key is empty; leave it out, or give None, to send no key")
            if not USABLE_KEY.fullmatch(api_key):
                raise ValueError("api_key holds characters other than visible ASCII")
            headers.append((AUTHORIZATION, f"Bearer {api_key}"))
        headers += _checked(more or {}, {name for name, _ in headers})
        return cls(base_url=url.rstrip("/"), headers=tuple(headers), max_answer_bytes=max_answer_bytes)

    def request(self, request: PreparedRequest, extensions: Mapping[str, Any]) -> httpx.Request:
        """Returns a request for httpx."""
        headers = [*self.headers, *request.headers, *current_trace()]
        if request.method == "POST":
            headers.append(("content-length", str(request.num_bytes)))
        return httpx.Request(
            request.method,
            _parse_url(self.base_url + request.path),
            headers=headers,
            stream=_Body(request),
            extensions=extensions,
        )


def current_trace() -> list[tuple[str, str]]:
    """Returns the headers of the caller's current span, if it has one. Imports nothing unless the caller's process uses
    OpenTelemetry."""
    if "opentelemetry.trace" not in sys.modules:
        return []
    from opentelemetry import propagate

    headers: dict[str, str] = {}
    propagate.inject(headers)
    return list(headers.items())


@functools.lru_cache(maxsize=256)
def _parse_url(url: str) -> httpx.URL:
    """Parses an address. Cached, because it costs more than the rest of making a request."""
    return httpx.URL(url)


def _checked(headers: Mapping[str, str], own: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yields a user's headers, with names in lower case."""
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance] -- a mistake that people make
            raise ValueError(f"header {name!r} is {value!r}, expected a text for its name and a text for its value")
        lower = name.lower()
        if lower in own or lower in _OWN or lower.startswith("content-"):
            raise ValueError(f"header {name!r} is set by the client itself")
        if not USABLE_NAME.fullmatch(lower):
            raise ValueError(f"header {name!r} is no name of a header")
        if not value.isascii() or not value.isprintable():
            raise ValueError(f"header {name!r} holds characters other than visible ASCII and blanks")
        yield lower, value


class _Body(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A request's body, which can be sent several times."""

    def __init__(self, request: PreparedRequest) -> None:
        self._request = request

    def __iter__(self) -> Iterator[bytes]:
        return self._request.chunks()  # pyright: ignore[reportReturnType]  # httpx writes views as well as bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._request.chunks():
            yield chunk  # pyright: ignore[reportReturnType]


class AnswerBody:
    """Collects an answer, so that its tensors can be used where they lie.

    Args:
        deadline_s: When it must be complete.

    Raises:
        TransportError: If its headers are malformed, or announce more than `max_bytes`.
    """

    def __init__(self, response: httpx.Response, max_bytes: int, deadline_s: float, clock_s: Callable[[], float]) -> None:
        self.status = response.status_code
        self.headers = headers_of(response)
        self._start = self._at = padding(json_bytes_of(self.headers) or 0)
        self._max_bytes = max_bytes
        self._deadline_s = deadline_s
        self._clock_s = clock_s
        num_bytes = _announced_bytes(self.headers)
        self._check_length(num_bytes or 0)
        # An answer of known length comes into memory of its length, which growing would copy again and again.
        self._buffer = np.empty(self._start + num_bytes, np.uint8).data if num_bytes is not None else None
        self._body = bytearray(self._start)

    def feed(self, chunk: bytes) -> None:
        """Adds bytes.

        Raises:
            DeadlineError: If the time is up.
            TransportError: If it is too long.
        """
        if self._buffer is None:
            self._check_length(len(self._body) - self._start + len(chunk))
            self._body += chunk
        else:
            end = self._at + len(chunk)
            self._buffer[self._at : end] = chunk
            self._at = end
        if self._clock_s() >= self._deadline_s:
            raise DeadlineError("the time was up before the whole answer was there")

    def reply(self) -> Reply:
        """Returns the whole answer."""
        body = memoryview(self._body) if self._buffer is None else self._buffer
        return Reply(self.status, self.headers, body, self._start)

    def _check_length(self, num_bytes: int) -> None:
        if num_bytes > self._max_bytes:
            raise malformed(f"the answer is longer than the {self._max_bytes} bytes that the client takes")


def _announced_bytes(headers: Mapping[str, str]) -> int | None:
    """Returns the length of the body, if it comes without encoding. httpx checks that exactly this many bytes come."""
    length = headers.get("content-length", "")
    if not length.isdecimal() or "transfer-encoding" in headers or headers.get("content-encoding", "identity") != "identity":
        return None
    return int(length)


def headers_of(response: httpx.Response) -> dict[str, str]:
    """Returns headers by their names in lower case."""
    return {name.lower(): value for name, value in response.headers.items()}


def broken_exchange(error: Exception, base_url: str) -> BrokenExchange:
    """Converts an exception of httpx, or one raised while reading."""
    if isinstance(error, DeadlineError | TransportError):
        return BrokenExchange(error, was_sent=True, is_final=True)
    if isinstance(error, httpx.TimeoutException | TimeoutError):
        return BrokenExchange(
            _with_cause(DeadlineError(f"{base_url} did not answer in time"), error), was_sent=True, is_final=True
        )
    text = f"{type(error).__name__}: {without_errno(str(error))}"
    if isinstance(error, httpx.DecodingError):
        return BrokenExchange(
            _with_cause(malformed(f"the answer of {base_url} cannot be decoded: {text}"), error), was_sent=True, is_final=True
        )
    if isinstance(error, httpx.LocalProtocolError | httpx.UnsupportedProtocol):
        return BrokenExchange(
            _with_cause(InvalidInputError(f"the request cannot be sent: {text}"), error), was_sent=False, is_final=True
        )
    if isinstance(error, _NOT_SENT):
        cause = _with_cause(TransportError(f"cannot connect to {base_url}: {text}{_advice(error)}"), error)
        return BrokenExchange(cause, was_sent=False, is_final=_is_refused_certificate(error))
    return BrokenExchange(_with_cause(TransportError(f"the connection to {base_url} broke: {text}"), error), was_sent=True)


def _advice(error: BaseException | None) -> str:
    """Returns what may be wrong where nothing listens; empty if the error says enough."""
    while error is not None:
        if isinstance(error, ConnectionRefusedError):
            return "; is the server started, and is this its port?"
        error = error.__cause__ or error.__context__
    return ""


def _is_refused_certificate(error: BaseException | None) -> bool:
    """Returns whether the server's certificate was refused; another attempt would not change that."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _with_cause(error: Any, cause: Exception) -> Any:
    error.__cause__ = cause
    return error


def ssl_context(base_url: str, verify: Verify, cert: Cert | None) -> ssl.SSLContext | bool:
    """Returns how to check the server, and our own certificate.

    Args:
        verify: True for the system's authorities; a file or folder of others; False for no check.
        cert: File with our certificate and key, or one of each.

    Raises:
        ConfigurationError: If a file cannot be used.
    """
    if not base_url.startswith("https:"):
        return False  # making a context takes longer than a hundred requests
    context = _context_for(verify)
    if cert is not None:
        try:
            context.load_cert_chain(*(str(path) for path in (cert if isinstance(cert, tuple) else (cert,))))
        except OSError as error:
            raise ConfigurationError(f"cert is {cert!r}, expected PEM files of a certificate and its key: {error}") from error
    return context


def _context_for(verify: Verify) -> ssl.SSLContext:
    if isinstance(verify, ssl.SSLContext):
        return verify
    if isinstance(verify, bool):
        context = ssl.create_default_context()
        if not verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    is_folder = Path(verify).is_dir()
    try:
        return ssl.create_default_context(cafile=None if is_folder else str(verify), capath=str(verify) if is_folder else None)
    except OSError as error:
        raise ConfigurationError(f"{verify} is not a PEM file of authorities' certificates: {error}") from error


def timeouts(left_s: float) -> dict[str, float | None]:
    """Returns the limits of each phase of an exchange with `left_s` seconds left. None: no limit."""
    limit_s = None if left_s == math.inf else max(left_s, 1e-3)
    return {"connect": limit_s, "read": limit_s, "write": limit_s, "pool": limit_s}
