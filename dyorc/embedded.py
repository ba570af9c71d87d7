"""Everything in one place: gateway and orchestrator in this process, replicas on a local Ray. `dyorc serve` starts this."""

import contextlib
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from dyorc.authoring.loading import absolute, load
from dyorc.authoring.program import Program
from dyorc.config import Settings
from dyorc.gateway.catalog import Catalog
from dyorc.gateway.exposure import refuse_open_address
from dyorc.gateway.grpc.server import GrpcServer
from dyorc.gateway.http.app import Gateway
from dyorc.gateway.http.server import HttpServer
from dyorc.gateway.jobs.jobs import Jobs
from dyorc.gateway.service import InferenceService
from dyorc.launcher.local_ray import LocalRay
from dyorc.launcher.ray_cluster import RayCluster
from dyorc.launcher.ray_home import RayHome
from dyorc.launcher.serve_replicas import ServeReplicas
from dyorc.orchestrator.link_fleet import Site
from dyorc.orchestrator.linked import linked
from dyorc.status import StatusBoard
from dyorc.store.opening import store_of


@dataclass(frozen=True)
class Embedded:
    """A running server."""

    url: str
    grpc_address: str
    """Empty without gRPC."""
    catalog: Catalog
    status: StatusBoard
    replicas: ServeReplicas

    async def wait_until_ready(self, changed_s: float = 0.25) -> AsyncIterator[Mapping[str, str]]:
        """Yields Serve's complaints at every change, and every `changed_s` seconds, until all programs are ready."""
        complaints: Mapping[str, str] = {}
        num_rounds = 0
        while not self.status.is_ready:
            await self.status.wait_for_change(changed_s)
            num_rounds += 1
            if num_rounds % 20 == 0:
                complaints = await self.replicas.complaints()
            yield complaints


@contextlib.asynccontextmanager
async def serve_embedded(targets: Sequence[str], settings: Settings) -> AsyncGenerator[Embedded]:
    """Starts everything; programs are still loading when this yields. At the end, stops everything in reverse order.

    Args:
        targets: What to serve, e.g. ``app.py:classify``.

    Raises:
        DefinitionError: If a target cannot be served, or the store's setting is invalid.
        ConfigurationError: If a file named by the settings cannot be used, or the server may not listen on its address.
        LaunchError: If Ray cannot be started, or does not take the programs.
        OSError: If the address is not available.
    """
    refuse_open_address(settings.gateway)  # before anything starts
    async with contextlib.AsyncExitStack() as stack:
        # A module that imports Ray makes it read its environment: a Ray of our own needs it to be there before.
        home = None if settings.deployment.ray_address else stack.enter_context(RayHome())
        catalog, places = _load(targets)
        store = store_of(settings.store)
        configs = settings.deployment, settings.link, settings.transport
        launcher = RayCluster(places, *configs) if home is None else LocalRay(home, places, *configs)
        ray = await stack.enter_async_context(launcher)
        site = Site(
            address=ray.link_address, link=settings.link, transport=settings.transport, node=ray.node, network=ray.network,
            end=ray.end_replica,
        )  # fmt: skip
        orchestrator, address = await stack.enter_async_context(linked(catalog.programs, settings.engine, site))
        service = stack.enter_context(contextlib.closing(InferenceService(catalog, orchestrator, settings.gateway)))
        jobs = await stack.enter_async_context(Jobs(service, store, settings.jobs))
        server = await stack.enter_async_context(HttpServer(Gateway(service, jobs), settings.gateway, service.shedding))
        grpc = await stack.enter_async_context(GrpcServer(service, settings.gateway)) if settings.gateway.grpc else None
        await ray.replicas.deploy(address)
        _settle_garbage_collector()
        yield Embedded(server.url, grpc.address if grpc else "", catalog, orchestrator.status, ray.replicas)


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
