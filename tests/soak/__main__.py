"""Asks real servers for an hour, changes them meanwhile, and says whether anything of them grows.

``python -m tests.soak [--minutes 60] [--shapes cells,ray] [--rate 10] [--picture FILE] [--samples FILE]``. Two servers run side
by side: supervised cells, and one with its replicas on Ray. The last line is one JSON object; the exit status is 1 if an answer
was wrong, a change failed, something was left behind, or a series is not flat.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.output_paths import output_file
from dyorc.errors import DyOrcError
from dyorc.testing import ServerProcess, serve_command
from tests.command_line import end_at_sigterm
from tests.soak.changes import Changes, Versions
from tests.soak.load import Load
from tests.soak.picture import memory_picture
from tests.soak.samples import RAY, Sampler
from tests.soak.served import TARGETS, write_steady, write_version
from tests.soak.steady import LEAK_VARIABLE
from tests.soak.trends import Trend, Verdict, trend_of

_MAX_PERIOD_S = 10.0
_MAX_CYCLE_S = 180.0
_NUM_CYCLES = 12
"""At least, in a short run."""
_WARM_UP_RATIO = 1 / 3
_SHOW_EVERY = 6
_READY_TIMEOUT_S = 600.0
_SETTINGS = {
    # Both fill up during the warm-up: what they may keep is no leak.
    "DYORC_TELEMETRY__RECORDS__MAX_BYTES": str(2**20),
    "DYORC_JOBS__MAX_BYTES": str(2**26),
}
_SHAPES = {"cells": ["--cells", "2"], "ray": []}
_BOUNDS = {"bytes": 128 * 2**10, "threads": 0.5, "descriptors": 0.5, "sockets": 4, "processes": 0.5, "files": 0.5, "series": 0.5}
"""How much a series may grow in an hour however small it is, by its unit, the last word of its name."""
_LOG, _LOG_BYTES_PER_CYCLE = "server's log: bytes", 4096
"""Two deployments and a rollback are logged in each."""
_WAL, _WAL_BYTES = "store's log: bytes", 2**23
"""SQLite fills it with a thousand pages before it writes to its beginning again: in a short run it grows."""


@dataclass
class Outcome:
    """What a run has shown of one server.

    Attributes:
        wrong: What was wrong, a sentence each.
    """

    shape: str
    load: Load
    changes: Changes
    sampler: Sampler
    wrong: list[str] = field(default_factory=list[str])

    def series(self, name: str) -> tuple[list[float], list[float]]:
        """Returns when a series was measured, and its sizes."""
        samples = self.sampler.samples
        return [sample.at_s for sample in samples], [sample.sizes.get(name, 0.0) for sample in samples]

    def names(self) -> list[str]:
        """Returns the names of all series."""
        return sorted({name for sample in self.sampler.samples for name in sample.sizes})


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How long a run is, and how strict.

    Attributes:
        max_ratio: How much of its size a series may grow in an hour, or in the run if that is shorter.
        leak_bytes: What a program keeps of each batch, on purpose.
    """

    seconds: float
    rate: float
    seed: int
    max_ratio: float
    leak_bytes: int = 0

    @property
    def cycle_s(self) -> float:
        """How long a cycle of changes takes."""
        return min(_MAX_CYCLE_S, self.seconds / _NUM_CYCLES)

    @property
    def period_s(self) -> float:
        """How long it is from one measurement to the next."""
        return min(_MAX_PERIOD_S, self.cycle_s / 4)

    @property
    def per_hour(self) -> float:
        """What bounds per hour are multiplied by."""
        return max(1.0, 3600 / self.seconds)


async def soak(shape: str, plan: Plan) -> Outcome:
    """Runs a server of one shape under load.

    Raises:
        RuntimeError: If it does not start, or ends.
    """
    with tempfile.TemporaryDirectory(prefix="dyorc-soak-") as name:
        folder = Path(name)
        write_steady(folder)
        write_version(folder, 1)
        store = folder / "jobs.sqlite"
        targets = [f"{folder}/{target}" for target in TARGETS]
        command = serve_command(*targets, *_SHAPES[shape], in_process=shape == "cells")
        environment = _SETTINGS | {"DYORC_STORE": f"sqlite://{store}", LEAK_VARIABLE: str(plan.leak_bytes)}
        with ServerProcess(command, environment=environment) as server:
            await asyncio.to_thread(server.wait_until_ready, _READY_TIMEOUT_S)
            versions = Versions(1)
            load = Load(server.url, versions, plan.rate, plan.seed)
            changes = Changes(server.url, folder, versions, plan.cycle_s, scales=shape == "ray")
            outcome = Outcome(shape, load, changes, Sampler(server, store))
            await _follow(outcome, server, plan)
            outcome.wrong += load.wrong
            await asyncio.to_thread(server.stop)
            outcome.wrong += await asyncio.to_thread(server.leftovers)
            if server.process.returncode:
                outcome.wrong.append(f"the server ended with {server.process.returncode}: {server.output[-2000:]}")
            return outcome


async def _follow(outcome: Outcome, server: ServerProcess, plan: Plan) -> None:
    """Lets load, changes and measurements run side by side.

    Raises:
        RuntimeError: If the server ends.
    """
    begin_s = asyncio.get_running_loop().time()
    end_s = begin_s + plan.seconds

    async def change() -> None:
        try:
            await outcome.changes.run(end_s)
        except DyOrcError as error:
            outcome.wrong.append(f"a change failed: {type(error).__name__}: {error}")

    async with asyncio.TaskGroup() as group:
        group.create_task(change())
        group.create_task(outcome.load.run(plan.seconds))
        group.create_task(_measure(outcome, server, begin_s, plan))


