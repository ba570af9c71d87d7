"""``/metrics`` on a port of its own, where nobody needs a key: for a Prometheus that has none."""

import structlog

from dyorc.config import GatewayConfig, TelemetryConfig
from dyorc.gateway.http.metrics_routes import metrics_app
from dyorc.gateway.http.server import HttpServer
from dyorc.gateway.metrics import Metrics
from dyorc.system.ports import bind

_log = structlog.get_logger("dyorc.gateway")


def metrics_server(metrics: Metrics, telemetry: TelemetryConfig, gateway: GatewayConfig) -> HttpServer:
    """Returns the server; all cells share its port.

    Args:
        gateway: Limits for slow clients.

    Raises:
        OSError: If the address is not available.
    """
    host, port = telemetry.metrics_host, telemetry.metrics_port or 0
    config = gateway.model_copy(
        update={"host": host, "port": port, "allow_open": True, "tls_certificate_file": "", "tls_client_roots_file": ""}
    )
    _log.info("metrics", host=host, port=port)
    return HttpServer(metrics_app(metrics), config, None, listener=bind(host, port, is_shared=True))
