"""A server in one process but for the programs: gateway and orchestrator here, the programs on Ray or here, too.

`dyorc serve` starts this. `dyorc.server` has the pieces. Wiring only.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Sequence

from dyorc.config import Settings
from dyorc.deployment.persistence import read_record, record_writer
from dyorc.gateway.jobs.jobs import Jobs
from dyorc.gateway.tls import refuse_open_address
from dyorc.server.deployer_setup import deploying
from dyorc.server.drain import Drain
from dyorc.server.endpoints import endpoints
from dyorc.server.garbage_collector import settle_garbage_collector
from dyorc.server.peer_context import PeerContext
from dyorc.server.program_loading import deployed_beside, head_start, load_targets, run_programs
from dyorc.server.request_pipeline import request_pipeline
from dyorc.server.running_server import RunningServer
from dyorc.store.opening import store_of
from dyorc.telemetry.tracing.tracing_setup import tracing


@contextlib.asynccontextmanager
async def serve_embedded(
    targets: Sequence[str],
    settings: Settings,
    *,
    without_ray: bool = False,
    place: PeerContext | None = None,
    hurry: asyncio.Event | None = None,
) -> AsyncGenerator[RunningServer]:
    """Starts everything; programs are still loading when this yields. At the end, stops everything in reverse order.

    Args:
        targets: What to serve, e.g. ``app.py:classify``.
        without_ray: Whether all programs run in this process.
        place: Its place among other processes without Ray; None if it serves alone.
        hurry: When it is set, requests in flight are not waited for at the end.

    Raises:
        DefinitionError: If a target cannot be served, the settings have options of a program that is not there, or the store's
            setting is invalid.
        ConfigurationError: If a file named by the settings cannot be used, or the server may not listen on its address.
        LaunchError: If Ray cannot be started, or does not take the programs.
        OSError: If the address is not available.
    """
    refuse_open_address(settings.gateway)  # before anything starts
    siblings = None if place is None else place.siblings
    drain = Drain(settings.gateway.drain_timeout_s, hurry or asyncio.Event())
    async with contextlib.AsyncExitStack() as stack:
        start = stack.enter_context(head_start(settings, without_ray=without_ray))
        traces = stack.enter_context(tracing(settings.telemetry, os.environ))
        group = settings.cluster.group
        before = await read_record(store_of(settings.store), group, None if place is None else place.remembered)
        what = stack.enter_context(load_targets(targets, settings, before))
        store = store_of(settings.store)
        programs = run_programs(what, settings, start, traces, place, without_ray=without_ray)
        running = await stack.enter_async_context(programs)
        orchestrator = running.orchestrator
        inlet = stack.enter_context(request_pipeline(orchestrator, settings, siblings, traces))
        listener = None
        if place is not None:
            place.siblings.heed(orchestrator.warn)
            listener = await place.join(inlet.service, settings.gateway)
        jobs = await stack.enter_async_context(Jobs(inlet.service, store, settings.jobs))
        if jobs.is_open:
            number = 0 if siblings is None else siblings.number
            await stack.enter_async_context(orchestrator.scaler.persist_traffic(store, f"traffic/{number}"))
        keep = record_writer(store, group, before, jobs.is_open)
        quiet = inlet.service.admission.begin_epoch
        deployer = deploying(what, running, settings, quiet, siblings, keep)
        inlet.service.deployments = await stack.enter_async_context(deployer)
        deploy = await stack.enter_async_context(deployed_beside(running))
        stack.push_async_callback(drain.finish, orchestrator.finish_effects)
        ends = await stack.enter_async_context(endpoints(inlet, jobs, drain, listener))
        settle_garbage_collector()
        deploy()
        with drain:
            yield RunningServer(ends.url, ends.grpc_address, inlet.service.catalog, orchestrator.status, running.complaints)
