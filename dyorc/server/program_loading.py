"""The user's modules, and what runs the programs in them. Whatever calls the engine is put together of this."""

import asyncio
import contextlib
import gc
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dyorc.config import Settings
from dyorc.deployment.initial_versions import load_initial_versions
from dyorc.deployment.loading_versions import LoadedVersion as LoadedVersion
from dyorc.deployment.server_runtime import Places, ServerRuntime
from dyorc.deployment.state import DeploymentState, Version
from dyorc.leader_election.leader import LeaderTerm
from dyorc.models.offers import ModelKey
from dyorc.models.registry import ModelRegistry
from dyorc.server.garbage_collector import pause_garbage_collector
from dyorc.server.peer_context import PeerContext
from dyorc.server.runtime import for_gateways, in_process, on_ray
from dyorc.telemetry.tracing.tracing_setup import TraceOutput
from dyorc.transport.network import NodeNetwork

if TYPE_CHECKING:
    from dyorc.ray_serve.head_start import HeadStart


@dataclass(frozen=True, slots=True)
class LoadedTargets:
    """What the user's modules define.

    Attributes:
        targets: What was asked for.
        repertoire: The workflows and programs.
        places: Each program, with the place where its replicas find it.
        modules: Names of the modules that were imported before them.
        versions: All that are loaded: those that are to be on offer, then retired ones that earlier requests still need.
        record: What is deployed.
    """

    targets: Sequence[str]
    repertoire: ModelRegistry
    places: Places
    modules: frozenset[str]
    versions: Sequence[LoadedVersion]
    record: DeploymentState


@contextlib.contextmanager
def head_start(settings: Settings, *, without_ray: bool) -> Generator["HeadStart | None"]:
    """Prepares a Ray of our own, if there is to be one. Enter it before anything else.

    Ray reads its environment when a module imports it: a Ray of our own has to set it before that.
    """
    if without_ray or settings.deployment.ray_address:
        yield None
        return
    from dyorc.ray_serve.head_start import HeadStart

    with HeadStart() as start:
        yield start


async def connect_ahead(settings: Settings, *, without_ray: bool) -> None:
    """Connects an orchestrator that stands by to the Ray cluster, if there is one: then it can lead at once when its turn comes.

    Raises:
        LaunchError: If Ray cannot be reached.
    """
    if without_ray or not settings.deployment.ray_address:
        return
    from dyorc.ray_serve.ray_connection import connect, disconnect
    from dyorc.ray_serve.starting import start_with_retry

    await start_with_retry(
        f"standing by on {settings.deployment.ray_address}", lambda: connect(settings), disconnect, max_attempts=1
    )


@contextlib.contextmanager
def load_targets(
    targets: Sequence[str], settings: Settings, stored: DeploymentState | None = None, live: Sequence[Version] = ()
) -> Generator[LoadedTargets]:
    """Imports what is to be served. While entered, its programs have the options that the settings give them.

    Args:
        targets: Such as ``app.py:classify``.
        stored: What was deployed when the server last ran.
        live: Versions that requests of gateways may still need.

    Raises:
        DefinitionError: If a target cannot be served, or the settings have options of a program that is not there.
    """
    modules = frozenset(sys.modules)
    options = {name: one.changes for name, one in settings.programs.items()}
    with load_initial_versions(targets, stored or DeploymentState(), options, live, pause_garbage_collector) as (
        versions,
        record,
    ):
        lingering = {ModelKey(one.model, one.version) for one in record.left_over(live)}
        offered = [part for version in versions for part in version.parts if version.key not in lingering]
        kept = [part for version in versions for part in version.parts if version.key in lingering]
        repertoire = ModelRegistry.of_parts(offered, kept)
        first = {program: version for version in reversed(versions) for program in version.programs.values()}
        places = {program: first[program].source(program) for program in repertoire.programs}
        yield LoadedTargets(targets, repertoire, places, modules, versions, record)


@contextlib.asynccontextmanager
async def run_programs(
    served: LoadedTargets, settings: Settings, start: "HeadStart | None", traces: TraceOutput | None,
    place: PeerContext | None = None, *, without_ray: bool, lead: LeaderTerm | None = None, network: NodeNetwork | None = None,
) -> AsyncGenerator[ServerRuntime]:  # fmt: skip
    """Runs programs, and the engine that calls them, while entered.

    Args:
        start: From `head_start`.
        traces: Where spans go; None if nothing is traced.
        place: The process's place among others without Ray; None if it is alone.
        lead: The leadership by which it runs them for gateways in other processes; None if it leads no group.
        network: The process's place among other machines of its cluster; None without others.

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
        from dyorc.ray_serve.libraries import UserImports

        imports = UserImports.since(served.modules, served.targets)
        running = on_ray(served.repertoire, served.places, settings, imports, start, traces, lead)
    async with running as runtime:
        yield runtime


@contextlib.asynccontextmanager
async def deployed_beside(running: ServerRuntime) -> AsyncGenerator[Callable[[], None]]:
    """Deploys while entered, from when what this yields is called. If that fails, what runs inside is cancelled, and the error
    raised.

    Programs can be ready long before Ray, which only looks after them. Requests that wait for programs may come to an end only
    while this is entered; and leaving it may take seconds, since Ray's start cannot be broken off.
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
