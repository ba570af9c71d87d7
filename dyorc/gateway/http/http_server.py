"""The HTTP server: a socket, its connections (`connections.py`), and an orderly shutdown."""

import asyncio
import resource
import socket
from types import TracebackType
from typing import Self

import structlog
from starlette.types import ASGIApp

from dyorc.config import GatewayConfig
from dyorc.gateway.http.connection_registry import ConnectionRegistry
from dyorc.gateway.http.connections import HttpConnection
from dyorc.gateway.http.direct import DirectInference
from dyorc.gateway.shedding import Shedding
from dyorc.gateway.tls import Tls, refuse_open_address, tls_of
from dyorc.system import descriptors
from dyorc.system.ports import bind
from dyorc.telemetry.metrics.readings import Readings

_log = structlog.get_logger("dyorc.gateway")

_BACKLOG = 4096
_TLS_REFRESH_S = 5.0

_OTHER_DESCRIPTORS = 1024
"""How many file descriptors are kept free for everything else: links to replicas, arenas, files, connections being refused."""


class HttpServer:
    """Serves a gateway while entered.

    Args:
        gateway: The application, such as `Gateway`.
        config: Address, certificate, and limits for slow clients. Port 0 means any free port.
        shedding: Refuses what cannot be answered in time; if None, nothing is refused for that.
        direct: Answers small inference requests; if None, the application answers all.
        listener: A bound socket to use instead of one for the address. It is closed at the end.

    Raises:
        ConfigurationError: If it may not listen there, or a certificate cannot be used.
    """

    def __init__(
        self,
        gateway: ASGIApp,
        config: GatewayConfig,
        shedding: Shedding | None,
        direct: DirectInference | None = None,
        listener: socket.socket | None = None,
    ) -> None:
        refuse_open_address(config)
        self._gateway = gateway
        self._config = config
        self._shedding = shedding
        self._direct = direct
        self._tls = tls_of(config)
        self._listener = listener

    async def __aenter__(self) -> Self:
        """Starts listening.

        Raises:
            OSError: If the address is not available. The message names it.
        """
        config, tls = self._config, self._tls
        self._socket = self._listener or bind(config.host, config.port)
        self.registry = ConnectionRegistry(
            self._gateway, config, _connections_to_allow(config.max_connections), self._shedding, self._direct
        )
        self._server = await asyncio.get_running_loop().create_server(
            lambda: HttpConnection(self.registry),
            sock=self._socket,
            backlog=_BACKLOG,
            ssl=None if tls is None else tls.context,
            # A client that does not finish the handshake never becomes a connection, so the handshake has a separate limit.
            ssl_handshake_timeout=None if tls is None else config.header_timeout_s,
        )
        self.registry.timeouts.start()
        self._refreshing = None if tls is None else asyncio.create_task(_refresh(tls))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
        try:
            await self.drain(self._config.drain_timeout_s)
        finally:
            self.registry.timeouts.stop()
            self._socket.close()

    def fit_connections(self) -> None:
        """Fits the number of connections to the descriptors that are left. Call it when the others have opened theirs."""
        wanted = self._config.max_connections
        self.registry.max_connections = num = _connections_to_allow(wanted)
        if num < wanted:
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            cure = f"raise the limit of open files (`ulimit -n`) to {wanted + descriptors.num_open() + _OTHER_DESCRIPTORS}"
            _log.warning("few_descriptors", max_descriptors=limit, max_connections=num, wanted=wanted, cure=cure)

    async def drain(self, timeout_s: float) -> None:
        """Refuses new requests, and waits for those in flight. Connections are closed after `timeout_s` at the latest."""
        if self._server.is_serving():
            # asyncio makes a connection a turn of its loop after it has accepted one; if the server is closed by then, it fails,
            # and never closes the socket.
            asyncio.get_running_loop().remove_reader(self._socket)
            await asyncio.sleep(0)
        self._server.close()
        await self.registry.empty(timeout_s)

    def measure(self, readings: Readings) -> None:
        self.registry.measure(readings)

    @property
    def url(self) -> str:
        scheme = "http" if self._tls is None else "https"
        host, port = self._socket.getsockname()[:2]
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


async def _refresh(tls: Tls) -> None:
    while True:
        await asyncio.sleep(_TLS_REFRESH_S)
        tls.refresh()


def _connections_to_allow(wanted: int) -> int:
    """Returns how many connections there may be, after raising the process's limit of descriptors as far as possible.

    With all descriptors in use nothing else would work, accepting included; so the limit on connections comes first.
    """
    limit = descriptors.raise_limit()
    if limit == resource.RLIM_INFINITY:
        return wanted
    free = limit - descriptors.num_open()
    return min(wanted, max(1, free - _OTHER_DESCRIPTORS, free // 2))
