"""Connections that read large answers in large pieces, and httpx transports over them.

httpx reads 64 KiB at a time, which takes half of the time of an answer of many megabytes. That size can be changed only
for all of a process's httpx, so the pieces grow below it, in the network backend: httpcore accepts reads of any length.

The backend also knows its connections, so that they can be closed in any state of httpcore, and left to the process that
opened them when it forks.
"""

import os
import socket
import ssl
import weakref
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import httpcore
import httpx

from dyorc.client.http import KEEP_ALIVE_S
from dyorc.client.transport_pools import AsyncTransport, Transport, renew_pools

T = TypeVar("T")

_PIECE_BYTES = 2**20
_LONG_READ_BYTES = 2**16
"""Reads of at least this size are reads of answers; a proxy's handshake, which must not take later bytes, reads less."""


class _ReadSize:
    """The size of the next read: large once a read was filled, so that small answers need no large buffers."""

    __slots__ = ("_is_large",)

    def __init__(self) -> None:
        self._is_large = False

    def size_for(self, max_bytes: int) -> int:
        """Returns how much to ask for instead of `max_bytes`."""
        return _PIECE_BYTES if self._is_large and max_bytes >= _LONG_READ_BYTES else max_bytes

    def note(self, num_bytes: int, max_bytes: int) -> None:
        """Notes that a read of `max_bytes`, as the caller asked for, returned this many."""
        self._is_large = num_bytes >= max_bytes


# The arguments' names are httpcore's.
# ruff: noqa: ASYNC109


class _Stream(httpcore.NetworkStream):
    """A connection of httpcore."""

    def __init__(self, stream: httpcore.NetworkStream, opened: "weakref.WeakSet[_Stream]") -> None:
        self._stream = stream
        self._opened = opened
        self._read_size = _ReadSize()
        opened.add(self)
        _streams.add(self)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._stream.read(self._read_size.size_for(max_bytes), timeout)
        self._read_size.note(len(data), max_bytes)
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, timeout)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, timeout), self._opened)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(httpcore.NetworkBackend):
    """Opens connections that read in large pieces."""

    def __init__(self) -> None:
        self._backend = httpcore.SyncBackend()
        self._opened = weakref.WeakSet[_Stream]()

    def connect_tcp(self, *args: Any, **options: Any) -> httpcore.NetworkStream:
        return _Stream(self._backend.connect_tcp(*args, **options), self._opened)

    def connect_unix_socket(self, *args: Any, **options: Any) -> httpcore.NetworkStream:
        return _Stream(self._backend.connect_unix_socket(*args, **options), self._opened)

    def close(self) -> None:
        """Closes the connections."""
        for stream in list(self._opened):
            stream.close()


