"""``GET /metrics``: beside the other routes, where keys count, and perhaps on a port of its own, where they do not."""

from fastapi import FastAPI, Request
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from dyorc.gateway.http.front import CommonMethods, tenant_of
from dyorc.gateway.metrics import Metrics
from dyorc.protocol.api_paths import METRICS

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
    """Returns an application with that route alone, for which nobody needs a key."""

    async def scrape(request: Request) -> Response:
        return await _answer(metrics, request)

    app = Starlette(routes=[Route(METRICS, scrape)])
    return CommonMethods(app, app.routes)


async def _answer(metrics: Metrics, request: Request) -> Response:
    text, content_type = await metrics.scrape(request.headers.get("accept", ""))
    return Response(text, headers={"Content-Type": content_type})
