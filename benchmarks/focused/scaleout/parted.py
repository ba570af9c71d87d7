"""A server in parts: an orchestrator and a gateway of several processes, with the processor time that each takes."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dyorc.testing import ServerProcess
from loadgen.load import Load
from loadgen.pool import Pool
from loadgen.run import run
from loadgen.targets.base import TargetSpec

TARGET = f"{Path(__file__).with_name('echo.py')}:echo"
_NUM_CLIENTS = 64
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Parts:
    """What runs: `front` is what clients talk to, `back` runs workflows; one of both if it is one process."""

    front: ServerProcess
    back: ServerProcess | None


@contextlib.contextmanager
def embedded() -> Generator[Parts]:
    """Runs everything in one process."""
    with _running("serve", TARGET, "--in-process", "--port", "0") as server:
        yield Parts(server, None)


@contextlib.contextmanager
def parted(num_gateways: int) -> Generator[Parts]:
    """Runs an orchestrator with its programs, and gateways before it."""
    with tempfile.TemporaryDirectory(prefix="scaleout-") as store, tempfile.TemporaryDirectory(dir="/dev/shm") as arenas:
        shared = {"DYORC_STORE": f"sqlite://{store}/store.db", "DYORC_TRANSPORT__ARENA_FOLDER": arenas}
        with (
            _running("orchestrator", TARGET, "--in-process", **shared) as back,
            _running("gateway", "--port", "0", "--processes", str(num_gateways), **shared) as front,
        ):
            yield Parts(front, back)


@contextlib.contextmanager
def _running(*command: str, **environment: str) -> Generator[ServerProcess]:
    with ServerProcess([sys.executable, "-m", "dyorc.cli.main", *command], environment=environment) as server:
        server.wait_until_ready()
        yield server
        server.stop()


def measure(parts: Parts, duration_s: float) -> dict[str, float]:
    """Returns requests per second with 64 clients, and the milliseconds of processor time that a request takes."""
    spec = TargetSpec(protocol="http", url=parts.front.url, model="echo")
    pool = _pool()
    run("warm-up", spec, pool, Load(arrivals="closed", num_clients=_NUM_CLIENTS, warm_up_s=0.0, duration_s=1.5))
    before = [_cpu_s(part) for part in (parts.front, parts.back)]
    load = Load(arrivals="closed", num_clients=_NUM_CLIENTS, warm_up_s=0.0, duration_s=duration_s)
    result = run("scaleout", spec, pool, load)
    if result.counts.correct != result.counts.planned:
        sys.exit(f"not all answers are right: {result.counts}")
    after = [_cpu_s(part) for part in (parts.front, parts.back)]
    front_ms, back_ms = ((b - a) * 1e3 / result.counts.correct for a, b in zip(before, after, strict=True))
    return {
        "rps": round(result.throughput_rps),
        "p50_ms": round(result.latency_ms.p50, 2),
        "front_cpu_ms": round(front_ms, 4),
        "back_cpu_ms": round(back_ms, 4),
    }


def _pool() -> Pool:
    generator = np.random.default_rng(1)
    inputs = [{"x": generator.standard_normal(256).astype(np.float32)} for _ in range(64)]
    return Pool(inputs=inputs, answers=[{"output": -tensors["x"]} for tensors in inputs])


def _cpu_s(part: ServerProcess | None) -> float:
    """Returns the processor time of a part's processes so far."""
    pids = [] if part is None else part.pids()
    return sum(_cpu_of(pid) for pid in pids)


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