class _AsyncStream(httpcore.AsyncNetworkStream):
    """A connection of httpcore on an event loop."""

    def __init__(self, stream: httpcore.AsyncNetworkStream, opened: "weakref.WeakSet[_AsyncStream]") -> None:
        self._stream = stream
        self._opened = opened
        self._read_size = _ReadSize()
        opened.add(self)
        _streams.add(self)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = await self._stream.read(self._read_size.size_for(max_bytes), timeout)
        self._read_size.note(len(data), max_bytes)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        return _AsyncStream(await self._stream.start_tls(ssl_context, server_hostname, timeout), self._opened)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _AsyncBackend(httpcore.AsyncNetworkBackend):
    """Opens them on an event loop."""

    def __init__(self) -> None:
        self._backend: Any = httpcore.AnyIOBackend()  # untyped where anyio's optional parts are not installed
        self._opened = weakref.WeakSet[_AsyncStream]()

    async def connect_tcp(self, *args: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        return _AsyncStream(await self._backend.connect_tcp(*args, **options), self._opened)

    async def connect_unix_socket(self, *args: Any, **options: Any) -> httpcore.AsyncNetworkStream:
        return _AsyncStream(await self._backend.connect_unix_socket(*args, **options), self._opened)

    async def aclose(self) -> None:
        """Closes the connections."""
        for stream in list(self._opened):
            await stream.aclose()

    async def sleep(self, seconds: float) -> None:
        await self._backend.sleep(seconds)


class _AnswerStream(httpx.SyncByteStream, httpx.AsyncByteStream):
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


class _Transport:
    """httpcore's pool of one connection."""

    def __init__(self, pool: httpcore.ConnectionPool, backend: _Backend) -> None:
        self._pool = pool
        self._backend = backend

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        with _errors_of_httpx():
            return _response(self._pool.handle_request(_request(request)))

    def abort(self) -> None:
        self._backend.close()  # not the pool, whose locks an interrupted exchange may hold for ever


class _AsyncTransport:
    """The same on an event loop."""

    def __init__(self, pool: httpcore.AsyncConnectionPool, backend: _AsyncBackend) -> None:
        self._pool = pool
        self._backend = backend

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        with _errors_of_httpx():
            return _response(await self._pool.handle_async_request(_request(request)))

    async def abort(self) -> None:
        await self._backend.aclose()


def transport(verify: ssl.SSLContext | bool, proxy: str | None) -> Transport:
    """Makes one connection for code that waits.

    Args:
        verify: How to check the server; anything but a context if there is no TLS.
        proxy: The URL of a proxy; None: no proxy.

    Raises:
        ValueError: If the proxy's URL is not valid.
    """
    backend = _Backend()
    kinds = (httpcore.ConnectionPool, httpcore.HTTPProxy, httpcore.SOCKSProxy)
    return _Transport(_pool(kinds, verify, proxy, backend), backend)


def async_transport(verify: ssl.SSLContext | bool, proxy: str | None) -> AsyncTransport:
    """Makes one connection for an event loop. Arguments are those of `transport`."""
    backend = _AsyncBackend()
    kinds = (httpcore.AsyncConnectionPool, httpcore.AsyncHTTPProxy, httpcore.AsyncSOCKSProxy)
    return _AsyncTransport(_pool(kinds, verify, proxy, backend), backend)


def _pool(
    kinds: tuple[Callable[..., T], Callable[..., T], Callable[..., T]],
    verify: ssl.SSLContext | bool,
    proxy: str | None,
    backend: _Backend | _AsyncBackend,
) -> T:
    """Makes httpcore's pool; `kinds` are the pools without a proxy, with one, and with a SOCKS proxy."""
    options: dict[str, Any] = {
        "ssl_context": verify if isinstance(verify, ssl.SSLContext) else None,
        "max_connections": 1,
        "max_keepalive_connections": 1,
        "keepalive_expiry": KEEP_ALIVE_S,
        "network_backend": backend,
    }
    if proxy is None:
        return kinds[0](**options)
    parsed = httpx.Proxy(proxy)
    options |= {"proxy_url": _url(parsed.url), "proxy_auth": parsed.raw_auth}
    if parsed.url.scheme.startswith("socks5"):
        return kinds[2](**options)
    return kinds[1](**options, proxy_headers=parsed.headers.raw, proxy_ssl_context=parsed.ssl_context)


def _url(url: httpx.URL) -> httpcore.URL:
    return httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


def _request(request: httpx.Request) -> httpcore.Request:
    return httpcore.Request(
        method=request.method,
        url=_url(request.url),
        headers=request.headers.raw,
        content=request.stream,  # pyright: ignore[reportArgumentType]  # each kind of pool iterates it in its own way
        extensions=request.extensions,
    )


def _response(response: httpcore.Response) -> httpx.Response:
    return httpx.Response(
        response.status, headers=response.headers, stream=_AnswerStream(response.stream), extensions=response.extensions
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


_streams: "weakref.WeakSet[_Stream | _AsyncStream]" = weakref.WeakSet()
"""All connections of this process."""
_left: list[_AsyncStream] = []
"""Connections of the parent process: closing them would notify its event loop, which shares its selector with ours."""


def _leave_connections() -> None:
    """Leaves the connections to the parent process: each carries one sequence of answers.

    In this process, their descriptors are replaced by a connection that has ended. Nothing is sent on the connections themselves.
    """
    if _streams:
        ended, peer = socket.socketpair()
        peer.close()
        with ended:
            for stream in list(_streams):
                _replace(stream, ended)
        _streams.clear()
    renew_pools()


def _replace(stream: _Stream | _AsyncStream, ended: socket.socket) -> None:
    descriptor = -1 if (connection := stream.get_extra_info("socket")) is None else connection.fileno()
    if descriptor >= 0:
        os.dup2(ended.fileno(), descriptor, inheritable=False)
    if isinstance(stream, _Stream):
        stream.close()
    else:
        _left.append(stream)


os.register_at_fork(after_in_child=_leave_connections)
