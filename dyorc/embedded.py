"""A server in one process but for the programs: gateway and orchestrator here, the programs on Ray or here, too.

`dyorc serve` starts this.
"""

import asyncio
import contextlib
import gc
import os
import socket
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dyorc.authoring.loading import absolute, load
from dyorc.authoring.overrides import overridden
from dyorc.authoring.program import Program
from dyorc.config import GatewayConfig, Settings, TelemetryConfig
from dyorc.gateway.catalog import Catalog
from dyorc.gateway.exposure import refuse_open_address
from dyorc.gateway.http.app import Gateway
from dyorc.gateway.http.direct import DirectInference
from dyorc.gateway.http.errors import status_of_outcome
from dyorc.gateway.http.metrics_server import metrics_server
from dyorc.gateway.http.server import HttpServer
from dyorc.gateway.jobs.jobs import Jobs
from dyorc.gateway.live import Live
from dyorc.gateway.log_control import LogControl
from dyorc.gateway.metrics import Metrics
from dyorc.gateway.origins import Origins
from dyorc.gateway.records import Records
from dyorc.gateway.service import InferenceService
from dyorc.gateway.siblings import Siblings
from dyorc.ports import bound
from dyorc.running import in_process, on_ray
from dyorc.status import StatusBoard
from dyorc.store.opening import store_of
from dyorc.telemetry.metrics.loop_watch import LoopWatch
from dyorc.telemetry.record_store import RecordStore
from dyorc.telemetry.recording import Recording
from dyorc.telemetry.request_log import RequestLog
from dyorc.telemetry.tracing.starting import tracing

if TYPE_CHECKING:
    from dyorc.cells.notes import Notes

