"""One run of a seed, in a process of its own that ends with it."""

import asyncio
import gc
import logging
import random
import re
import tempfile
from collections.abc import Callable
from typing import Any

import structlog

from dyorc.transport import link
from tests.whole_server import replicas
from tests.whole_server.checks import faults_of
from tests.whole_server.clients import Client, Ledger
from tests.whole_server.disk import Disk
from tests.whole_server.engine_watch import EngineWatch
from tests.whole_server.faults import FaultPlan
from tests.whole_server.links import VirtualCarrier
from tests.whole_server.network import Network
from tests.whole_server.observed import Observed
from tests.whole_server.patches import seed_randomness
from tests.whole_server.probes import ReadinessProbe
from tests.whole_server.rare_paths import RarePaths, has_redis, shape_of, theme_of
from tests.whole_server.releases import Releases
from tests.whole_server.releases import prepare as prepare_releases
from tests.whole_server.rest import faults_of_replicas
from tests.whole_server.served import PLAIN, SECOND_PLAIN
from tests.whole_server.servers import SECOND_GROUP, Place, Troupe, prepare
from tests.whole_server.stale_leaders import StaleLeaders
from tests.whole_server.stream_client import StreamClient
from tests.whole_server.virtual_loop import VirtualPolicy
from tests.whole_server.virtual_redis import URL, VirtualRedis
from tests.whole_server.world import World

_NUM_GATEWAYS = _NUM_ORCHESTRATORS = 2
_NUM_CLIENTS = 3
_SECOND_GROUP_RATIO = 0.35
"""How often gateways serve a second group."""
_FAULTS_S = 15.0
_MAX_S = 120.0
_MAX_LINES = 3000
_CODE = re.compile(r"(?<='code': )'[0-9a-f]{12}'")
"""Digests of code follow from the folder's name, too."""


def run_seed(seed: int, folder: str, write: Callable[[str], None]) -> dict[str, Any]:
    """Runs a seed. Returns what was seen, and under ``wrong`` what should not have been."""
    gc.disable()
    collector: Any = gc
    collector.freeze = collector.collect = lambda *_: 0
    tempfile.tempdir = folder
    seed_randomness(seed)
    num_lines = 0

    def write_line(line: str) -> None:
        nonlocal num_lines
        num_lines += 1
        write(_CODE.sub("code", line.replace(folder, "FOLDER")))

    world = World(seed, write_line)
    network = Network(world)
    carriers: Any = link.CARRIERS
    carriers[link.SCHEME] = VirtualCarrier(network)
    asyncio.set_event_loop_policy(VirtualPolicy(world, network))
    prepare()
    prepare_releases()
    disk, observed, stale, engines = Disk(world), Observed(world), StaleLeaders(), EngineWatch()
    disk.begin()
    observed.begin()
    stale.begin()
    engines.begin()
    handler = _log_to(world)
    gateways = [Place(f"gateway-{number}", number) for number in range(_NUM_GATEWAYS)]
    orchestrators = [Place(f"orchestrator-{number}", number) for number in range(_NUM_ORCHESTRATORS)]
    has_second_group = random.Random(f"groups {seed}").random() < _SECOND_GROUP_RATIO
    if has_second_group:
        orchestrators.append(Place(f"orchestrator-{_NUM_ORCHESTRATORS}", _NUM_ORCHESTRATORS, SECOND_GROUP))
    models = [*PLAIN, *(SECOND_PLAIN if has_second_group else ())]
    shape = shape_of(seed)
    plane = replicas.prepare(world)
    redis = VirtualRedis(observed) if has_redis(seed) else None
    places = [*gateways, *orchestrators, *([] if redis is None else [Place("redis-0", 0)])]
    store = f"sqlite://{folder}/store.db" if redis is None else URL
    troupe = Troupe(world, network, folder, store, places, None if redis is None else redis.serve, shape, plane.forks)
    ledger = Ledger()
    for place in troupe.places:
        troupe.start(place)
    until_s = world.elapsed_s + _FAULTS_S
    ports = [place.port for place in gateways]
    clients = [Client(world, ledger, number + 1, seed, models, ports, until_s).start() for number in range(_NUM_CLIENTS)]
    streams = StreamClient(world, seed, ports, until_s)
    clients.append(streams.start())
    releases = Releases(world, seed, ports, folder, until_s, observed.known_s)
    clients += releases.start()
    theme = theme_of(seed)
    plan = FaultPlan(world, troupe, disk, until_s, has_theme=theme is not None)
    plan.begin()
    rare = RarePaths(world, troupe, seed, until_s, plan.count)
    if theme is not None or not plan.is_calm:
        rare.begin()
    left = set(clients)
    ReadinessProbe(world, observed, gateways, lambda: not left).start()
    for client in clients:

        def ended(client: Any = client) -> None:
            left.discard(client)
            if not left:
                world.call_later(5.0, world.end)

        client.on_end.append(ended)
    wrong: list[str] = []
    try:
        if not world.run(_MAX_S):
            wrong.append(f"not at rest after {world.elapsed_s:.0f} s: {sorted(process.name for process in left)} go on")
    except Exception as error:  # the simulation's own: the run ended in the middle, where what must hold at rest does not
        wrong.append(f"{type(error).__name__}: {error}")
    else:
        ledger.num_other_jobs = releases.num_jobs
        wrong += faults_of(troupe, ledger, clients, observed, redis, plan.happened)
        wrong += faults_of_replicas(observed, plane, shape)
        wrong += streams.faults() + releases.wrong + stale.wrong + engines.wrong
    wrong += handler.wrong
    if num_lines > _MAX_LINES:
        wrong.append(f"{num_lines} lines of log, expected at most {_MAX_LINES}")
    return {
        "seed": seed,
        "shape": shape.name,
        "groups": len(troupe.groups),
        "wrong": wrong,
        "virtual_s": round(world.elapsed_s, 3),
        "stores": {troupe.store.partition(":")[0]: 1},
        "steps": world.num_steps,
        "digest": world.digest,
        "faults": dict(plan.counts),
        "theme": "" if theme is None else theme.name,
        "rare_paths": dict(rare.counts),
        "leads": observed.num_leads,
        "changes": releases.num_changes,
        "outcomes": dict(ledger.outcomes() + streams.outcomes()),
    }


class _Lines:
    """A logger of structlog that writes to a world's log."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self.name = name

    def msg(self, line: str) -> None:
        """Writes one."""
        self._world.log(line)

    debug = info = warning = error = critical = exception = msg


class _Handler(logging.Handler):
    """Writes the lines of libraries to a world's log.

    Attributes:
        wrong: Exceptions that an event loop reports, since nobody has handled them.
    """

    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world
        self.wrong: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler.emit`."""
        self._world.log(f"{record.name}: {record.getMessage()}")
        if record.name == "asyncio" and record.levelno >= logging.ERROR:
            error = record.exc_info[1] if record.exc_info else None
            self.wrong.append(f"nobody handled an exception: {record.getMessage().splitlines()[0]}: {error!r}")
        if record.exc_info:
            self._world.log(logging.Formatter().formatException(record.exc_info).replace("\n", " | "))


def _log_to(world: World) -> _Handler:
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["level", "event"], sort_keys=True),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=lambda *args: _Lines(world, str(args[0]) if args else ""),
        cache_logger_on_first_use=False,
    )
    handler = _Handler(world)
    logging.root.handlers[:] = [handler]
    return handler
