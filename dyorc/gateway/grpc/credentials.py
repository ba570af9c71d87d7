# pyright: basic
# grpcio ships no types.
"""TLS of the gRPC server: its certificate, which may be renewed in place, and the authorities of clients' certificates."""

import os
import threading
from pathlib import Path
from typing import Any

import grpc
import structlog

from dyorc.config import GatewayConfig
from dyorc.system.log_throttle import LogThrottle

_log = structlog.get_logger("dyorc.gateway")


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
                found = self.read()
            except OSError as error:
                self._broken.report(error=str(error))
                return None
            self._state = state
        _log.info("tls_certificate_read", path=str(self._pair[1]))
        return found

    def _look(self) -> list[tuple[int, int]]:
        paths = [*self._pair, *([self._roots] if self._roots is not None else [])]
        return [(found.st_mtime_ns, found.st_ino) for found in map(os.stat, paths)]
