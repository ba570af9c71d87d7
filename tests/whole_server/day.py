"""A day of virtual time: the servers run for hours under a light load, and after each hour nothing of them has grown.

By day there are more requests than by night, as a wave; at night each server is ended and started again. The wall clock is set by
NTP each hour. In the last minutes of each hour nobody asks: then nothing may be in flight, and the entries of all containers of
`dyorc`'s objects, the store's rows and its bytes are counted. Their trends over the hours have to be flat (`tests.soak.trends`).
"""

import argparse
import asyncio
import contextlib
import gc
import importlib
import json
import logging
import math
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import structlog

import dyorc
from dyorc.client import Retries
from dyorc.cluster.remote_backend import RemoteBackend
from dyorc.errors import DyOrcError
from dyorc.gateway.service import InferenceService
from dyorc.orchestrator.orchestrator import Orchestrator
from dyorc.system.owned_folder import owned_folder
from dyorc.transport import link
from tests.command_line import end_at_sigterm
from tests.container_sizes import container_sizes
from tests.soak.trends import MIN_CYCLES, Verdict, trend_of
from tests.whole_server import replicas
from tests.whole_server.disk import Disk
from tests.whole_server.links import VirtualCarrier
from tests.whole_server.network import Network
from tests.whole_server.observed import Observed
from tests.whole_server.outside import EFFECTS
from tests.whole_server.patches import seed_randomness
from tests.whole_server.served import PLAIN, input_of, value_of
from tests.whole_server.servers import Place, Troupe, prepare
from tests.whole_server.shapes import SHAPES
from tests.whole_server.virtual_loop import VirtualPolicy
from tests.whole_server.world import ProcessState, World

_collect_garbage = gc.collect
_NEEDED = ("anyio._backends._asyncio", "dyorc.cells.orchestrator_cell", "numpy.ma", "pydantic.v1", "rich._emoji_codes")
"""Modules that are imported before the run, outside of its time."""
_NUM_GATEWAYS = _NUM_ORCHESTRATORS = 2
_HOUR_S = 3600.0
_QUIET_S = 300.0
"""At the end of each hour."""
_NIGHT = range(2, 4)
"""Hours of the day in which servers are ended and started again."""
_RESTART_EVERY_S = 600.0
_MAY_FAIL_S = 60.0
"""How long after a restart a request may fail."""
_JOB_RATIO, _JOB_TTL_S = 0.3, 900.0
_NTP_STEP_S = 0.05
_WARM_UP_RATIO = 0.25
_MAX_RATIO, _MIN_BOUND = 0.01, 0.5
"""How much a series may grow in an hour."""
_STORE_BYTES = "store: bytes"


class Stage:
    """A world with its network, its disk and its servers in cells with SQLite, not started yet."""

    def __init__(self, seed: int, folder: str) -> None:
        gc.disable()
        collector: Any = gc
        collector.freeze = collector.collect = lambda *_: 0
        tempfile.tempdir = folder
        seed_randomness(seed)
        world = self.world = World(seed, lambda line: None)
        network = Network(world)
        carriers: Any = link.CARRIERS
        carriers[link.SCHEME] = VirtualCarrier(network)
        asyncio.set_event_loop_policy(VirtualPolicy(world, network))
        prepare()
        self.observed = Observed(world)
        Disk(world).begin()
        self.observed.begin()
        structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
        logging.disable()
        places = [Place(f"gateway-{number}", number) for number in range(_NUM_GATEWAYS)]
        places += [Place(f"orchestrator-{number}", number) for number in range(_NUM_ORCHESTRATORS)]
        forks = replicas.prepare(world).forks
        self.troupe = Troupe(world, network, folder, f"sqlite://{folder}/store.db", places, None, SHAPES[0], forks)

    def forget_dead(self) -> None:
        """Lets go of what was kept of processes that are dead."""
        self.observed.parts = [entry for entry in self.observed.parts if entry[0].state is not ProcessState.DEAD]
        for process in self.world.processes:
            if process.state is ProcessState.DEAD:
                process.on_end.clear()


