"""``GET /metrics``: among the other routes, where it needs a key, and optionally on a separate port without keys."""

import structlog
from fastapi import FastAPI, Request
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from dyorc.config import GatewayConfig, TelemetryConfig
from dyorc.gateway.http.http_server import HttpServer
from dyorc.gateway.http.middleware import CommonMethods, tenant_of
from dyorc.gateway.metrics import Metrics
from dyorc.protocol.api_paths import METRICS
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


_FORMATS = {"text/plain": {}, "application/openmetrics-text": {}}
_DESCRIPTION = {"content": _FORMATS, "description": "Prometheus' text format, or OpenMetrics"}


def add_metrics_route(app: FastAPI, metrics: Metrics) -> None:
    """Adds ``/metrics`` to the server's routes."""

    @app.get(METRICS, response_class=Response, responses={200: _DESCRIPTION}, tags=["server"])
    async def scrape(request: Request) -> Response:
        """All metrics of the server, for Prometheus. Needs a key that may manage. Not part of the protocol."""
        tenant_of(request.scope).check_managing("see the metrics of all tenants")
        return await _answer(metrics, request)


def metrics_app(metrics: Metrics) -> CommonMethods:
    """Returns an application with only that route, which needs no key."""

    async def scrape(request: Request) -> Response:
        return await _answer(metrics, request)

    app = Starlette(routes=[Route(METRICS, scrape)])
    return CommonMethods(app, app.routes)


async def _answer(metrics: Metrics, request: Request) -> Response:
    text, content_type = await metrics.scrape(request.headers.get("accept", ""))
    return Response(text, headers={"Content-Type": content_type})
