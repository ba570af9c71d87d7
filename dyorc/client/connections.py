"""Connections that read large answers in large pieces, and httpx transports over them.

httpx reads 64 KiB at a time, which takes half of the time of an answer of many megabytes. How much that is can be changed only
for all of a process's httpx, so the piece grows below it, in the network backend: httpcore takes whatever a read gives.
"""

import ssl
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx

from dyorc.client.http import limits

_PIECE_BYTES = 2**20
_LONG_READ_BYTES = 2**16
"""Reads of at least this size are those of answers; a proxy's handshake, which must not take more than its own, reads less."""


class _Appetite:
    """How much the next read takes: more once a read was filled, so that small answers need no large buffers."""

    __slots__ = ("_is_large",)

    def __init__(self) -> None:
        self._is_large = False

    def of(self, max_bytes: int) -> int:
        """Returns how much to ask for instead of `max_bytes`."""
        return _PIECE_BYTES if self._is_large and max_bytes >= _LONG_READ_BYTES else max_bytes

    def saw(self, num_bytes: int, max_bytes: int) -> None:
        """Notes that a read for which the caller had asked `max_bytes` found this many."""
        self._is_large = num_bytes >= max_bytes


# The arguments' names are httpcore's.
# ruff: noqa: ASYNC109


class _Stream(httpcore.NetworkStream):
    """A connection of httpcore's."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream
        self._appetite = _Appetite()

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        found = self._stream.read(self._appetite.of(max_bytes), timeout)
        self._appetite.saw(len(found), max_bytes)
        return found

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(httpcore.NetworkBackend):
    """Opens such connections."""

    def __init__(self) -> None:
        self._backend = httpcore.SyncBackend()

    def connect_tcp(self, *args: Any, **options: Any) -> httpcore.NetworkStream:
        return _Stream(self._backend.connect_tcp(*args, **options))

    def connect_unix_socket(self, *args: Any, **options: Any) -> httpcore.NetworkStream:
        return _Stream(self._backend.connect_unix_socket(*args, **options))


class _AsyncStream(httpcore.AsyncNetworkStream):
    """A connection of httpcore's on an event loop."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._appetite = _Appetite()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        found = await self._stream.read(self._appetite.of(max_bytes), timeout)
        self._appetite.saw(len(found), max_bytes)
        return found

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return _AsyncStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _AsyncBackend(httpcore.AsyncNetworkBackend):
    """Opens such connections on an event loop."""

    def __init__(self) -> None:
        self._backend: Any = httpcore.AnyIOBackend()  # untyped where anyio's optional parts are not installed

    async def connect_tcp(self, *args: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        return _AsyncStream(await self._backend.connect_tcp(*args, **options))

    async def connect_unix_socket(self, *args: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        return _AsyncStream(await self._backend.connect_unix_socket(*args, **options))

    async def sleep(self, seconds: float) -> None:
        await self._backend.sleep(seconds)


class _Received(httpx.SyncByteStream, httpx.AsyncByteStream):
    """An answer's body, whose errors are httpx's."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        with _errors_of_httpx():
            yield from self._stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _errors_of_httpx():
            async for part in self._stream:
                yield part

    def close(self) -> None:
        self._stream.close()

    async def aclose(self) -> None:
        await self._stream.aclose()


class _Transport(httpx.BaseTransport):
    """httpcore's pool of such connections, as httpx's transport."""

    def __init__(self, pool: httpcore.ConnectionPool) -> None:
        self._pool = pool

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        with _errors_of_httpx():
            return _response(self._pool.handle_request(_request(request)))

    def close(self) -> None:
        self._pool.close()


class _AsyncTransport(httpx.AsyncBaseTransport):
    """The same on an event loop."""

    def __init__(self, pool: httpcore.AsyncConnectionPool) -> None:
        self._pool = pool

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        with _errors_of_httpx():
            return _response(await self._pool.handle_async_request(_request(request)))

    async def aclose(self) -> None:
        await self._pool.aclose()


def transport(verify: ssl.SSLContext | bool, proxy: str | None, max_connections: int) -> httpx.BaseTransport:
    """Makes connections for code that waits.

    Args:
        verify: How to check the server; anything but a context if there is no TLS.
        proxy: URL of one. Answers that come through it are read as httpx does.
    """
    bounds = limits(max_connections)
    if proxy is not None:
        return httpx.HTTPTransport(verify=verify, proxy=proxy, limits=bounds)
    return _Transport(httpcore.ConnectionPool(network_backend=_Backend(), **_options(verify, bounds)))


def async_transport(verify: ssl.SSLContext | bool, proxy: str | None, max_connections: int) -> httpx.AsyncBaseTransport:
    """Makes connections for an event loop. Arguments are those of `transport`."""
    bounds = limits(max_connections)
    if proxy is not None:
        return httpx.AsyncHTTPTransport(verify=verify, proxy=proxy, limits=bounds)
    return _AsyncTransport(httpcore.AsyncConnectionPool(network_backend=_AsyncBackend(), **_options(verify, bounds)))


def _options(verify: ssl.SSLContext | bool, bounds: httpx.Limits) -> dict[str, Any]:
    return {
        "ssl_context": verify if isinstance(verify, ssl.SSLContext) else None,
        "max_connections": bounds.max_connections,
        "max_keepalive_connections": bounds.max_keepalive_connections,
        "keepalive_expiry": bounds.keepalive_expiry,
    }


def _request(request: httpx.Request) -> httpcore.Request:
    url = request.url
    return httpcore.Request(
        method=request.method,
        url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
        headers=request.headers.raw,
        content=request.stream,  # pyright: ignore[reportArgumentType]  # each kind of pool iterates it in its own way
        extensions=request.extensions,
    )


def _response(response: httpcore.Response) -> httpx.Response:
    return httpx.Response(
        response.status, headers=response.headers, stream=_Received(response.stream), extensions=response.extensions
    )


@contextmanager
def _errors_of_httpx() -> Generator[None]:
    """Raises errors of httpcore as those of httpx, which bear the same names."""
    try:
        yield
    except Exception as error:
        if not type(error).__module__.startswith("httpcore"):
            raise
        raise getattr(httpx, type(error).__name__)(str(error)) from error
