"""An orchestrator's process: stands by until it leads its group, then serves gateways until a signal stops it. Wiring only."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, Callable, Sequence

from rich.console import Console

from dyorc.cluster.gateway_server import GatewayServer
from dyorc.config import Settings
from dyorc.errors import LeadLostError
from dyorc.leader_election.leader import LeaderTerm
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.server.cluster_setup import leadership_of, network_of, shared_store
from dyorc.server.group_deployments import load_inherited, read_deployed, serve_deployments, wait_for_deployed
from dyorc.server.loading_progress import show_progress
from dyorc.server.operations_port import LeaderRole, serve_operations
from dyorc.server.program_loading import connect_ahead, deploy_in_background, head_start, load_targets, run_programs
from dyorc.server.running_server import until_ready
from dyorc.server.stop_signals import Drain, StopSignals, before, handle_pending_signals
from dyorc.system.linux_only import require_linux
from dyorc.system.owned_folder import owned_folder
from dyorc.telemetry.histories.history_folder import check_folder
from dyorc.telemetry.histories.history_recorder import HistoryRecorder, recording_histories
from dyorc.telemetry.tracing.tracer import tracing
from dyorc.transport.cluster_network import NodeNetwork


async def serve_group(
    targets: Sequence[str], settings: Settings, console: Console, signals: StopSignals, has_started: Callable[[], None]
) -> None:
    """Serves until a signal stops it. Before it leads its group and has started, only a cancellation stops it.

    Args:
        has_started: Called once it leads and has started.

    Raises:
        DefinitionError, ConfigurationError: If a target cannot be served, or the settings do not fit together.
        LaunchError, TransportError, OSError: If Ray cannot be used, or an address cannot be listened on.
        LeadLostError: If another orchestrator leads the group now, or the store has lost the leases of earlier leaders.
    """
    require_linux("an orchestrator apart from its gateways needs", "`dyorc serve --in-process` does both in one process")
    cluster, without_ray = settings.cluster, settings.in_process
    network = network_of(cluster)
    check_folder(settings.telemetry.histories)  # not only once it leads
    async with contextlib.AsyncExitStack() as stack:
        start = stack.enter_context(head_start(settings, without_ray=without_ray))
        traces = stack.enter_context(tracing(settings.telemetry, os.environ))
        store = await stack.enter_async_context(shared_store(settings))
        deployed = await read_deployed(store, cluster.group)
        await handle_pending_signals()
        served = stack.enter_context(load_targets(targets, settings, deployed))
        leadership = await stack.enter_async_context(leadership_of(settings))
        role = LeaderRole(leadership)
        if cluster.operations_port is not None:
            console.print(f"Operations on {await stack.enter_async_context(serve_operations(role, settings))}")
        await connect_ahead(settings, without_ray=without_ray)
        console.print(f"Standing by for group {cluster.group!r}")
        try:
            await leadership.win()
        except asyncio.CancelledError:
            console.print("Stopping ...")
            raise
        began_s = time.monotonic()
        inherited = await wait_for_deployed(store, leadership.lead)
        if inherited is None:
            raise LeadLostError(await leadership.wait_until_lost())
        served = stack.enter_context(load_inherited(served, inherited, settings))
        running = await stack.enter_async_context(
            run_programs(served, settings, start, traces, without_ray=without_ray, lead=leadership.lead, network=network)
        )
        orchestrator = running.orchestrator
        await stack.enter_async_context(orchestrator.scaler.persist_traffic(store, f"traffic/{cluster.group}"))
        histories = stack.enter_context(recording_histories(settings.telemetry.histories))
        listening = gateway_listener(orchestrator, settings, leadership.lead, network, histories)
        gateways = await stack.enter_async_context(listening)
        changes = serve_deployments(served, running, settings, gateways, store, leadership.lead, inherited.record)
        await stack.enter_async_context(changes)
        leadership.announce(gateways.address, running.address, orchestrator.tensors.exchange.holder.node)
        sources = (orchestrator.measure,) if histories is None else (orchestrator.measure, histories.measure)
        stack.enter_context(role.serving(orchestrator.status, *sources))
        deploy = await stack.enter_async_context(deploy_in_background(running))
        has_started()
        deploy()
        console.print(f"Leads group {cluster.group!r} with fence {leadership.fence}, gateways dial in at {gateways.address}")

        async def report_ready() -> None:
            await show_progress(console, orchestrator.status, until_ready(orchestrator.status, running.complaints))
            models = ", ".join(sorted({offer.name for offer in orchestrator.offers.all}))
            console.print(f"Ready after {time.monotonic() - began_s:.1f} s. Models: {models or 'none'}. Ctrl-C stops.")

        async def serve() -> str:
            lost, is_lost = asyncio.ensure_future(leadership.wait_until_lost()), asyncio.Event()
            lost.add_done_callback(lambda _: is_lost.set())
            try:
                await before(is_lost, report_ready())  # once the lead is lost, replicas go to the next leader: it is never ready
                return await lost
            finally:
                lost.cancel()

        if not await before(signals.stop, serve()):
            console.print("Stopping ...")
            await Drain(settings.gateway.drain_timeout_s, signals.hurry).finish(gateways.drain)
            return
    raise LeadLostError(await leadership.wait_until_lost())


@contextlib.asynccontextmanager
async def gateway_listener(
    orchestrator: Orchestrator, settings: Settings, lead: LeaderTerm, network: NodeNetwork | None,
    histories: HistoryRecorder | None = None,
) -> AsyncGenerator[GatewayServer]:  # fmt: skip
    """Lets gateways dial in while entered.

    Args:
        network: How this process reaches other machines; without any, gateways use a Unix socket that only this user can reach.
        histories: Records the histories of their requests; None: nothing does.

    Raises:
        TransportError: If the address cannot be listened on.
    """
    with owned_folder("dyorc-gateways-") as folder:
        if network is None:
            address, keys = f"unix://{folder}/gateways", None
        else:
            host = f"[{network.host}]" if ":" in network.host else network.host
            address, keys = f"tcp://{host}:{settings.cluster.port or '*'}", network.secrets.keys
        timeout_s = settings.engine.request_timeout_s
        server = GatewayServer(
            orchestrator, address, settings.link, default_timeout_s=timeout_s, keys=keys, lead=lead, histories=histories
        )  # fmt: skip
        async with server as gateways:
            yield gateways
