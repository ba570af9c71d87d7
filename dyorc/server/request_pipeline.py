"""What takes requests in: the service behind HTTP, gRPC and jobs, the records of requests, and the endpoints for clients."""

import contextlib
import socket
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dyorc.config import GatewayConfig, Settings
from dyorc.gateway.backend import Backend
from dyorc.gateway.codec.http_errors import status_of_outcome
from dyorc.gateway.http.app import Gateway
from dyorc.gateway.http.direct import DirectInference
from dyorc.gateway.http.http_server import HttpServer
from dyorc.gateway.http.metrics_server import metrics_server
from dyorc.gateway.http.user_application import UserApplication
from dyorc.gateway.jobs.jobs import Jobs
from dyorc.gateway.live_feed import LiveFeed
from dyorc.gateway.log_control import LogControl
from dyorc.gateway.metrics import Metrics
from dyorc.gateway.origins import Origins
from dyorc.gateway.peer_processes import PeerProcesses
from dyorc.gateway.request_records import Records
from dyorc.gateway.service import InferenceService
from dyorc.server.stop_signals import Drain, Finish
from dyorc.system.extras import require
from dyorc.telemetry.histories.history_recorder import HistoryRecorder
from dyorc.telemetry.metrics.metric_sources import EventLoopLag
from dyorc.telemetry.record_store import RecordStore
from dyorc.telemetry.recording import Recording
from dyorc.telemetry.request_log import RequestLog
from dyorc.telemetry.tracing.tracer import TraceOutput

if TYPE_CHECKING:
    from dyorc.gateway.grpc.grpc_server import GrpcServer
    from dyorc.gateway.grpc.http2_server import Http2Server
    from dyorc.gateway.http.mcp_door import McpDoor


@dataclass(frozen=True, slots=True)
class RequestPipeline:
    """Where requests come in.

    Attributes:
        service: Runs the requests.
        recording: Passes on the record of each request that has ended.
        settings: All settings of the process.
        histories: Records histories; None: they are off.
    """

    service: InferenceService
    recording: Recording
    settings: Settings
    histories: HistoryRecorder | None = None

    def records(self) -> Records | None:
        """Begins to keep records of requests, if the settings give them memory."""
        config = self.settings.telemetry.records
        if not config.max_bytes:
            return None
        store = RecordStore(config)
        self.recording.add(store)
        return Records(store, self.service.peers)