class Day:
    """One run.

    Args:
        hours: Virtual hours.
        rate: Requests a second, on average.
    """

    def __init__(self, hours: int, rate: float, seed: int, folder: str) -> None:
        self._stage = Stage(seed, folder)
        self._world = self._stage.world
        self._folder = folder
        self._hours = hours
        self._rate = rate
        self._chance = random.Random(f"day {seed}")
        self._restarted_s = -math.inf
        self._began_s = time.monotonic()
        self._noted: list[int] = []
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.sizes: list[tuple[float, dict[str, float]]] = []

    def run(self) -> dict[str, Any]:
        """Runs it, and returns figures."""
        world = self._world
        for place in self._stage.troupe.places:
            self._stage.troupe.start(place)
        client = world.start_process("client", lambda: asyncio.run(self._ask()))
        client.on_end.append(lambda: world.call_later(5.0, world.end))
        for hour in range(self._hours):
            world.call_later((hour + 1) * _HOUR_S - _NTP_STEP_S, lambda hour=hour: self._look(hour))
            if hour % 24 in _NIGHT:
                for number, place in enumerate(self._stage.troupe.places):
                    world.call_later(hour * _HOUR_S + (number + 1) * _RESTART_EVERY_S, lambda place=place: self._restart(place))
        if not world.run((self._hours + 1) * _HOUR_S):
            self.wrong.append(f"not at rest after {world.elapsed_s:.0f} s")
        if client.exit != "ended":
            self.wrong.append(f"the client failed: {client.exit}")
        return self._report()

    # Requests

    async def _ask(self) -> None:
        for hour in range(self._hours):
            end_s = (hour + 1) * _HOUR_S - _QUIET_S
            ports = [place.port for place in self._stage.troupe.places if place.kind == "gateway"]
            clients = [dyorc.AsyncClient(f"http://127.0.0.1:{port}", retries=Retries(max_attempts=12)) for port in ports]
            async with asyncio.TaskGroup() as group:
                while (now_s := self._world.elapsed_s) < end_s:
                    wave = 1 - math.cos(2 * math.pi * now_s / (24 * _HOUR_S))  # midnight is the quietest
                    pause_s = self._chance.expovariate(self._rate * max(0.1, wave))
                    await asyncio.sleep(min(pause_s, end_s - now_s))
                    group.create_task(self._exchange(self._chance.choice(clients)))
            for client in clients:
                await client.aclose()
            await asyncio.sleep((hour + 1) * _HOUR_S - self._world.elapsed_s)

    async def _exchange(self, client: dyorc.AsyncClient) -> None:
        model, value = self._chance.choice(list(PLAIN)), self._chance.randrange(10_000)
        sent_s, is_job = self._world.elapsed_s, self._chance.random() < _JOB_RATIO
        x = input_of(model, value)
        try:
            if is_job:
                answer = await (await client.submit(model, x=x, ttl_s=_JOB_TTL_S)).result(timeout_s=60.0)
            else:
                answer = await client.infer(model, x=x)
        except DyOrcError as error:
            self.counts[f"failed:{error.code}"] += 1
            if sent_s > self._restarted_s + _MAY_FAIL_S:
                self.wrong.append(f"{model}({value}) failed at {sent_s:.0f} s, {error.code}: {error}")
            return
        self.counts["jobs" if is_job else "requests"] += 1
        if value_of(answer) != PLAIN[model](value):
            self.wrong.append(f"{model}({value}) was answered {value_of(answer)}, expected {PLAIN[model](value)}")

    # Events

    def _restart(self, place: Any) -> None:
        if place.end is not None and place.is_up:
            self._restarted_s = self._world.elapsed_s
            self.counts["restarts"] += 1
            place.end()

    def _look(self, hour: int) -> None:
        """Counts what there is, at the end of an hour."""
        self._world.wall_shift_ns += int(self._chance.uniform(-_NTP_STEP_S, _NTP_STEP_S) * 1e9)
        EFFECTS.clear()
        self._stage.forget_dead()
        _collect_garbage()
        with closing(sqlite3.connect(f"{self._folder}/store.db")) as connection:
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            rows = {f"store: rows of {name}": connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}
        sizes = {**container_sizes(), **rows, _STORE_BYTES: Path(f"{self._folder}/store.db").stat().st_size}
        self.sizes.append((self._world.elapsed_s, {name: float(size) for name, size in sizes.items()}))
        self.wrong += [f"{number} {what} after hour {hour + 1}" for what, number in self._in_flight().items() if number]
        took_s, num_ended = time.monotonic() - self._began_s, self.counts["requests"] + self.counts["jobs"]
        print(
            f"hour {hour + 1} of {self._hours}: {num_ended:,} answers, {len(self.wrong)} wrong, {sum(sizes.values()):,} entries, "
            f"{self._world.num_steps:,} steps in {took_s:.0f} s",
            flush=True,
        )

    def _in_flight(self) -> dict[str, int]:
        observed = self._stage.observed
        return {
            "requests admitted": sum(service.admission.num_requests for service in observed.living(InferenceService)),
            "requests pending": sum(len(backend._pending) for backend in observed.living(RemoteBackend)),
            "requests of orchestrators": sum(each.num_requests for each in observed.living(Orchestrator)),
            "tensors": sum(each.tensors.exchange.num_tensors for each in observed.living(Orchestrator)),
        }

    def _report(self) -> dict[str, Any]:
        names = sorted({name for _, sizes in self.sizes for name in sizes})
        series: dict[str, Any] = {}
        if len(self.sizes) * (1 - _WARM_UP_RATIO) >= MIN_CYCLES:
            for name in names:
                trend = trend_of(
                    [at_s for at_s, _ in self.sizes],
                    [sizes.get(name, 0.0) for _, sizes in self.sizes],
                    cycle_s=_HOUR_S,
                    warm_up_s=math.floor(self._hours * _WARM_UP_RATIO) * _HOUR_S,
                    max_ratio=_MAX_RATIO,
                    min_bound=_MIN_BOUND,
                )
                if trend.verdict is not Verdict.FLAT:
                    series[name] = trend.to_json()
                    self.wrong.append(f"{name} is not flat: {trend.to_json()}")
        living = [process.name for process in self._world.processes if process.state is not ProcessState.DEAD]
        return {
            "virtual_hours": self._hours,
            "took_s": round(time.monotonic() - self._began_s),
            "steps": self._world.num_steps,
            "counts": dict(sorted(self.counts.items())),
            "leads": self._stage.observed.num_leads,
            "series": len(names),
            "not_flat": series,
            "living": living,
            "wrong": self.wrong[:20],
        }


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=24, help="of virtual time")
    parser.add_argument("--rate", type=float, default=0.2, help="requests a second, on average")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    end_at_sigterm()
    tempfile.tempdir = "/dev/shm"
    for module in _NEEDED:
        importlib.import_module(module)
    sys.exit(run_day(options.hours, options.rate, options.seed))


def run_day(hours: int, rate: float, seed: int) -> int:
    """Runs a day in a child process, which no signal interrupts, and prints. Returns the exit status."""
    with owned_folder("dyorc-sim-") as folder:
        pid = os.fork()
        if pid == 0:
            _be_child(hours, rate, seed, folder)
        try:
            _, status = os.waitpid(pid, 0)
            return os.waitstatus_to_exitcode(status)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise


def _be_child(hours: int, rate: float, seed: int, folder: str) -> NoReturn:
    status = 1
    try:
        figures = Day(hours, rate, seed, folder).run()
        print(json.dumps(figures), flush=True)
        status = int(bool(figures["wrong"]))
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(status)
