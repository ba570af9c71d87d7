"""Where spans go, from the settings and OpenTelemetry's environment variables. Knows nothing of OpenTelemetry's code."""

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from dyorc.config import TracesConfig
from dyorc.errors import ConfigurationError

_PROTOCOLS = ("grpc", "http/protobuf")
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOL = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PATH = "/v1/traces"


class Destination(msgspec.Struct, frozen=True):
    """A collector.

    Attributes:
        url: For HTTP with its path.
    """

    url: str
    is_grpc: bool = True


def destination_of(config: TracesConfig, environment: Mapping[str, str]) -> Destination | None:
    """Returns where spans go; None if there is no endpoint, or ``OTEL_SDK_DISABLED`` is true.

    Raises:
        ConfigurationError: If endpoint or protocol are of no known kind.
    """
    endpoint = config.endpoint or _first(environment, _ENDPOINTS)
    if not endpoint or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    protocol = config.protocol or _first(environment, _PROTOCOL) or _PROTOCOLS[0]
    if protocol not in _PROTOCOLS:
        raise ConfigurationError(f"the protocol for traces is {protocol!r}, expected one of {list(_PROTOCOLS)}")
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigurationError(f"the endpoint for traces is {endpoint!r}, expected a URL such as 'http://127.0.0.1:4317'")
    is_grpc = protocol == "grpc"
    if not is_grpc and not parts.path.endswith(_PATH):
        endpoint = endpoint.rstrip("/") + _PATH
    return Destination(endpoint, is_grpc)


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environment[name] for name in names if environment.get(name)), "")
