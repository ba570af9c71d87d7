"""Asks gateways whether they are ready, as a load balancer does, and compares what they say with what they know."""

import asyncio
from collections.abc import Callable

import dyorc
from dyorc.cluster.remote_backend import RemoteBackend
from dyorc.errors import DyOrcError
from tests.whole_server.observed import Observed
from tests.whole_server.servers import Place
from tests.whole_server.world import VirtualProcess, World

_PAUSE_S = 1.0


def start_probe(world: World, observed: Observed, places: list[Place], is_over: Callable[[], bool]) -> VirtualProcess:
    """Starts a process that asks all gateways again and again, until `is_over` says so.

    A gateway may only say that it is ready if it has heard from a leader what that serves, since it started.
    """

    def knows_models(place: Place) -> bool:
        parts = [part for process, part in observed.parts if process is place.process and isinstance(part, RemoteBackend)]
        return any(part.offers.all for part in parts)

    async def ask(place: Place, client: dyorc.AsyncClient) -> None:
        process = place.process
        try:
            is_ready = await client.is_ready()
        except DyOrcError:  # nobody listens there now
            return
        if is_ready and process is place.process and not knows_models(place):
            observed.wrong.append(f"{place.name} was ready before it had heard what is served")

    async def probe() -> None:
        async with asyncio.TaskGroup() as group:
            for place in places:
                group.create_task(probe_one(place))

    async def probe_one(place: Place) -> None:
        async with dyorc.AsyncClient(f"http://127.0.0.1:{place.port}", timeout_s=1.0) as client:
            while not is_over():
                await ask(place, client)
                await asyncio.sleep(_PAUSE_S)

    return world.start_process("probe", lambda: asyncio.run(probe()))
