"""The servers of a run: the composition roots of `dyorc gateway` and `dyorc orchestrator`, each in a virtual process."""

import asyncio
import io
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpcore._backends.anyio
from rich.console import Console

from dyorc.config import DEFAULT_GROUP, Settings
from dyorc.gateway.http import http_server
from dyorc.server import orchestrator_process
from dyorc.server.gateway_process import serve_gateway
from dyorc.server.stop_signals import StopSignals
from tests.whole_server import served, streamed
from tests.whole_server.kept_routes import keep_routes
from tests.whole_server.network import Network, VirtualSocket
from tests.whole_server.replica_processes import VirtualForks
from tests.whole_server.shapes import SHAPES, Shape
from tests.whole_server.world import ProcessState, VirtualProcess, World

LEASE_S = 3.0
JOB_LEASE_S = 2.0
"""Shorter than most stops, so that claims of jobs are lost."""
FIRST_PORT = 7001
SECOND_GROUP = "second"
"""Of an orchestrator that serves other workflows behind the same gateways, all in its own process."""
_TARGETS = {DEFAULT_GROUP: (*served.TARGETS, *streamed.TARGETS), SECOND_GROUP: served.SECOND_TARGETS}


def settings_in(folder: str, port: int, shape: Shape, store: str, group: str, groups: Sequence[str]) -> Settings:
    """Returns the settings of a server whose arenas are in a folder.

    Args:
        group: An orchestrator's.
        groups: Those behind a gateway.
    """
    return Settings.model_validate(
        {
            **shape.settings({"code_folders": (folder,)}),
            "store": store,
            "cluster": {"lease_s": LEASE_S, "group": group, "groups": groups},
            "jobs": {"lease_s": JOB_LEASE_S},
            "transport": {"arena_folder": folder, "arena_bytes": 2**22, "inline_limit_bytes": 256},
            "gateway": {"port": port, "grpc": False, "drain_timeout_s": 5.0},
            # Records fill what they may have within hours: what they keep is no leak.
            "telemetry": {"page": False, "metrics": False, "records": {"max_bytes": 2**19}},
        }
    )


def prepare() -> None:
    """Puts virtual sockets in place of bound ones, and lets what all gateways have in common be made once."""
    http: Any = http_server
    http.bind = lambda host, port: VirtualSocket(port)
    sockets: Any = httpcore._backends.anyio
    sockets.is_socket_readable = lambda connection: connection.is_readable()  # a client that keeps a connection looks at it
    keep_routes()


@dataclass
class Place:
    """Where a server runs: one process after the other.

    Attributes:
        name: Such as ``gateway-1``.
        group: An orchestrator's.
        process: The present one; None before the first.
        num_starts: How often it was started.
        is_wanted: Whether it is started again when it ends.
        end: Ends its process as SIGTERM does; None before that is possible, and once it was done.
    """

    name: str
    number: int
    group: str = DEFAULT_GROUP
    process: VirtualProcess | None = None
    num_starts: int = 0
    is_wanted: bool = True
    end: Callable[[], object] | None = None

    @property
    def kind(self) -> str:
        """What runs there: ``gateway``, ``orchestrator`` or ``redis``."""
        return self.name.partition("-")[0]

    @property
    def port(self) -> int:
        """Where its gateway listens."""
        return FIRST_PORT + self.number

    @property
    def is_up(self) -> bool:
        """Whether its process is not dead."""
        return self.process is not None and self.process.state is not ProcessState.DEAD


@dataclass
class Troupe:
    """All servers.

    Attributes:
        store: The setting `STORE`.
        places: Gateways first.
        serve_redis: Runs a Redis; None without its place.
        shape: Where programs run.
        forks: What starts the processes of replicas.
        exits: How processes ended that were not killed.
    """

    world: World
    network: Network
    folder: str
    store: str
    places: list[Place]
    serve_redis: Callable[[], Coroutine[Any, Any, None]] | None
    shape: Shape
    forks: VirtualForks
    exits: list[str] = field(default_factory=list[str])

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of its orchestrators."""
        return tuple(dict.fromkeys(place.group for place in self.places))

    def start(self, place: Place) -> None:
        """Starts a place's next process."""
        place.num_starts += 1
        place.end = None
        runs = {"gateway": self._run_gateway, "orchestrator": self._run_orchestrator, "redis": self._run_redis}
        run = runs[place.kind]
        process = place.process = self.world.start_process(f"{place.name}#{place.num_starts}", lambda: asyncio.run(run(place)))
        process.on_end.append(lambda: self._ended(place, process))

    def terminate(self, place: Place) -> str:
        """Sends SIGTERM to a place's process, once: a second one would let it wait for nothing.

        Returns:
            The kind of the fault; empty if the process does not run, or was sent one already.
        """
        process, end = place.process, place.end
        if process is None or process.state is not ProcessState.RUNNING or end is None:
            return ""
        self.world.log("terminates", process=process.name)
        place.end = None
        end()
        return f"terminate {place.kind}"

    def _ended(self, place: Place, process: VirtualProcess) -> None:
        if not process.was_killed and process.exit != "ended":
            self.exits.append(f"{process.name}: {process.exit}")
        self.world.call_later(self.world.chance.uniform(0.1, 1.5), lambda: self._start_again(place))

    def _start_again(self, place: Place) -> None:
        if place.is_wanted and not place.is_up:
            self.start(place)

    def _settings(self, place: Place, port: int, shape: Shape) -> Settings:
        return settings_in(self.folder, port, shape, self.store, place.group, self.groups)

    async def _run_gateway(self, place: Place) -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        async with serve_gateway(self._settings(place, place.port, self.shape)) as server:
            self.world.log("listens", url=server.url)
            place.end = lambda: loop.call_soon_threadsafe(stop.set)
            await stop.wait()

    async def _run_orchestrator(self, place: Place) -> None:
        console = Console(file=io.StringIO())
        shape, targets = self.shape if place.group == DEFAULT_GROUP else SHAPES[0], _TARGETS[place.group]
        settings, signals, loop = self._settings(place, 0, shape), StopSignals(()), asyncio.get_running_loop()
        place.end = lambda: loop.call_soon_threadsafe(signals.receive)
        await signals.run(lambda has_started: orchestrator_process.serve_group(targets, settings, console, signals, has_started))

    async def _run_redis(self, _: Place) -> None:
        assert self.serve_redis is not None
        await self.serve_redis()
