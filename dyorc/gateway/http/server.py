"""The HTTP server: uvicorn on a socket of our own, with connections of our own (`connections.py`) and without its signals."""

import asyncio
import contextlib
import resource
import socket
from collections.abc import Generator
from types import TracebackType
from typing import Self

import structlog
import uvicorn

from dyorc.config import GatewayConfig
from dyorc.gateway.exposure import refuse_open_address
from dyorc.gateway.http.app import Gateway
from dyorc.gateway.http.connections import Connection
from dyorc.gateway.http.patience import Patience
from dyorc.gateway.tls import Tls, tls_of

_log = structlog.get_logger("dyorc.gateway")

_BACKLOG = 4096
_TLS_REFRESH_S = 5.0

_OTHER_DESCRIPTORS = 1024
"""Left for all that is no connection of a client: links to replicas, arenas, files, connections that are being refused."""

_HEADERS = [("x-content-type-options", "nosniff"), ("cache-control", "no-store")]
"""Of every answer: a browser must not guess its type, and nobody keep it, as it may be for one tenant only."""


class _Server(uvicorn.Server):
    """uvicorn's server, which accepts as we say.

    Args:
        config: uvicorn's.
        gateway: Our settings.
        tls: None serves without.
    """

    def __init__(self, config: uvicorn.Config, gateway: GatewayConfig, tls: Tls | None) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._tls = tls
        self.has_started = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals belong to the command line, which owns the whole process."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens."""
        loop = asyncio.get_running_loop()
        self.patience = Patience(self._gateway)
        max_connections = _connections_to_allow(self._gateway.max_connections)

        def connection() -> Connection:
            return Connection(self.config, self.server_state, self.patience, self._gateway, max_connections, loop)

        context = None if self._tls is None else self._tls.context
        # A client that does not finish the handshake never becomes a connection, so that has a time limit of its own.
        handshake_s = None if context is None else self._gateway.header_timeout_s
        self.servers = [
            await loop.create_server(connection, sock=one, ssl=context, backlog=_BACKLOG, ssl_handshake_timeout=handshake_s)
            for one in sockets or ()
        ]
        self.patience.start()
        self.started = True
        self.has_started.set()

    def abandon(self) -> None:
        """Ends what a client has kept open until after the end."""
        self.patience.stop()
        for connection in list(self.server_state.connections):
            connection.transport.abort()


class HttpServer:
    """Serves a gateway while it is entered.

    Args:
        gateway: The application.
        config: Where to listen, with which certificate, and how long clients are waited for. Port 0 takes a free one.

    Raises:
        ConfigurationError: If it may not listen there, or a certificate cannot be used.
    """

    def __init__(self, gateway: Gateway, config: GatewayConfig) -> None:
        refuse_open_address(config)
        self._config = config
        self._tls = tls_of(config)
        self._server = _Server(
            uvicorn.Config(
                gateway,
                http="httptools",
                loop="none",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",  # its warnings are about what strangers send, and as many as they like
                access_log=False,
                server_header=False,
                proxy_headers=False,
                headers=_HEADERS,
                timeout_graceful_shutdown=max(1, round(config.drain_timeout_s)),
            ),
            config,
            self._tls,
        )

    async def __aenter__(self) -> Self:
        """Listens from here on.

        Raises:
            OSError: If the address cannot be had; names it.
        """
        family = socket.AF_INET6 if ":" in self._config.host else socket.AF_INET
        self._socket = socket.socket(family)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((self._config.host, self._config.port))
        except OSError as error:
            self._socket.close()
            raise OSError(error.errno, f"cannot listen on {self._config.host}:{self._config.port}: {error.strerror}") from error
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]))
        started = asyncio.create_task(self._server.has_started.wait())
        await asyncio.wait((self._task, started), return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if self._task.done():
            self._socket.close()
            await self._task
        self._refreshing = None if self._tls is None else asyncio.create_task(_refresh(self._tls))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Takes no more requests, and waits for those in flight."""
        if self._refreshing is not None:
            self._refreshing.cancel()
        self._server.should_exit = True
        try:
            await self._task
        finally:
            self._server.abandon()
            self._socket.close()

    @property
    def url(self) -> str:
        """Where it listens."""
        scheme = "http" if self._tls is None else "https"
        host, port = self._socket.getsockname()[:2]
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


async def _refresh(tls: Tls) -> None:
    while True:
        await asyncio.sleep(_TLS_REFRESH_S)
        tls.refresh()


def _connections_to_allow(wanted: int) -> int:
    """How many there may be, after the process has been allowed as many descriptors as the system lets it have.

    With all descriptors in use nothing else would work any more, accepting included; so the limit on connections comes first.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # some systems say that there is no limit, and do not let it be set
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    if soft == resource.RLIM_INFINITY:
        return wanted
    possible = max(soft - _OTHER_DESCRIPTORS, soft // 2)
    if possible < wanted:
        _log.warning("few_descriptors", max_descriptors=soft, max_connections=possible, wanted=wanted)
    return min(wanted, possible)
