"""Loads the user's modules, runs their programs, and deploys further versions. For the composition roots that run an engine."""

import asyncio
import contextlib
import gc
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dyorc.authoring.bundles import Bundle
from dyorc.authoring.targets import NOTHING_READ
from dyorc.config import Settings
from dyorc.deployment.deployer import Deployer, Keep, Read
from dyorc.deployment.initial_versions import load_initial_versions
from dyorc.deployment.loaded_versions import LoadedVersions, Places, ServerRuntime
from dyorc.deployment.loading_versions import LoadedVersion as LoadedVersion
from dyorc.deployment.peers import DeploymentPeers
from dyorc.deployment.state import DeploymentState, Version
from dyorc.gateway.peer_processes import NoPeers, PeerProcesses
from dyorc.leader_election.leader import LeaderTerm
from dyorc.models.offers import ModelKey
from dyorc.models.registry import ModelRegistry
from dyorc.models.submission import BeginEpoch
from dyorc.server.peer_context import PeerContext
from dyorc.server.runtime import for_gateways, in_process, on_ray
from dyorc.store.opening import shown_name_of
from dyorc.system import extras
from dyorc.system.garbage_collector import pause_garbage_collector
from dyorc.system.linux_only import require_linux
from dyorc.telemetry.tracing.tracer import TraceOutput
from dyorc.transport.cluster_network import NodeNetwork

if TYPE_CHECKING:
    from dyorc.ray_serve.ray_home import HeadStart


@dataclass(frozen=True, slots=True)
class LoadedTargets:
    """What the user's modules define.

    Attributes:
        targets: As given, such as ``app.py:classify``.
        repertoire: The workflows and programs.
        places: Each program, with the place where its replicas find it.
        modules: Names of the modules that were imported before the user's.
        versions: The loaded versions: first those on offer, then retired ones that earlier requests still need.
        record: What is deployed.
        is_group: Whether an orchestrator serves it for the gateways of its group.
    """

    targets: Sequence[str]
    repertoire: ModelRegistry
    places: Places
    modules: frozenset[str]
    versions: Sequence[LoadedVersion]
    record: DeploymentState
    is_group: bool = True


def require_ray() -> None:
    """Returns if replicas can run on Ray here.

    Raises:
        MissingLibraryError: If Ray is not installed.
        ConfigurationError: On another system than Linux.
    """
    require_linux("replicas on Ray need", "serve with --in-process")
    extras.require("ray", "serving with replicas in processes of their own", "or serve with --in-process, which needs no Ray")


@contextlib.contextmanager
def head_start(settings: Settings, *, without_ray: bool) -> Generator["HeadStart | None"]:
    """Prepares our own Ray, if the server needs one. Enter it before anything else: Ray reads its environment when a module
    imports it, so the environment must be set before that.

    Raises:
        MissingLibraryError: If the server needs a Ray, its own or an existing one, and Ray is not installed.
    """
    if without_ray:
        yield None
        return
    require_ray()
    if settings.deployment.ray_address:
        yield None
        return
    from dyorc.ray_serve.ray_home import HeadStart

    with HeadStart() as start:
        yield start


async def connect_ahead(settings: Settings, *, without_ray: bool) -> None:
    """Connects a standby orchestrator to the Ray cluster, if there is one, so that it can lead at once when its turn comes.

    Raises:
        LaunchError: If Ray cannot be reached.
    """
    if without_ray or not settings.deployment.ray_address:
        return
    from dyorc.ray_serve.ray_connection import connect, disconnect, start_with_retry

    await start_with_retry(
        f"standing by on {settings.deployment.ray_address}", lambda: connect(settings), disconnect, max_attempts=1
    )


