"""Asks gateways whether they are ready, as a load balancer does, and compares what they say with what they know."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx

from dyorc.cluster.remote_backend import RemoteBackend
from tests.whole_server.observed import Observed
from tests.whole_server.servers import Place
from tests.whole_server.world import VirtualProcess, World

_PAUSE_S = 1.0
_PATIENCE_S = 8.0
"""A gateway's is 10 s from its start; a probe may learn later that it has started."""


class ReadinessProbe:
    """Asks all gateways again and again.

    A gateway may only say that it is ready if it has heard from each of its groups what that serves. One group may be silent for
    longer than a gateway's patience, if another one was heard of. Once ready, a gateway has to stay so while any group serves.

    Args:
        places: Of the gateways.
        is_over: Returns whether to end.
    """

    def __init__(self, world: World, observed: Observed, places: list[Place], is_over: Callable[[], bool]) -> None:
        self._world = world
        self._observed = observed
        self._places = places
        self._is_over = is_over
        self._first_asked_s: dict[VirtualProcess, float] = {}
        self._were_ready: set[VirtualProcess] = set()

    def start(self) -> VirtualProcess:
        """Starts its process."""
        return self._world.start_process("probe", lambda: asyncio.run(self._run()))

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for place in self._places:
                group.create_task(self._probe(place))

    async def _probe(self, place: Place) -> None:
        serving = set[Any]()
        url = f"http://127.0.0.1:{place.port}/v2/health/ready"
        async with httpx.AsyncClient(timeout=1.0, trust_env=False) as client:
            while not self._is_over():
                process, serving_now = place.process, self._serving(place)
                try:
                    is_ready = (await client.get(url)).is_success
                except httpx.TransportError:  # nobody listens there now, or the answer was lost
                    serving.clear()
                else:
                    if process is not None and process is place.process:
                        self._check(place, process, is_ready, serving & serving_now & self._serving(place))
                    serving = serving_now
                await asyncio.sleep(_PAUSE_S)

    def _backends(self, place: Place) -> list[RemoteBackend]:
        parts = self._observed.parts
        return [part for process, part in parts if process is place.process and isinstance(part, RemoteBackend)]

    def _serving(self, place: Place) -> set[Any]:
        """Returns the connections over which a gateway reaches programs that are as wanted."""
        return {
            backend._connection
            for backend in self._backends(place)
            if backend._connection is not None and any(status.is_as_wanted for status in backend.status.programs.values())
        }

    def _check(self, place: Place, process: VirtualProcess, is_ready: bool, serving: set[Any]) -> None:
        """Compares an answer with what is known.

        Args:
            serving: What has served since an earlier question.
        """
        since_s = self._first_asked_s.setdefault(process, self._world.elapsed_s)
        if is_ready:
            self._were_ready.add(process)
            backends = self._backends(place)
            silent = [backend.group for backend in backends if not backend.offers.all]
            is_patient = self._world.elapsed_s - since_s < _PATIENCE_S
            if silent and (is_patient or len(silent) == len(backends)):
                self._observed.wrong.append(f"{place.name} was ready before it had heard what is served by {silent}")
        elif process in self._were_ready and serving and place.end is not None:
            groups = sorted(backend.group for backend in self._backends(place) if backend._connection in serving)
            self._observed.wrong.append(f"{place.name} lost its readiness while it reached the programs of {groups}")
