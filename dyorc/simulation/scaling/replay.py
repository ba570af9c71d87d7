"""Replays a trace under a policy, once, and records what happens to its requests."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dyorc.config import EngineConfig
from dyorc.core.tensor import TensorRef
from dyorc.engine.engine import Engine
from dyorc.engine.engine_context import Host
from dyorc.engine.events import RequestArrived
from dyorc.errors import InvalidInputError
from dyorc.scaling.model import Observer
from dyorc.simulation.plain_evaluation import tensor_of
from dyorc.simulation.scaling.scaling_loop import Limits, ScalingLoop, SimulatedScaler
from dyorc.simulation.scaling.simulated_replicas import Timeline
from dyorc.simulation.value_draws import request_value
from dyorc.simulation.workload import Deployment, Workload
from dyorc.simulation.workloads import WORKLOADS
from dyorc.simulation.workloads.slow import SLOW
from dyorc.simulation.world import Machines, World
from dyorc.traffic.request_traces import TracedRequest

BIN_NS = 10_000_000_000
"""Width of the bins in which demand is counted."""
_ALL = SLOW | WORKLOADS
DEFAULT_WORKFLOW = "assist"
"""What requests whose workflow the trace does not name run."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The trace and the limits that all policies get.

    Attributes:
        requests: The trace.
        limits: Bounds, and how long replicas take to start.
        warm_up_ratio: The part of the trace, from its start, that is not measured: the engine and the policies learn meanwhile.
        seed: For the branches that the trace does not give.
    """

    requests: Sequence[TracedRequest]
    limits: Limits = field(default_factory=Limits)
    warm_up_ratio: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if unknown := sorted({request.workflow or DEFAULT_WORKFLOW for request in self.requests} - _ALL.keys()):
            raise InvalidInputError(f"the trace asks for the workflow {unknown[0]!r}, expected one of {', '.join(_ALL)}")
        if len(self.requests) < 2 or not 0 <= self.warm_up_ratio < 1 or self.span_ns <= 0:
            raise InvalidInputError(
                f"a trace of {len(self.requests)} requests, {self.warm_up_ratio} of them not measured;"
                " expected two or more at different times, and less than all"
            )

    @property
    def span_ns(self) -> int:
        """From the first request to the last."""
        return round((self.requests[-1].time_s - self.requests[0].time_s) * 1e9)

    @property
    def from_ns(self) -> int:
        """When the measured time begins."""
        return round(self.warm_up_ratio * self.span_ns)

    def workloads(self) -> dict[str, Workload]:
        """Makes the workloads that the trace asks for, by name."""
        return {name: _ALL[name]() for name in sorted({request.workflow or DEFAULT_WORKFLOW for request in self.requests})}


class ReplicaWatch:
    """Records the requests of a world, as its observer.

    Attributes:
        workflows: Each request's workflow, by request.
        arrived_ns: When each arrived.
        latencies_ns: How long each took.
        busy_ns: Replicas' time for the batches sent in each bin.
    """

    def __init__(self) -> None:
        self.workflows: dict[int, str] = {}
        self.arrived_ns: dict[int, int] = {}
        self.latencies_ns: dict[int, int] = {}
        self.busy_ns = Counter[int]()
        self._now_ns = 0

    def arrived(self, event: RequestArrived, now_ns: int) -> None:
        self.workflows[event.request_id] = event.workflow.name
        self.arrived_ns[event.request_id] = self._now_ns = now_ns

    def dispatched(self, program: str, outputs: Sequence[tuple[TensorRef, ...]], execute_ns: int) -> None:
        self.busy_ns[self._now_ns // BIN_NS] += execute_ns

    def answered(self, request_id: int, tensors: tuple[TensorRef, ...], now_ns: int) -> None:
        self.latencies_ns[request_id] = now_ns - self.arrived_ns[request_id]


class Calls:
    """Records when requests call programs, as the engine's observer, and passes everything on to another observer.

    Attributes:
        at_ns: When a program was called, in order, by program.
    """

    def __init__(self, following: Observer | None = None) -> None:
        self.at_ns: defaultdict[str, list[int]] = defaultdict(list)
        self._following = following
        self._steps: defaultdict[int, list[tuple[str, int]]] = defaultdict(list)
        self._ended_ns: dict[int, int] = {}

    def arrived(self, request_id: int, workflow: str, now_ns: int) -> None:
        """A request came."""
        if self._following is not None:
            self._following.arrived(request_id, workflow, now_ns)

    def called(self, request_id: int, program: str, now_ns: int) -> None:
        """A request called a program."""
        self.at_ns[program].append(now_ns)
        self._steps[request_id].append((program, now_ns))
        if self._following is not None:
            self._following.called(request_id, program, now_ns)

    def ended(self, request_id: int, now_ns: int) -> None:
        """A request ended."""
        self._ended_ns[request_id] = now_ns
        if self._following is not None:
            self._following.ended(request_id, now_ns)

    def spans_ns(self, request_id: int) -> Iterator[tuple[str, int, int]]:
        """Yields the programs that a request called, each with when it did and when it called the next, or ended."""
        steps = self._steps[request_id]
        ends = [*(at_ns for _, at_ns in steps[1:]), self._ended_ns.get(request_id, 0)]
        for (program, at_ns), end_ns in zip(steps, ends, strict=True):
            yield program, at_ns, end_ns


@dataclass(frozen=True)
class Replay:
    """The records of a trace under a policy."""

    watch: ReplicaWatch
    calls: Calls
    timeline: Timeline
    num_turns: int
    deployments: Sequence[Deployment]


def replay(scene: Scene, scaler: SimulatedScaler) -> Replay:
    """Runs the trace to its end. The same scene and policy give the same replay."""
    workloads = scene.workloads()
    deployments = [deployment for workload in workloads.values() for deployment in workload.deployments]
    calls, watch, timeline = Calls(scaler.observer), ReplicaWatch(), Timeline(scene.from_ns, scene.span_ns)
    config = EngineConfig(max_requests=2**31, request_timeout_s=1e7)
    engine = Engine(config, [deployment.program for deployment in deployments], host=Host(observer=calls))
    loop = ScalingLoop(scaler, engine, deployments, scene.limits, timeline)
    loop.end_ns = scene.span_ns
    world = World(engine, deployments, Machines(loop), watch)
    world.run(_arrivals(scene, workloads))
    timeline.advance(world.now_ns)
    return Replay(watch, calls, timeline, sum(replicas.num_turns for replicas in loop.programs.values()), deployments)


def _arrivals(scene: Scene, workloads: dict[str, Workload]) -> Iterator[tuple[int, RequestArrived]]:
    first_s = scene.requests[0].time_s
    for request_id, request in enumerate(scene.requests, 1):
        workflow = workloads[request.workflow or DEFAULT_WORKFLOW].workflow
        branch = request_value(scene.seed, request_id) if request.branch is None else request.branch
        yield round((request.time_s - first_s) * 1e9), RequestArrived(request_id, workflow, (tensor_of(branch),))