_LOOK_AGAIN_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A process among others that serve the same on the same ports.

    Attributes:
        siblings: The others.
        num_cells: How many there are in all.
        remembered: What they want this one to know.
        notes: Where it is noted what runs, for others to read if this process crashes.
        listener: A socket on which others have listened before, in place of one that shares the port.
        listens_when_ready: Whether no request should come before the programs are ready, since others serve meanwhile.
    """

    siblings: Siblings
    num_cells: int = 1
    remembered: Any = None
    notes: "Notes | None" = None
    listener: socket.socket | None = None
    listens_when_ready: bool = False


@dataclass(frozen=True)
class Embedded:
    """A running server."""

    url: str
    grpc_address: str
    """Empty without gRPC."""
    catalog: Catalog
    status: StatusBoard
    complaints: Callable[[], Awaitable[Mapping[str, str]]]
    """Returns what keeps programs from starting."""

    async def wait_until_ready(self, changed_s: float = 0.25) -> AsyncIterator[Mapping[str, str]]:
        """Yields complaints at every change, and every `changed_s` seconds, until all programs are ready."""
        complaints: Mapping[str, str] = {}
        num_rounds = 0
        while not self.status.is_ready:
            await self.status.wait_for_change(changed_s)
            num_rounds += 1
            if num_rounds % 20 == 0:
                complaints = await self.complaints()
            yield complaints
        _settle_garbage_collector()


@contextlib.asynccontextmanager
async def serve_embedded(
    targets: Sequence[str], settings: Settings, *, without_ray: bool = False, place: Place | None = None
) -> AsyncGenerator[Embedded]:
    """Starts everything; programs are still loading when this yields. At the end, stops everything in reverse order.

    Args:
        targets: What to serve, e.g. ``app.py:classify``.
        without_ray: Whether all programs run in this process.
        place: Its place among other processes without Ray; None if it serves alone.

    Raises:
        DefinitionError: If a target cannot be served, the settings have options of a program that is not there, or the store's
            setting is invalid.
        ConfigurationError: If a file named by the settings cannot be used, or the server may not listen on its address.
        LaunchError: If Ray cannot be started, or does not take the programs.
        OSError: If the address is not available.
    """
    refuse_open_address(settings.gateway)  # before anything starts
    async with contextlib.AsyncExitStack() as stack:
        start = None
        if not without_ray and not settings.deployment.ray_address:
            from dyorc.launcher.head_start import HeadStart

            # Ray reads its environment when a module imports it: a Ray of our own has to set it before that.
            start = stack.enter_context(HeadStart())
        traces = stack.enter_context(tracing(settings.telemetry, os.environ))
        modules = frozenset(sys.modules)
        catalog, places = _load(targets)
        stack.enter_context(overridden(places, {name: one.changes for name, one in settings.programs.items()}))
        store = store_of(settings.store)
        num_cells = 1 if place is None else place.num_cells
        if without_ray:
            backend = in_process(places, settings, num_cells, None if place is None else place.notes, traces)
        else:
            from dyorc.launcher.libraries import Imports

            backend = on_ray(places, settings, Imports.since(modules, targets), start, traces)
        running = await stack.enter_async_context(backend)
        siblings = None if place is None else place.siblings
        recording = Recording(settings.telemetry.records)
        if traces is not None:
            recording.add(traces.tracer)
        config = settings.telemetry
        requests = RequestLog(config.logs.requests, config.records.slow_s, status_of_outcome)
        origins = Origins(recording, None if traces is None else traces.tracer, requests)
        service = InferenceService(catalog, running.orchestrator, settings.gateway, siblings, origins)
        stack.enter_context(contextlib.closing(service))
        service.whole.control_logs(LogControl(config.logs, requests, recording, running.orchestrator.set_logs))
        listener = None
        if place is not None:
            place.siblings.heed(running.orchestrator.warn)
            listener = await _settle_in(place, service, settings.gateway)
        jobs = await stack.enter_async_context(Jobs(service, store, settings.jobs))
        if jobs.is_open:
            number = 0 if siblings is None else siblings.number
            await stack.enter_async_context(running.orchestrator.scaler.remembering(store, f"traffic/{number}"))
        metrics = None
        if settings.telemetry.metrics:
            watch = await stack.enter_async_context(LoopWatch())
            metrics = Metrics(service, watch.measure, jobs.measure)
        live = Live(service, jobs) if settings.telemetry.page else None
        if live is not None and settings.telemetry.records.max_bytes:
            recording.add(live.graphs)
        gateway = Gateway(service, jobs, live, _records(settings.telemetry, recording, service), metrics)
        http = HttpServer(gateway, settings.gateway, service.shedding, DirectInference(service), listener)
        server = await stack.enter_async_context(http)
        if metrics is not None:
            metrics.add(server.measure)
            if settings.telemetry.metrics_port is not None:
                await stack.enter_async_context(metrics_server(metrics, settings.telemetry, settings.gateway))
        if live is not None:
            await stack.enter_async_context(live)  # ends first, so that the server need not wait for those that listen
        grpc_address = ""
        if settings.gateway.grpc:
            from dyorc.gateway.grpc.server import GrpcServer

            grpc_address = (
                await stack.enter_async_context(GrpcServer(service, settings.gateway, is_port_shared=place is not None))
            ).address
        _settle_garbage_collector()
        await stack.enter_async_context(_beside(running.deploy))
        yield Embedded(server.url, grpc_address, catalog, running.orchestrator.status, running.complaints)


def _records(config: TelemetryConfig, recording: Recording, service: InferenceService) -> Records | None:
    """Has records of requests kept, if there is to be any memory for them."""
    if not config.records.max_bytes:
        return None
    store = RecordStore(config.records)
    recording.add(store)
    return Records(store, service.siblings)


async def _settle_in(place: Place, service: InferenceService, config: GatewayConfig) -> socket.socket:
    """Learns what the other processes know, and returns where to listen."""
    service.whole.restore(place.remembered or {})
    status = service.backend.status
    while place.listens_when_ready and not status.is_ready and not status.is_failing:
        await status.wait_for_change(_LOOK_AGAIN_S)
    return place.listener or bound(config.host, config.port, is_shared=True)


@contextlib.asynccontextmanager
async def _beside(deploy: Callable[[], Awaitable[None]]) -> AsyncGenerator[None]:
    """Deploys while entered. If that fails, what runs inside is cancelled, and the error raised.

    Programs can be ready long before Ray, which only looks after them.
    """

    async def run() -> None:
        await deploy()
        gc.freeze()  # Ray's objects, too

    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(run())
            yield
            task.cancel()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


def _load(targets: Sequence[str]) -> tuple[Catalog, dict[Program, str]]:
    """Returns what is to be served, and each program with the target from which its replicas load it."""
    places: dict[Program, str] = {}
    found = [load(target) for target in targets]
    catalog = Catalog.of(found)
    for target, one in zip(targets, found, strict=True):
        for program in (one,) if isinstance(one, Program) else one.programs:
            places.setdefault(program, absolute(target))
    return catalog, places


def _settle_garbage_collector() -> None:
    """Keeps the collector away from objects that live as long as the process.

    Requests leave no cycles behind (the engine cuts them), so there is little to find; without this, a tenth of the time went
    into walking over Ray's half a million objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
