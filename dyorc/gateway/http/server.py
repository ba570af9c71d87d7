"""The HTTP server: uvicorn on a socket of our own, without its signal handling."""

import asyncio
import contextlib
import socket
from collections.abc import Generator
from types import TracebackType
from typing import Self

import uvicorn

from dyorc.config import GatewayConfig
from dyorc.gateway.http.app import Gateway


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals belong to the command line, which owns the whole process."""
        yield


class HttpServer:
    """Serves a gateway while it is entered.

    Args:
        gateway: The application.
        config: Host and port; port 0 takes a free one.
    """

    def __init__(self, gateway: Gateway, config: GatewayConfig) -> None:
        self._config = config
        self._server = _Server(
            uvicorn.Config(
                gateway,
                http="httptools",
                loop="none",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=max(1, round(config.drain_timeout_s)),
            )
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
        while not self._server.started and not self._task.done():  # uvicorn has no event for it  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Takes no more requests, and waits for those in flight."""
        self._server.should_exit = True
        try:
            await self._task
        finally:
            self._socket.close()

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
