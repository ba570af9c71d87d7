# pyright: basic
# grpcio ships no types.
"""The gRPC server: grpc.aio on the event loop that enters it.

A grpc.aio server accepts calls one by one, each with a round trip through one of gRPC's threads. So several servers share the
port and the connections: then calls of many clients arrive together and can share batches
(docs/decisions/0015-grpc-servers.md).
"""

import asyncio
import errno
import os
import socket
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
import structlog

from dyorc.config import GatewayConfig
from dyorc.gateway.grpc.handlers import all_methods
from dyorc.gateway.grpc.inference_calls import OpenStreams
from dyorc.gateway.service import InferenceService
from dyorc.gateway.tls import refuse_open_address
from dyorc.system.descriptors import check_room
from dyorc.system.log_throttle import LogThrottle
from dyorc.system.ports import OTHER_GRPC_PORT

_log = structlog.get_logger("dyorc.gateway")

_MAX_STREAMS = 2**16
"""Concurrent calls on one connection; more wait at the client, but a new connection has sent some before it knows the limit, and
the server resets those."""

_MAX_PENDING = 2**30
"""Calls that wait for the event loop. By default gRPC resets some of them, without a code, from 1,000 on. The limits of
requests and bytes refuse them by name."""
_NUM_SERVERS = 16
_NUM_DESCRIPTORS = _NUM_SERVERS + 8
"""What they open: a socket each, and some for all."""


class GrpcServer:
    """Serves the protocol over gRPC while entered, with gRPC's health and reflection services.

    Args:
        service: Runs requests.
        config: Host and port. By default the port is the one after HTTP's, or any free port if that is 0.
        is_port_shared: Whether other processes of this server listen there, too.

    Attributes:
        address: Where it listens, e.g. ``127.0.0.1:8001``; set once entered.
    """

    def __init__(self, service: InferenceService, config: GatewayConfig, *, is_port_shared: bool = False) -> None:
        self._service = service
        self._config = config
        self._is_port_shared = is_port_shared
        self._streams = OpenStreams()
        self.address = ""

    async def __aenter__(self) -> Self:
        """Starts listening.

        Raises:
            ConfigurationError: If it may not listen there.
            OSError: If the address is not available or the certificate is invalid. The message names it.
        """
        refuse_open_address(self._config)
        try:
            check_room(_NUM_DESCRIPTORS)  # gRPC would write about it on its own, and its error does not say why
            credentials = [credentials_of(self._config) for _ in range(_NUM_SERVERS)]  # each watches the files on its own
            self.address = _wanted(self._config) if self._is_port_shared else _free_address(self._config)
        except OSError as error:
            advice = f"; {OTHER_GRPC_PORT}" if error.errno == errno.EADDRINUSE else ""
            raise OSError(
                error.errno, f"cannot serve gRPC on {_wanted(self._config)}: {error.strerror or error}{advice}"
            ) from error
        handlers = _Handlers(self._service, self._streams)
        self._servers = [grpc.aio.server(options=_options(self._config)) for _ in range(_NUM_SERVERS)]
        try:
            for server, own in zip(self._servers, credentials, strict=True):
                server.add_generic_rpc_handlers((handlers,))
                if own is None:
                    server.add_insecure_port(self.address)
                else:
                    server.add_secure_port(self.address, own)
        except RuntimeError as error:
            await self._start()  # gRPC's own threads would outlive a server that never started
            await self._stop(None)
            raise OSError(f"cannot serve gRPC on {self.address}: {error}") from error
        await self._start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.drain(self._config.drain_timeout_s)

    async def drain(self, timeout_s: float) -> None:
        """Refuses new requests, and waits for those in flight. They are cancelled after `timeout_s`."""
        self._streams.stop()
        await self._stop(timeout_s)

    async def _start(self) -> None:
        for server in self._servers:
            await server.start()

    async def _stop(self, drain_timeout_s: float | None) -> None:
        await asyncio.gather(*(server.stop(drain_timeout_s) for server in self._servers))


