"""A server in one process: gateway and orchestrator here, programs here too or on Ray. `dyorc serve` starts it. Wiring only."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Sequence

from dyorc.config import Settings
from dyorc.deployment.canary_runner import CanaryRunner
from dyorc.deployment.persistence import owner_of_notes, recall_record, record_reader, record_writer, wait_for_record
from dyorc.gateway.http.user_application import load_application
from dyorc.gateway.jobs.jobs import Jobs
from dyorc.gateway.tls import refuse_open_address
from dyorc.server.cluster_setup import shared_store
from dyorc.server.peer_context import PeerContext
from dyorc.server.program_loading import deploy_in_background, head_start, load_targets, run_deployer, run_programs
from dyorc.server.request_pipeline import request_pipeline, serve_endpoints
from dyorc.server.running_server import RunningServer
from dyorc.server.stop_signals import Drain, handle_pending_signals
from dyorc.system.garbage_collector import settle_garbage_collector
from dyorc.telemetry.histories.history_folder import check_folder
from dyorc.telemetry.histories.history_recorder import recording_histories
from dyorc.telemetry.tracing.tracer import tracing


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

    It first waits for the store, which knows what is to be served.

    Args:
        targets: What to serve, e.g. ``app.py:classify``.
        without_ray: Whether all programs run in this process.
        place: This process among others without Ray; None if it serves alone.
        hurry: Once it is set, the end does not wait for requests in flight.

    Raises:
        DefinitionError: If a target or the application cannot be served, the settings have options of an unknown program, or the
            store's setting is invalid.
        ConfigurationError: If a file named by the settings cannot be used, the store cannot be opened or read, the server may not
            listen on its address, or Ray is to run the programs on another system than Linux.
        LaunchError: If Ray cannot be started, or does not take the programs.
        OSError: If the address is not available.
    """
    refuse_open_address(settings.gateway)  # before anything starts
    check_folder(settings.telemetry.histories)
    siblings = None if place is None else place.siblings
    drain = Drain(settings.gateway.drain_timeout_s, hurry or asyncio.Event())
    async with contextlib.AsyncExitStack() as stack:
        start = stack.enter_context(head_start(settings, without_ray=without_ray))
        traces = stack.enter_context(tracing(settings.telemetry, os.environ))
        owner = owner_of_notes(settings.cluster.group, targets)
        store = await stack.enter_async_context(shared_store(settings))
        remembered = recall_record(siblings)
        before = await wait_for_record(store, owner, remembered)
        running_code = {} if remembered is None else remembered.code_as_started()
        await handle_pending_signals()
        served = stack.enter_context(load_targets(targets, settings, before, code=running_code, is_group=False))
        application = load_application(settings.app) if settings.app else None
        programs = run_programs(served, settings, start, traces, place, without_ray=without_ray)
        running = await stack.enter_async_context(programs)
        orchestrator = running.orchestrator
        histories = stack.enter_context(recording_histories(settings.telemetry.histories))
        pipeline = stack.enter_context(request_pipeline(orchestrator, settings, siblings, traces, histories))
        service, listener = pipeline.service, None
        if place is not None:
            place.siblings.on_warning(orchestrator.warn)
            listener = await place.join(service, settings.gateway)
        jobs = await stack.enter_async_context(Jobs(service, store, settings.jobs, is_store_open=True))
        number = 0 if siblings is None else siblings.number
        await stack.enter_async_context(orchestrator.scaler.persist_traffic(store, f"traffic/{owner}/{number}"))
        read, keep = record_reader(store, owner, before, served.record), record_writer(store, owner)
        deploying = run_deployer(
            served, running, settings, service.admission.begin_epoch, siblings, keep, read, can_judge=True
        )  # fmt: skip
        deployer = service.deployments = await stack.enter_async_context(deploying)
        is_first = siblings is None or siblings.number == 0
        judge = CanaryRunner(deployer, service.versions.counts, settings.deployment.judge_interval_s, is_in_charge=is_first)
        service.server_view.add_report_part("canaries", judge.report)
        service.server_view.add_report_part("deploying", deployer.work)
        await stack.enter_async_context(judge)
        deploy = await stack.enter_async_context(deploy_in_background(running))
        stack.push_async_callback(drain.finish, orchestrator.finish_effects)
        endpoints = await stack.enter_async_context(serve_endpoints(pipeline, jobs, drain, listener, application))
        settle_garbage_collector()
        deploy()
        with drain:
            yield RunningServer(endpoints.url, endpoints.grpc_address, service.catalog, orchestrator.status, running.complaints)
