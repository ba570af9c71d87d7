"""TLS of the HTTP server, for the event loop's thread; and which addresses HTTP and gRPC may listen on without protection."""

import os
import socket
import ssl
from typing import TypeAlias

import structlog

from dyorc.config import GatewayConfig
from dyorc.errors import ConfigurationError
from dyorc.system.log_throttle import LogThrottle
from dyorc.system.ports import is_loopback

_log = structlog.get_logger("dyorc.gateway")

_State: TypeAlias = tuple[tuple[int, int], ...]


class Tls:
    """The TLS context of new connections. TLS 1.2 or newer, with Python's choice of ciphers.

    `refresh` loads a certificate that was renewed in place; the authorities of clients' certificates are read once, since a
    context can add new ones but not drop old ones.

    Args:
        config: Names the files.

    Attributes:
        context: For the server's socket.

    Raises:
        ConfigurationError: If a file is missing or invalid, or named without the others that it needs. Names it.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self._certificate_file = config.tls_certificate_file
        self._key_file = config.tls_key_file
        self._broken = LogThrottle(_log, "tls_certificate_broken", is_error=True)
        self._state = self._look()
        self.context = self._load(_new_context())
        if config.tls_client_roots_file:
            try:
                self.context.load_verify_locations(config.tls_client_roots_file)
            except OSError as error:
                raise _unusable("tls_client_roots_file", config.tls_client_roots_file, error) from error
            self.context.verify_mode = ssl.CERT_REQUIRED

    def refresh(self) -> None:
        """Reads the certificate and its key again if they have changed; keeps the old ones if the new do not match."""
        try:
            state = self._look()
            if state == self._state:
                return
            self._load(_new_context())  # a trial: a context with a certificate and another key would be useless
            self._load(self.context)
        except ConfigurationError as error:
            self._broken.report(error=str(error))
            return
        self._state = state
        _log.info("tls_certificate_read", path=self._certificate_file)

    def _load(self, context: ssl.SSLContext) -> ssl.SSLContext:
        try:
            context.load_cert_chain(self._certificate_file, self._key_file, password=_no_password)
        except OSError as error:
            raise _unusable("tls_certificate_file, tls_key_file", f"{self._certificate_file}, {self._key_file}", error) from error
        return context

    def _look(self) -> _State:
        try:
            statuses = [os.stat(path) for path in (self._certificate_file, self._key_file)]
        except OSError as error:
            raise _unusable("tls_certificate_file, tls_key_file", error.filename, error) from error
        return tuple((status.st_mtime_ns, status.st_ino) for status in statuses)


def tls_of(config: GatewayConfig) -> Tls | None:
    """Returns TLS as configured; None: without TLS.

    Raises:
        ConfigurationError: See `Tls`.
    """
    if not (config.tls_certificate_file or config.tls_key_file or config.tls_client_roots_file):
        return None
    if not (config.tls_certificate_file and config.tls_key_file):
        raise ConfigurationError("TLS needs both gateway.tls_certificate_file and gateway.tls_key_file")
    return Tls(config)


def _new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    return context


def _no_password() -> str:
    """Refuses an encrypted key; otherwise OpenSSL would prompt on the terminal."""
    raise OSError("the key is encrypted with a password, expected an unencrypted key")


def _unusable(setting: str, path: object, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"gateway.{setting}: {path}: {error.strerror or error}")


def refuse_open_address(config: GatewayConfig) -> None:
    """Checks that the server may listen on `config.host`.

    Raises:
        ConfigurationError: If it is no address, or other machines could use it without authentication. Names the ways out.
    """
    if not config.host:
        raise ConfigurationError("gateway.host (--host) is empty, expected an address such as 127.0.0.1; 0.0.0.0 is all of them")
    if config.keys_file or config.tls_client_roots_file or config.allow_open or is_loopback(config.host):
        return
    try:
        socket.getaddrinfo(config.host, None)
    except OSError as error:
        raise ConfigurationError(
            f"gateway.host (--host) is {config.host!r}, expected an address or a name of this machine: {error.strerror}"
        ) from error
    raise ConfigurationError(
        f"{config.host!r} is not a loopback address: anyone who can reach it could use the server. Either ask for API keys "
        "(gateway.keys_file; `dyorc keys add` makes them), or for client certificates (gateway.tls_client_roots_file), or, if "
        "something else keeps strangers out, say so (gateway.allow_open, --allow-open)"
    )