class _Handlers(grpc.GenericRpcHandler):
    """Finds the handler of a call. Messages are passed as bytes."""

    def __init__(self, service: InferenceService, streams: OpenStreams) -> None:
        methods = all_methods(service, streams)
        self._timed = {path: method.handle for path, method in methods.items() if method.is_timed}
        self._others = {
            path: (grpc.stream_stream_rpc_method_handler if method.is_streaming else grpc.unary_unary_rpc_method_handler)(
                method.handle
            )
            for path, method in methods.items()
            if not method.is_timed
        }

    def service(self, details: Any) -> Any:
        """Returns the handler of a call; None if there is no such call."""
        handle = self._timed.get(details.method)
        if handle is None:
            return self._others.get(details.method)
        arrived_ns = time.monotonic_ns()

        async def handle_timed(message: bytes, context: Any) -> Any:  # gRPC has to recognize a coroutine function
            return await handle(arrived_ns, message, context)

        return grpc.unary_unary_rpc_method_handler(handle_timed)


def _wanted(config: GatewayConfig, port: int | None = None) -> str:
    host, port = config.host, config.grpc_port_to_bind if port is None else port
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _free_address(config: GatewayConfig) -> str:
    """Returns an unused address. Without this check, our sockets would silently share the port with another process.

    Raises:
        OSError: If the address is taken.
    """
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((config.host, config.grpc_port_to_bind))
        return _wanted(config, probe.getsockname()[1])


def _options(config: GatewayConfig) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", config.max_request_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 1),
        ("grpc.max_concurrent_streams", _MAX_STREAMS),
        ("grpc.server.max_pending_requests", _MAX_PENDING),
        ("grpc.server.max_pending_requests_hard_limit", _MAX_PENDING),
        ("grpc.server_handshake_timeout_ms", 10_000),
        ("grpc.max_connection_idle_ms", 600_000),  # a client reconnects when it needs to
        ("grpc.keepalive_time_ms", 60_000),  # a client that does not answer a ping is gone, and its requests are cancelled
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),  # clients that ping more often are disconnected
    ]


def credentials_of(config: GatewayConfig) -> Any:
    """Returns the credentials of a secure port; None without TLS. A changed certificate is read again when a client connects.

    Raises:
        OSError: If a file cannot be read.
    """
    if not config.tls_certificate_file:
        return None
    files = _Files(config)
    return grpc.dynamic_ssl_server_credentials(files.read(), files.read_if_changed, bool(config.tls_client_roots_file))


class _Files:
    """The certificate files; gRPC calls `read_if_changed` on its threads."""

    def __init__(self, config: GatewayConfig) -> None:
        self._pair = (Path(config.tls_key_file), Path(config.tls_certificate_file))
        self._roots = Path(config.tls_client_roots_file) if config.tls_client_roots_file else None
        self._broken = LogThrottle(_log, "tls_certificate_broken", is_error=True)
        self._state = self._look()
        self._reading = threading.Lock()

    def read(self) -> Any:
        key, certificate = (path.read_bytes() for path in self._pair)
        roots = None if self._roots is None else self._roots.read_bytes()
        return grpc.ssl_server_certificate_configuration([(key, certificate)], roots)

    def read_if_changed(self) -> Any:
        """Returns the configuration if it has changed, else None. gRPC keeps the old one if the new one is invalid."""
        with self._reading:
            try:
                state = self._look()
                if state == self._state:
                    return None
                certificates = self.read()
            except OSError as error:
                self._broken.report(error=str(error))
                return None
            self._state = state
        _log.info("tls_certificate_read", path=str(self._pair[1]))
        return certificates

    def _look(self) -> list[tuple[int, int]]:
        paths = [*self._pair, *([self._roots] if self._roots is not None else [])]
        return [(status.st_mtime_ns, status.st_ino) for status in map(os.stat, paths)]