@contextlib.contextmanager
def request_pipeline(
    backend: Backend, settings: Settings, siblings: PeerProcesses | None, traces: TraceOutput | None,
    histories: HistoryRecorder | None = None,
) -> Generator[RequestPipeline]:  # fmt: skip
    """Takes requests in while entered.

    Args:
        backend: Runs the requests.
        siblings: The other processes of the same server; None without any.
        traces: Where spans go; None if nothing is traced.
        histories: Records histories; None: they are off, or recorded where the engine is.

    Raises:
        ConfigurationError: If the file of tenants cannot be used.
    """
    config = settings.telemetry
    recording = Recording(config.records)
    if traces is not None:
        recording.add(traces.tracer)
    requests = RequestLog(config.logs.requests, config.records.slow_s, status_of_outcome)
    origins = Origins(recording, None if traces is None else traces.tracer, histories)
    with contextlib.closing(InferenceService(backend, settings.gateway, siblings, origins)) as service:
        service.server_view.control_logs(LogControl(config.logs, requests, recording, backend.set_logs))
        yield RequestPipeline(service, recording, settings, histories)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where clients reach a server.

    Attributes:
        url: For HTTP.
        grpc_address: Empty without gRPC.
    """

    url: str
    grpc_address: str


class GatewayParts(NamedTuple):
    """The HTTP application, and what belongs to it.

    Attributes:
        metrics: What it counts; None if that is off.
        live: What its page shows, to be entered as long as it is served; None without a page.
    """

    gateway: Gateway
    metrics: Metrics | None
    live: LiveFeed | None


@contextlib.asynccontextmanager
async def gateway_parts(
    pipeline: RequestPipeline, jobs: Jobs, application: UserApplication | None = None
) -> AsyncGenerator[GatewayParts]:
    """Makes the HTTP application, which can answer while entered.

    Args:
        application: The user's own beside it; started here.

    Raises:
        ConfigurationError: If the application's startup fails.
        MissingLibraryError: If a setting needs one.
    """
    service, config, telemetry = pipeline.service, pipeline.settings.gateway, pipeline.settings.telemetry
    async with contextlib.AsyncExitStack() as stack:
        metrics = None
        if telemetry.metrics:
            watch = await stack.enter_async_context(EventLoopLag())
            metrics = Metrics(service, watch.measure, jobs.measure)
            if pipeline.histories is not None:
                metrics.add(pipeline.histories.measure)
        live = LiveFeed(service, jobs) if telemetry.page else None
        if live is not None and telemetry.records.max_bytes:
            pipeline.recording.add(live.graphs)
        mcp = await stack.enter_async_context(mcp_door(service)) if config.mcp else None
        if application is not None:
            await stack.enter_async_context(application)
        yield GatewayParts(Gateway(service, jobs, live, pipeline.records(), metrics, mcp, application), metrics, live)


@contextlib.asynccontextmanager
async def serve_endpoints(
    pipeline: RequestPipeline,
    jobs: Jobs,
    drain: Drain,
    listener: socket.socket | None = None,
    application: UserApplication | None = None,
) -> AsyncGenerator[Endpoints]:
    """Serves clients by HTTP and gRPC while entered, with the page and metrics. At the end, takes no new requests and waits for
    those in flight.

    Args:
        drain: Limits that wait.
        listener: A bound socket, on a port that other processes share; None listens on the port of the settings.
        application: The user's own beside our routes.

    Raises:
        OSError: If the address is not available.
        ConfigurationError: If a certificate cannot be used, or the application's startup fails.
    """
    service, config, telemetry = pipeline.service, pipeline.settings.gateway, pipeline.settings.telemetry
    async with contextlib.AsyncExitStack() as stack:
        gateway, metrics, live = await stack.enter_async_context(gateway_parts(pipeline, jobs, application))
        http = HttpServer(gateway, config, service.shedding, DirectInference(service), listener)
        server = await stack.enter_async_context(http)
        if metrics is not None:
            metrics.add(server.measure)
            if telemetry.metrics_port is not None:
                await stack.enter_async_context(metrics_server(metrics, telemetry, config))
        parts: list[Finish] = [server.drain, jobs.drain]
        grpc_address = ""
        if config.grpc:
            grpc = await stack.enter_async_context(grpc_server(service, config, is_port_shared=listener is not None))
            parts.append(grpc.drain)
            grpc_address = grpc.address
        server.fit_connections()
        stack.push_async_callback(lambda: drain.finish(*parts))
        if live is not None:
            await stack.enter_async_context(live)  # ends first, so that the server need not wait for its listeners
        yield Endpoints(server.url, grpc_address)


def grpc_server(service: InferenceService, config: GatewayConfig, *, is_port_shared: bool = False) -> "GrpcServer | Http2Server":
    """Returns what answers gRPC while entered.

    Raises:
        MissingLibraryError: If the setting `gateway.grpc_server` needs one that is not installed.
    """
    if config.grpc_server == "nghttp2" and not config.tls_certificate_file:
        require("nghttp", "the setting gateway.grpc_server", "or set it to grpcio")
        from dyorc.gateway.grpc.http2_server import Http2Server

        return Http2Server(service, config, is_port_shared=is_port_shared)
    from dyorc.gateway.grpc.grpc_server import GrpcServer

    return GrpcServer(service, config, is_port_shared=is_port_shared)


def mcp_door(service: InferenceService) -> "McpDoor":
    """Returns what answers at ``/mcp``.

    Raises:
        MissingLibraryError: If the SDK is not installed.
    """
    require("mcp", "the setting gateway.mcp")
    from dyorc.gateway.http.mcp_door import McpDoor

    return McpDoor(service)
