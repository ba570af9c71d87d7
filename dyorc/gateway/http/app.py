"""The HTTP application: inference routes first, everything else by FastAPI."""

import structlog
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from dyorc.errors import AuthenticationError, ClientError
from dyorc.gateway.codec.http_errors import http_error_body
from dyorc.gateway.http.authentication import CHALLENGE, authenticate, refuse
from dyorc.gateway.http.control_routes import control_app
from dyorc.gateway.http.cors import PREFLIGHT, Cors
from dyorc.gateway.http.heads import target_of
from dyorc.gateway.http.inference_answers import JSON, write
from dyorc.gateway.http.inference_routes import InferenceRoutes
from dyorc.gateway.http.job_routes import add_job_routes
from dyorc.gateway.http.middleware import CommonMethods, arrival_of, ids_of, options, without_trailing_slash
from dyorc.gateway.http.openai.openai_routes import OpenAiRoutes, write_openai_error
from dyorc.gateway.http.page_routes import TO_PAGE, asks_for_page
from dyorc.gateway.http.user_application import UserApplication
from dyorc.gateway.jobs.jobs import Jobs
from dyorc.gateway.live_feed import LiveFeed
from dyorc.gateway.metrics import Metrics
from dyorc.gateway.request_records import Records
from dyorc.gateway.service import InferenceService
from dyorc.protocol.api_paths import MCP, is_below_openai, is_openai

_log = structlog.get_logger("dyorc.gateway")

_INFERENCE_METHODS = ("OPTIONS", "POST")


class Gateway:
    """The ASGI application.

    Args:
        service: Runs requests.
        jobs: Keeps durable jobs; if None, there are no routes for jobs.
        live: What the live page reads; if None, there are no page and no routes for it.
        records: Records of requests that have ended; if None, there are no routes for them.
        metrics: What ``/metrics`` shows; if None, there is no such route.
        mcp: What answers at ``/mcp``; if None, there is no such route.
        application: The user's own, which gets ``/`` and every path that none of our routes has; None if there is none.
    """

    def __init__(
        self,
        service: InferenceService,
        jobs: Jobs | None = None,
        live: LiveFeed | None = None,
        records: Records | None = None,
        metrics: Metrics | None = None,
        mcp: ASGIApp | None = None,
        application: UserApplication | None = None,
    ) -> None:
        self._service = service
        self._access = service.access
        self._origins = service.origins
        self._cors = Cors.of(service.config)
        self._has_page = live is not None
        self._inference = InferenceRoutes(service)
        self._openai = OpenAiRoutes(service)
        self._mcp = mcp
        app = control_app(service, jobs, live, records, metrics)
        if jobs is not None:
            add_job_routes(app, jobs)
        self._control = CommonMethods(app, app.routes)
        self._routes = app.routes
        self._application = application
        if application is not None and (hidden := self._hidden_routes(application)):
            _log.warning("application_routes_hidden", application=application.name, paths=hidden)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._cors is not None and self._cors.is_preflight(scope["method"], scope["headers"]):
            await Response(status_code=204, headers=PREFLIGHT)(scope, receive, send)
            return
        own = without_trailing_slash(scope)
        if self._application is not None and not self._has_route(own):
            await self._application.handle(self._service, scope, receive, send)
            return
        scope = own
        if self._has_page and asks_for_page(scope):
            await TO_PAGE(scope, receive, send)
            return
        try:
            authenticate(self._access, scope)
        except ClientError as error:
            if is_below_openai(scope["path"]):
                await write_openai_error(send, error, [CHALLENGE] if isinstance(error, AuthenticationError) else ())
                return
            await refuse(scope, send, error)
            if (target := target_of(scope["path"])) is not None:
                self._origins.record_refusal(arrival_of(scope), error, lambda: target.model)
            return
        if is_below_openai(scope["path"]) and scope["method"] != "OPTIONS":
            await self._openai(scope, receive, send)
            return
        if self._mcp is not None and scope["path"] == MCP and scope["method"] != "OPTIONS":
            await self._mcp(scope, receive, send)
            return
        target = target_of(scope["path"])
        if target is None:
            await self._control(scope, receive, send)
        elif scope["method"] == "POST":
            await self._inference(scope, receive, send, target)
        elif scope["method"] == "OPTIONS":
            await options(_INFERENCE_METHODS)(scope, receive, send)
        else:
            headers = [JSON, (b"allow", ", ".join(_INFERENCE_METHODS).encode())]
            await write(send, 405, headers, [http_error_body("Method Not Allowed", ids_of(scope))])

    def _has_route(self, scope: Scope) -> bool:
        """Returns whether a path is one of our routes, with any method, beside an application: that has ``/``."""
        path: str = scope["path"]
        if path == "/":
            return False
        if is_openai(path) or target_of(path) is not None or (self._mcp is not None and path == MCP):
            return True
        return any(route.matches(scope)[0] is not Match.NONE for route in self._routes)

    def _hidden_routes(self, application: UserApplication) -> list[str]:
        """Returns the paths of an application that our routes hide."""
        paths = [path for route in application.routes if isinstance(path := getattr(route, "path", None), str)]
        return [path for path in paths if self._has_route({"type": "http", "method": "GET", "path": path, "headers": []})]
