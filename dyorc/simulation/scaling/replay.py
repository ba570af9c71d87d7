"""Replays a trace under a policy, once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dyorc.config import EngineConfig
from dyorc.engine.engine import Engine
from dyorc.engine.engine_context import Host
from dyorc.engine.events import RequestArrived
from dyorc.errors import InvalidInputError
from dyorc.simulation.plain import tensor_of
from dyorc.simulation.scaling.scaling_loop import Limits, ScalingLoop, SimulatedScaler
from dyorc.simulation.scaling.states import Timeline
from dyorc.simulation.scaling.watch import Calls, ReplicaWatch
from dyorc.simulation.value_draws import request_value
from dyorc.simulation.workload import Deployment, Workload
from dyorc.simulation.workloads import WORKLOADS
from dyorc.simulation.workloads.slow import SLOW
from dyorc.simulation.world import Machines, World
from dyorc.traffic.request_traces import TracedRequest

_ALL = SLOW | WORKLOADS
DEFAULT_WORKFLOW = "assist"
"""What requests whose workflow the trace does not name run."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What every policy faces.

    Attributes:
        requests: The trace.
        limits: Bounds and times.
        warm_up_ratio: The part of the trace, from its start, that is not measured: the engine and the policies learn.
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
                f"a trace of {len(self.requests)} requests, of which {self.warm_up_ratio} are not measured;"
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


@dataclass(frozen=True)
class Replay:
    """What became of a trace under a policy."""

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
