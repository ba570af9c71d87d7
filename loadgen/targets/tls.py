"""TLS settings of the client: whom it trusts, and which certificate it shows."""

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from loadgen.targets.base import TargetSpec

if TYPE_CHECKING:
    import grpc


def ssl_context(spec: TargetSpec) -> ssl.SSLContext | None:
    """Returns the context for HTTP; None if the URL is not https.

    Raises:
        ValueError: If a file cannot be used.
    """
    if not spec.url.startswith("https://"):
        return None
    try:
        context = ssl.create_default_context(cafile=spec.ca or None)
    except OSError as error:
        raise ValueError(f"the authorities in {spec.ca} cannot be used: {error}") from error
    if spec.cert:
        try:
            context.load_cert_chain(spec.cert, spec.key or None)
        except OSError as error:
            raise ValueError(f"the certificate {spec.cert} and key {spec.key or spec.cert} cannot be used: {error}") from error
    return context


def httpx_verify(spec: TargetSpec) -> ssl.SSLContext | bool:
    """Returns the value for httpx's `verify`. It is False only without TLS, where making a context would take longer than the
    request.

    Raises:
        ValueError: If a file cannot be used.
    """
    return ssl_context(spec) or False


def grpc_address(url: str) -> str:
    """Returns ``host:port`` from a gRPC server's URL."""
    return url.rpartition("://")[2].rstrip("/")


def grpc_credentials(spec: TargetSpec) -> "grpc.ChannelCredentials | None":
    """Returns the credentials for gRPC; None if the URL is neither grpcs nor https.

    Raises:
        ValueError: If a file cannot be read. Its content is checked only when a connection is made.
    """
    import grpc

    if not spec.url.startswith(("grpcs://", "https://")):
        return None
    chain, key = _read(spec.cert), _read(spec.key or spec.cert)
    return grpc.ssl_channel_credentials(_read(spec.ca), key, chain)


def _read(path: str) -> bytes | None:
    try:
        return Path(path).read_bytes() if path else None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
