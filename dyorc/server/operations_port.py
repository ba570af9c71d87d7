"""The operations port of a process without clients: liveness, readiness and metrics, without keys."""

import contextlib
from collections.abc import AsyncGenerator, Generator, Sequence

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from dyorc.config import Settings
from dyorc.errors import NotReadyError
from dyorc.gateway.http.http_server import HttpServer
from dyorc.gateway.metrics import read_process_facts
from dyorc.gateway.readiness import require_ready
from dyorc.leader_election.leadership import Leadership
from dyorc.leader_election.leadership_thread import LeadershipThread
from dyorc.models.status import StatusBoard
from dyorc.protocol import media_types
from dyorc.protocol.api_paths import LIVE, METRICS, READY
from dyorc.system.ports import bind
from dyorc.system.thread_offload import ThreadOffload
from dyorc.telemetry.metrics import catalogue
from dyorc.telemetry.metrics.exposition import exposition
from dyorc.telemetry.metrics.metric_sources import EventLoopLag, read_own
from dyorc.telemetry.metrics.readings import Readings, Source

_log = structlog.get_logger("dyorc.orchestrator")


class LeaderRole:
    """Whether an orchestrator serves. It begins as a standby, and ends as one.

    Args:
        leadership: The process's lead of its group, won or not.
    """

    def __init__(self, leadership: Leadership | LeadershipThread) -> None:
        self._leadership = leadership
        self._status: StatusBoard | None = None
        self._sources: tuple[Source, ...] = ()

    @contextlib.contextmanager
    def serving(self, status: StatusBoard, *sources: Source) -> Generator[None]:
        """Counts as serving while entered.

        Args:
            status: The programs' states.
            sources: Further metrics meanwhile.
        """
        self._status, self._sources = status, sources
        try:
            yield
        finally:
            self._status = None

    def require_ready(self) -> None:
        """Checks that it leads, and that its programs are as wanted.

        Raises:
            NotReadyError: If not.
        """
        if self._status is None:
            raise NotReadyError(f"this orchestrator does not lead group {self._leadership.group!r}; it stands by")
        require_ready(self._status)

    def measure(self, readings: Readings) -> None:
        """Adds its metrics."""
        group = self._leadership.group
        readings.add(catalogue.LEADS, self._status is not None, group)
        readings.add(catalogue.FENCE, self._leadership.fence, group)
        readings.add(catalogue.LEASE_STORE_DOWN, self._leadership.is_store_away, group)
        for source in self._sources:
            source(readings)


@contextlib.asynccontextmanager
async def serve_operations(role: LeaderRole, settings: Settings) -> AsyncGenerator[str]:
    """Serves the port while entered; yields its URL.

    Raises:
        OSError: If the address is not available.
    """
    host, port = settings.telemetry.metrics_host, settings.cluster.operations_port or 0
    config = settings.gateway.model_copy(
        update={"host": host, "port": port, "allow_open": True, "tls_certificate_file": "", "tls_client_roots_file": ""}
    )
    async with contextlib.AsyncExitStack() as stack:
        off_loop = stack.enter_context(contextlib.closing(ThreadOffload("dyorc-metrics")))
        watch = await stack.enter_async_context(EventLoopLag())
        app = _app(role, (read_own, read_process_facts, watch.measure, role.measure), off_loop)
        server = await stack.enter_async_context(HttpServer(app, config, None, listener=bind(host, port)))
        _log.info("operations", url=server.url)
        yield server.url


def _app(role: LeaderRole, sources: Sequence[Source], off_loop: ThreadOffload) -> Starlette:
    async def live(_: Request) -> Response:
        return _json({"live": True})

    async def ready(_: Request) -> Response:
        try:
            role.require_ready()
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
