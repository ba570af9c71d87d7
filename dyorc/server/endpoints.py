"""Where clients reach a server: HTTP and gRPC, with the page, metrics and jobs."""

import contextlib
import socket
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from dyorc.gateway.http.app import Gateway
from dyorc.gateway.http.direct import DirectInference
from dyorc.gateway.http.http_server import HttpServer
from dyorc.gateway.http.metrics_server import metrics_server
from dyorc.gateway.jobs.jobs import Jobs
from dyorc.gateway.live_feed import LiveFeed
from dyorc.gateway.metrics import Metrics
from dyorc.server.drain import Drain, Finish
from dyorc.server.request_pipeline import RequestPipeline
from dyorc.telemetry.metrics.event_loop_lag import EventLoopLag


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where clients reach a server.

    Attributes:
        url: Of HTTP.
        grpc_address: Empty without gRPC.
    """

    url: str
    grpc_address: str


@contextlib.asynccontextmanager
async def endpoints(
    intake: RequestPipeline, jobs: Jobs, drain: Drain, listener: socket.socket | None = None
) -> AsyncGenerator[Endpoints]:
    """Listens to clients while entered. At the end, takes nothing new, and waits for the requests in flight.

    Args:
        drain: Says for how long.
        listener: A socket that is bound already, on a port that other processes share; None takes the port of the settings.

    Raises:
        OSError: If the address is not available.
        ConfigurationError: If a certificate cannot be used.
    """
    service, config, telemetry = intake.service, intake.settings.gateway, intake.settings.telemetry
    async with contextlib.AsyncExitStack() as stack:
        metrics = None
        if telemetry.metrics:
            watch = await stack.enter_async_context(EventLoopLag())
            metrics = Metrics(service, watch.measure, jobs.measure)
        live = LiveFeed(service, jobs) if telemetry.page else None
        if live is not None and telemetry.records.max_bytes:
            intake.recording.add(live.graphs)
        gateway = Gateway(service, jobs, live, intake.records(), metrics)
        http = HttpServer(gateway, config, service.shedding, DirectInference(service), listener)
        server = await stack.enter_async_context(http)
        if metrics is not None:
            metrics.add(server.measure)
            if telemetry.metrics_port is not None:
                await stack.enter_async_context(metrics_server(metrics, telemetry, config))
        parts: list[Finish] = [server.drain, jobs.drain]
        grpc_address = ""
        if config.grpc:
            from dyorc.gateway.grpc.grpc_server import GrpcServer

            grpc = await stack.enter_async_context(GrpcServer(service, config, is_port_shared=listener is not None))
            parts.append(grpc.drain)
            grpc_address = grpc.address
        stack.push_async_callback(lambda: drain.finish(*parts))
        if live is not None:
            await stack.enter_async_context(live)  # ends first, so that the server need not wait for those that listen
        yield Endpoints(server.url, grpc_address)
