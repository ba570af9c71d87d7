"""A server in one process but for the programs: gateway and orchestrator here, the programs on Ray or here, too.

`dyorc serve` starts this. `dyorc.services` has the pieces. Wiring only.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Sequence

from dyorc.config import Settings
from dyorc.deploying.keeping import keeping, noted
from dyorc.gateway.exposure import refuse_open_address
from dyorc.gateway.jobs.jobs import Jobs
from dyorc.services.collector import settle_garbage_collector
from dyorc.services.deployments import deploying
from dyorc.services.drain import Drain
from dyorc.services.endpoints import endpoints
from dyorc.services.intake import intake
from dyorc.services.place import Place
from dyorc.services.programs import deployed_beside, head_start, loaded, run_programs
from dyorc.services.served import Served
from dyorc.store.opening import store_of
from dyorc.telemetry.tracing.starting import tracing


@contextlib.asynccontextmanager
async def serve_embedded(
    targets: Sequence[str],
    settings: Settings,
    *,
    without_ray: bool = False,
    place: Place | None = None,
    hurry: asyncio.Event | None = None,
) -> AsyncGenerator[Served]:
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
        before = await noted(store_of(settings.store), group, None if place is None else place.remembered)
        what = stack.enter_context(loaded(targets, settings, before))
        store = store_of(settings.store)
        programs = run_programs(what, settings, start, traces, place, without_ray=without_ray)
        running = await stack.enter_async_context(programs)
        orchestrator = running.orchestrator
        inlet = stack.enter_context(intake(orchestrator, settings, siblings, traces))
        listener = None
        if place is not None:
            place.siblings.heed(orchestrator.warn)
            listener = await place.settle_in(inlet.service, settings.gateway)
        jobs = await stack.enter_async_context(Jobs(inlet.service, store, settings.jobs))
        if jobs.is_open:
            number = 0 if siblings is None else siblings.number
            await stack.enter_async_context(orchestrator.scaler.remembering(store, f"traffic/{number}"))
        keep = keeping(store, group, before, jobs.is_open)
        quiet = inlet.service.admission.begin_era
        deployer = deploying(what, running, settings, quiet, siblings, keep)
        inlet.service.deployments = await stack.enter_async_context(deployer)
        deploy = await stack.enter_async_context(deployed_beside(running))
        stack.push_async_callback(drain.finish, orchestrator.finish_effects)
        ends = await stack.enter_async_context(endpoints(inlet, jobs, drain, listener))
        settle_garbage_collector()
        deploy()
        with drain:
            yield Served(ends.url, ends.grpc_address, inlet.service.catalog, orchestrator.status, running.complaints)
