"""Everything but inference. These routes use FastAPI, because they are called rarely and it describes them."""

from typing import Any

from fastapi import FastAPI

from dyorc.gateway.http.client_memory_routes import add_cuda_memory_routes, add_system_memory_routes
from dyorc.gateway.http.docs_routes import add_docs_routes
from dyorc.gateway.http.error_handlers import add_error_handlers
from dyorc.gateway.http.live_routes import add_live_routes
from dyorc.gateway.http.metrics_routes import add_metrics_route
from dyorc.gateway.http.model_routes import add_model_routes
from dyorc.gateway.http.openapi import describe
from dyorc.gateway.http.record_routes import add_record_routes
from dyorc.gateway.http.repository_routes import add_repository_routes
from dyorc.gateway.http.scaling_routes import add_scaling_routes
from dyorc.gateway.http.server_routes import add_server_routes
from dyorc.gateway.http.settings_routes import add_settings_routes
from dyorc.gateway.http.ui_routes import add_ui_routes
from dyorc.gateway.jobs.jobs import Jobs
from dyorc.gateway.live import LiveFeed
from dyorc.gateway.metrics import Metrics
from dyorc.gateway.records import Records
from dyorc.gateway.service import InferenceService
from dyorc.version import version


def control_app(
    service: InferenceService, jobs: Jobs | None, live: LiveFeed | None, records: Records | None, metrics: Metrics | None
) -> FastAPI:
    """Returns the routes for metadata, health, statistics, settings and clients' shared memory, and the description of all
    routes."""
    # /docs is a route of our own. OpenTelemetry's current provider is there for programs; FastAPI would send it spans, too.
    no_spans: Any = {"telemetry": {"tracing": False, "metrics": False, "logs": False}}
    app = FastAPI(title="DyOrc", version=version(), docs_url=None, redoc_url=None, redirect_slashes=False, **no_spans)
    app.openapi = lambda: describe(app)
    add_error_handlers(app)
    add_server_routes(app, service, jobs)
    add_model_routes(app, service)
    add_repository_routes(app, service)
    add_settings_routes(app, service)
    add_scaling_routes(app, service)
    add_system_memory_routes(app, service.clients, service.server_view)
    add_cuda_memory_routes(app, service.clients)
    if metrics is not None:
        add_metrics_route(app, metrics)
    if live is not None:
        add_live_routes(app, service, live)
        add_ui_routes(app)
    if records is not None:
        add_record_routes(app, records)
    add_docs_routes(app)
    return app
