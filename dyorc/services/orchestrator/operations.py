"""The operations port of a process without clients: does it live, is it ready, and its metrics. Nobody needs a key."""

import contextlib
from collections.abc import AsyncGenerator, Sequence

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dyorc.config import Settings
from dyorc.errors import NotReadyError
from dyorc.gateway.http.server import HttpServer
from dyorc.gateway.metrics import read_start
from dyorc.off_loop import ThreadOffload
from dyorc.ports import bind
from dyorc.protocol import media_types
from dyorc.protocol.routes import LIVE, METRICS, READY
from dyorc.services.orchestrator.leader_role import LeaderRole
from dyorc.telemetry.metrics.exposition import exposition
from dyorc.telemetry.metrics.loop_watch import LoopWatch
from dyorc.telemetry.metrics.process_source import read_own
from dyorc.telemetry.metrics.readings import Readings, Source

_log = structlog.get_logger("dyorc.orchestrator")


@contextlib.asynccontextmanager
async def operations(duty: LeaderRole, settings: Settings) -> AsyncGenerator[str]:
    """Serves that port while entered; yields its URL.

    Raises:
        OSError: If the address is not available.
    """
    host, port = settings.telemetry.metrics_host, settings.cluster.operations_port or 0
    config = settings.gateway.model_copy(
        update={"host": host, "port": port, "allow_open": True, "tls_certificate_file": "", "tls_client_roots_file": ""}
    )
    async with contextlib.AsyncExitStack() as stack:
        off_loop = stack.enter_context(contextlib.closing(ThreadOffload("dyorc-metrics")))
        watch = await stack.enter_async_context(LoopWatch())
        app = _app(duty, (read_own, read_start, watch.measure, duty.measure), off_loop)
        server = await stack.enter_async_context(HttpServer(app, config, None, listener=bind(host, port)))
        _log.info("operations", url=server.url)
        yield server.url


def _app(duty: LeaderRole, sources: Sequence[Source], off_loop: ThreadOffload) -> Starlette:
    async def live(_: Request) -> Response:
        return _json({"live": True})

    async def ready(_: Request) -> Response:
        try:
            duty.require_ready()
        except NotReadyError as error:
            return _json({"error": str(error), "code": error.code}, 503)
        return _json({"ready": True})

    async def metrics(request: Request) -> Response:
        readings = Readings()
        for source in sources:
            source(readings)
        text, content_type = await off_loop.run(exposition, readings, request.headers.get("accept", ""))
        return Response(text, headers={"Content-Type": content_type})

    return Starlette(routes=[Route(LIVE, live), Route(READY, ready), Route(METRICS, metrics)])


def _json(body: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status, media_type=media_types.JSON)