async def _measure(outcome: Outcome, server: ServerProcess, begin_s: float, plan: Plan) -> None:
    loop = asyncio.get_running_loop()
    for number in range(int(plan.seconds / plan.period_s)):
        await asyncio.sleep(begin_s + number * plan.period_s - loop.time())
        if (status := server.process.poll()) is not None:
            raise RuntimeError(f"{outcome.shape}: the server ended with {status}: {server.output[-2000:]}")
        at_s = loop.time() - begin_s
        sample = await asyncio.to_thread(outcome.sampler.measure, at_s)
        if number % _SHOW_EVERY == 0:
            memory = {name.partition(":")[0]: size for name, size in sample.sizes.items() if name.endswith("PSS bytes")}
            shown = ", ".join(f"{role} {size / 2**20:.1f}" for role, size in memory.items())
            done = f"{outcome.load.counts.total():,} exchanges, {len(outcome.load.wrong)} wrong"
            _tell(f"{outcome.shape} {at_s / 60:6.1f} min: {done}; PSS in MiB: {shown}")


def trends(outcome: Outcome, plan: Plan) -> dict[str, Trend]:
    """Returns the trend of each series."""
    found: dict[str, Trend] = {}
    for name in outcome.names():
        times_s, sizes = outcome.series(name)
        with contextlib.suppress(ValueError):  # of processes that live for a moment
            found[name] = trend_of(
                times_s, sizes, cycle_s=plan.cycle_s, warm_up_s=plan.seconds * _WARM_UP_RATIO,
                max_ratio=plan.max_ratio * plan.per_hour, min_bound=_min_bound(name, plan),
            )  # fmt: skip
    return found


def _min_bound(name: str, plan: Plan) -> float:
    if name == _LOG:
        return _LOG_BYTES_PER_CYCLE * 3600 / plan.cycle_s
    if name == _WAL and plan.per_hour > 1:
        return _WAL_BYTES * plan.per_hour
    return _BOUNDS[name.rpartition(" ")[2]] * plan.per_hour


def report(outcome: Outcome, plan: Plan) -> dict[str, Any]:
    """Returns figures, and adds to what was wrong the series that are not flat."""
    by_name = trends(outcome, plan)
    is_judged = {name: not name.startswith(RAY) for name in by_name}
    for name, trend in by_name.items():
        if is_judged[name] and trend.verdict is not Verdict.FLAT:
            outcome.wrong.append(f"{outcome.shape}: {name} is not flat: {trend.to_json()}")
    series = {name: trend.to_json() | ({} if is_judged[name] else {"judged": False}) for name, trend in by_name.items()}
    return {
        "exchanges": dict(sorted(outcome.load.counts.items())),
        "changes": dict(sorted(outcome.changes.counts.items())),
        "series": series,
        "wrong": len(outcome.wrong),
    }


async def _run_all(shapes: list[str], plan: Plan) -> list[Outcome]:
    runs: list[Coroutine[Any, Any, Outcome]] = [soak(shape, plan) for shape in shapes]
    return list(await asyncio.gather(*runs))


def _courses(outcomes: list[Outcome]) -> Mapping[str, list[tuple[float, float]]]:
    courses: dict[str, list[tuple[float, float]]] = {}
    for outcome in outcomes:
        for name in outcome.names():
            if name.endswith(": PSS bytes") and not name.startswith("all"):
                times_s, sizes = outcome.series(name)
                minutes = [time_s / 60 for time_s in times_s]
                courses[f"{outcome.shape}: {name.partition(':')[0]}"] = list(zip(minutes, sizes, strict=True))
    return courses


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Runs and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--shapes", default=",".join(_SHAPES), help="of servers, side by side")
    parser.add_argument("--rate", type=float, default=10.0, help="requests a second to each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-growth", type=float, default=0.01, help="of a series' size, in an hour or a shorter run")
    parser.add_argument("--leak-bytes", type=int, default=0, help="what a program keeps of each batch, to see that it is noticed")
    parser.add_argument("--picture", type=output_file, help="where the memory is drawn")
    parser.add_argument("--samples", type=output_file, help="where all measurements are written, as JSON")
    options = parser.parse_args()
    plan = Plan(
        seconds=60 * options.minutes,
        rate=options.rate,
        seed=options.seed,
        max_ratio=options.max_growth,
        leak_bytes=options.leak_bytes,
    )
    end_at_sigterm()
    outcomes = asyncio.run(_run_all(options.shapes.split(","), plan))
    figures = {outcome.shape: report(outcome, plan) for outcome in outcomes}
    if options.samples:
        all_samples = {each.shape: [{"at_s": one.at_s} | dict(one.sizes) for one in each.sampler.samples] for each in outcomes}
        options.samples.write_text(json.dumps(all_samples))
    if options.picture:
        options.picture.write_text(memory_picture("Memory of a server under load", _courses(outcomes)) + "\n")
    wrong = [text for outcome in outcomes for text in outcome.wrong]
    _tell("\n".join(wrong[:40]))
    print(json.dumps({"minutes": options.minutes, **figures}))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
