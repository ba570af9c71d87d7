"""What the simulator says of DyOrc on emulated accelerators: the workload's own workflow on the production engine.

    python -m benchmarks.devices.predict WORKLOAD FOLDER LOADS      # LOADS is a JSON list of `loadgen.load.Load`

Time is virtual. Requests arrive at the very times at which the load generator sends them; programs take T(n), and return what
was recorded, so decisions are the same, and so is what guesses learn. Nothing else takes time but the way between engine and
programs, as in ``dyorc simulate``. What a real server spends on HTTP and on itself is the error of the prediction.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

import msgspec
import numpy as np

from benchmarks.devices.program import REQUESTS_FILE
from benchmarks.devices.recorded import Recorded
from benchmarks.devices.times import DeviceTime, on_devices
from benchmarks.serving import ROOT, BenchmarkError
from benchmarks.workloads import workload as workload_named
from dyorc.authoring.loading import load as load_workflow
from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.core.arrays import apply_views, inline
from dyorc.core.tensor import TensorRef
from dyorc.engine.events import RequestArrived
from dyorc.simulation.policies import speculating_engine
from dyorc.simulation.workload import NS_PER_S, Deployment
from dyorc.simulation.world import Machines, World
from loadgen.load import Load
from loadgen.pool import Pool
from loadgen.results import RunResult
from loadgen.schedule import plan

_NUM_WARM_UP = 300
"""Requests at the same rate before the first round, from which the engine learns T(n) and outcomes, as the server did."""
_WARM_UP_SEED = 1000
_GAP_NS = 5 * NS_PER_S
"""Between two rounds."""


def predicted(name: str, folder: Path, rounds: Mapping[int, RunResult]) -> tuple[float, float]:
    """Returns p50 and p99, in milliseconds: medians over rounds with the same arrivals as the measured ones.

    Raises:
        BenchmarkError: If that fails, with the reason.
    """
    loads = json.dumps([result.load for result in rounds.values()])
    command = [sys.executable, "-m", "benchmarks.devices.predict", name, str(folder), loads]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if finished.returncode:
        raise BenchmarkError(f"{name} could not be simulated: {finished.stderr.strip()[-2000:]}")
    p50_ms, p99_ms = json.loads(finished.stdout)
    return p50_ms, p99_ms


def device_kept(rounds: Mapping[int, RunResult], times: Mapping[str, DeviceTime]) -> float | None:
    """Returns the time for which the devices were occupied, relative to T(n) of the batches that ran; None if none did."""
    planned_ms = occupied_ms = 0.0
    for result in rounds.values():
        answered = max(1, result.counts.correct + result.counts.wrong)
        occupied_ms += answered * sum(result.server.device_ms_per_request.values())
        for program, sizes in result.server.batch_sizes.items():
            planned_ms += sum(times[program].batch_s(int(size)) * number * 1e3 for size, number in sizes.items())
    return occupied_ms / planned_ms if planned_ms else None


@dataclass
class Latencies:
    """Observes a simulated world: each request's latency and answer.

    Attributes:
        answers: Arrays in the order of the workflow's outputs, by request.
    """

    ms: dict[int, float] = field(default_factory=dict[int, float])
    answers: dict[int, tuple[TensorRef, ...]] = field(default_factory=dict[int, "tuple[TensorRef, ...]"])
    _arrived_ns: dict[int, int] = field(default_factory=dict[int, int])

    def arrived(self, event: RequestArrived, now_ns: int) -> None:
        self._arrived_ns[event.request_id] = now_ns

    def dispatched(self, program: str, outputs: Sequence[tuple[TensorRef, ...]], execute_ns: int) -> None:
        pass

    def answered(self, request_id: int, tensors: tuple[TensorRef, ...], now_ns: int) -> None:
        self.ms[request_id] = (now_ns - self._arrived_ns.pop(request_id)) / 1e6
        self.answers[request_id] = tensors


@dataclass(frozen=True, eq=False)
class Model:
    """A workflow with recorded programs, ready to be simulated."""

    workflow: Workflow
    deployments: Sequence[Deployment]
    pool: Pool

    def simulate(self, arrivals: Iterator[tuple[int, int]], link_ns: int = 100_000) -> Latencies:
        """Simulates requests, given as pairs of an arrival (ascending) and a number in the pool. Ids count from 1."""
        programs = [deployment.program for deployment in self.deployments]
        latencies = Latencies()
        machines = Machines({program.name: 1 for program in programs}, link_ns)
        world = World(speculating_engine(programs, 0), self.deployments, machines, latencies)
        world.run(
            (at_ns, RequestArrived(request_id, self.workflow, self._inputs(number)))
            for request_id, (at_ns, number) in enumerate(arrivals, 1)
        )
        return latencies

    def _inputs(self, number: int) -> tuple[TensorRef, ...]:
        inputs = self.pool.inputs[number % len(self.pool.inputs)]
        return tuple([inline(inputs[spec.name]) for spec in self.workflow.signature.inputs])


def model_of(name: str, folder: Path) -> Model:
    """Returns the model of a workload whose programs were recorded in a folder."""
    served = workload_named(name)
    target = load_workflow(str(ROOT / served.app))
    if not isinstance(target, Workflow):
        raise BenchmarkError(f"{served.app} is no workflow")
    times = on_devices(name).times
    deployments = [
        Deployment(
            program=program,
            base_s=times[program.name].base_s,
            item_s=times[program.name].item_s,
            compute=partial(
                computed, program, Recorded.load(folder / f"{program.name}.npz"), bool(served.programs[program.name].widths)
            ),
        )
        for program in target.programs
    ]
    return Model(target, deployments, Pool.load(folder / REQUESTS_FILE))


def computed(program: Program, recorded: Recorded, is_padded: bool, operands: Sequence[TensorRef]) -> tuple[TensorRef, ...]:
    """Returns the recorded outputs of one call."""
    names = [spec.name for spec in program.signature.inputs]
    item = {name: apply_views(tensor.data, tensor.views) for name, tensor in zip(names, operands, strict=True)}
    outputs = recorded.outputs(item, is_padded)
    order = program.signature.outputs.names
    rows = [outputs[each] for each in order] if len(outputs) > 1 else list(outputs.values())
    return tuple([inline(np.asarray(row)) for row in rows])


def quantiles(model: Model, loads: Sequence[Load]) -> tuple[float, float]:
    """Returns p50 and p99 of what is sent under some loads, one after the other: medians over the loads."""
    warm_up_s = _NUM_WARM_UP / loads[0].rate_rps
    warm_up = msgspec.structs.replace(loads[0], warm_up_s=0.0, duration_s=warm_up_s, seed=_WARM_UP_SEED)
    arrivals: list[tuple[int, int]] = []
    measured: list[list[int]] = []
    start_ns = 0
    for load in (warm_up, *loads):
        schedule = plan(load)
        first = len(arrivals) + 1
        times_ns = schedule.times_ns.tolist()
        measured.append([first + at for at, time_ns in enumerate(times_ns) if time_ns >= schedule.warm_up_ns])
        arrivals += [(start_ns + time_ns, at) for at, time_ns in enumerate(times_ns)]
        start_ns += schedule.end_ns + _GAP_NS
    simulated = model.simulate(iter(arrivals))
    of_loads = [np.percentile([simulated.ms[number] for number in numbers], (50, 99)) for numbers in measured[1:] if numbers]
    return median(float(p50_ms) for p50_ms, _ in of_loads), median(float(p99_ms) for _, p99_ms in of_loads)


if __name__ == "__main__":
    _, asked, its_folder, asked_loads = sys.argv
    decoded = msgspec.json.decode(asked_loads, type=list[Load])
    print(json.dumps(quantiles(model_of(asked, Path(its_folder)), decoded)))