@contextlib.contextmanager
def load_targets(
    targets: Sequence[str],
    settings: Settings,
    stored: DeploymentState | None = None,
    live: Sequence[Version] = (),
    code: Mapping[str, Bundle] = NOTHING_READ,
    *,
    is_group: bool = True,
) -> Generator[LoadedTargets]:
    """Imports the targets. While entered, their programs have the options of the settings.

    Args:
        targets: Such as ``app.py:classify``.
        stored: What was deployed when the server last ran.
        live: Versions that requests of gateways may still need.
        code: See `load_initial_versions`.
        is_group: See `load_initial_versions`.

    Raises:
        DefinitionError: If a target cannot be served, or the settings have options of an unknown program.
    """
    modules = frozenset(sys.modules)
    options = {name: overrides.changes for name, overrides in settings.programs.items()}
    store = shown_name_of(settings.store)
    loading = load_initial_versions(
        targets, stored or DeploymentState(), options, live, pause_garbage_collector, store, code, is_group=is_group
    )
    with loading as (versions, record):
        lingering = {ModelKey(version.model, version.version) for version in record.retired_of(live)}
        offered = [part for version in versions for part in version.parts if version.key not in lingering]
        kept = [part for version in versions for part in version.parts if version.key in lingering]
        repertoire = ModelRegistry.of_parts(offered, kept)
        first = {program: version for version in reversed(versions) for program in version.programs.values()}
        places = {program: first[program].source(program) for program in repertoire.programs}
        yield LoadedTargets(targets, repertoire, places, modules, versions, record, is_group)


@contextlib.asynccontextmanager
async def run_programs(
    served: LoadedTargets, settings: Settings, start: "HeadStart | None", traces: TraceOutput | None,
    place: PeerContext | None = None, *, without_ray: bool, lead: LeaderTerm | None = None, network: NodeNetwork | None = None,
) -> AsyncGenerator[ServerRuntime]:  # fmt: skip
    """Runs programs, and the engine that calls them, while entered.

    Args:
        start: From `head_start`.
        traces: Where spans go; None if nothing is traced.
        place: This process among others without Ray; None if it is alone.
        lead: Its lead of a group, for whose gateways it runs them; None if it leads no group.
        network: How this process reaches other machines; None without any.

    Raises:
        LaunchError: If Ray cannot be started.
        TransportError: If no arena can be made, or replicas cannot be listened to.
    """
    if without_ray and lead is not None:
        running = for_gateways(served.repertoire, settings, network, traces)
    elif without_ray:
        num_cells, notes = (1, None) if place is None else (place.num_cells, place.notes)
        running = in_process(served.repertoire, settings, num_cells, notes, traces)
    else:
        from dyorc.ray_serve.user_imports import UserImports

        imports = UserImports.since(served.modules, served.targets)
        running = on_ray(served.repertoire, served.places, settings, imports, start, traces, lead)
    async with running as runtime:
        yield runtime


@contextlib.asynccontextmanager
async def deploy_in_background(running: ServerRuntime) -> AsyncGenerator[Callable[[], None]]:
    """Yields a function that begins to deploy. If deploying fails, the body is cancelled and the error raised.

    Programs can be ready long before Ray, which only supervises them. Requests that wait for programs can only finish while this
    is entered. Leaving it may take seconds, since Ray's start cannot be interrupted.
    """
    is_wanted = asyncio.Event()

    async def run() -> None:
        await is_wanted.wait()
        await running.deploy()
        gc.freeze()  # Ray's objects, too

    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(run())
            yield is_wanted.set
            task.cancel()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


@contextlib.asynccontextmanager
async def run_deployer(
    served: LoadedTargets,
    running: ServerRuntime,
    settings: Settings,
    begin_epoch: BeginEpoch,
    siblings: PeerProcesses | None,
    keep: Keep,
    read: Read | None = None,
    *,
    can_judge: bool = False,
) -> AsyncGenerator[Deployer]:
    """Runs the deployer while entered.

    Args:
        begin_epoch: Begins an epoch of this server's requests.
        keep: See `dyorc.deployment.deployer.Keep`.
        read: See `dyorc.deployment.deployer.Read`; None: nobody else writes what this server keeps.
        can_judge: See `Deployer`.
    """
    versions = LoadedVersions(running, served.repertoire, settings.programs, begin_epoch, settings.deployment.import_timeout_s)
    peers = DeploymentPeers(siblings or NoPeers())
    versions.begin(served.versions, served.record, is_group=served.is_group)
    histories = settings.telemetry.histories.folder
    deployer = Deployer(
        versions, peers, settings.deployment, served.targets, keep, read, can_judge=can_judge, histories=histories,
        step_limit_s=settings.engine.step_limit_s,
    )  # fmt: skip
    await deployer.begin(served.record)
    try:
        yield deployer
    finally:
        await peers.close()
        await versions.close()
