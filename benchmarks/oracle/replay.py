"""Replays recorded requests on the production engine, under a virtual clock.

This defines the oracle: every request makes all the calls that its flow makes, also for a decision alone. A call
may start as soon as its inputs exist, since the oracle knows every decision in advance. Batches take as long as
in a process of their own, and nothing else takes time: no network, no copies, no scheduler. No batch is larger than the size that
costs least per call. A request is answered when its last call has ended.

A simulated request carries its position in the recording. One workflow makes the calls of any recorded request; the arguments say
what each needs, so the workflow waits only for the end.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Self, TypeAlias

from benchmarks.oracle.recording import RecordedCall, Tree
from dyorc.authoring import program as authoring
from dyorc.authoring.decisions import choose, gather
from dyorc.authoring.workflow import Workflow, workflow
from dyorc.config import EngineConfig, SpeculationConfig
from dyorc.core.tensor import TensorRef
from dyorc.engine.engine import Engine
from dyorc.engine.events import RequestArrived
from dyorc.simulation.plain_evaluation import tensor_of
from dyorc.simulation.value_draws import draw
from dyorc.simulation.workload import MAX_QUEUED_CALLS, Deployment, Number, Numbers
from dyorc.simulation.world import Machines, World

Times: TypeAlias = "Sequence[tuple[int, float]]"
"""A program's batch sizes, ascending from 1 to the largest, and seconds."""
Edges: TypeAlias = "Callable[[RecordedCall], tuple[int, ...]]"
"""What a call waits for."""


def needs(call: RecordedCall) -> tuple[int, ...]:
    """What the oracle waits for: data."""
    return call.needs


def follows(call: RecordedCall) -> tuple[int, ...]:
    """What schedulers that do not guess wait for: decisions too."""
    return call.follows


def cheapest_size(times: Times) -> int:
    """Returns the measured size at which a call costs least; the larger one if there are two."""
    return min(times, key=lambda time: (time[1] / time[0], -time[0]))[0]


@dataclass
class Tally:
    """Observes a simulated world: how long requests and batches took. The first `num_warmup` requests are not measured."""

    num_warmup: int
    latencies_ns: list[int] = field(default_factory=list[int])
    num_calls: int = 0
    num_batches: int = 0
    device_ns: int = 0
    _arrived_ns: dict[int, int] = field(default_factory=dict[int, int])

    def arrived(self, event: RequestArrived, now_ns: int) -> None:
        self._arrived_ns[event.request_id] = now_ns

    def dispatched(self, program: str, outputs: Sequence[tuple[TensorRef, ...]], execute_ns: int) -> None:
        self.num_calls += len(outputs)
        self.num_batches += 1
        self.device_ns += execute_ns

    def answered(self, request_id: int, tensors: tuple[TensorRef, ...], now_ns: int) -> None:
        if request_id > self.num_warmup:
            self.latencies_ns.append(now_ns - self._arrived_ns[request_id])


@dataclass(frozen=True, eq=False)
class Replay:
    """A workload's recorded requests, ready to be simulated.

    Attributes:
        deployments: The programs, with their measured times.
        workflow: Makes the calls of the request at a given position.
    """

    deployments: tuple[Deployment, ...]
    workflow: Workflow

    @classmethod
    def of(cls, trees: Sequence[Tree], costs: Mapping[str, Times], edges: Edges = needs) -> Self:
        """Makes simulated programs and their workflow.

        Args:
            trees: The calls of each request.
            costs: The costs of each called program.
            edges: What calls wait for.

        Raises:
            KeyError: If a program was not measured.
            InvalidInputError: If sizes are missing from a program's times.
        """
        names = sorted({call.program for tree in trees for call in tree})
        made = {name: _simulated(name, cheapest_size(costs[name])) for name in names}
        return cls(
            tuple(Deployment(program=simulated, measured=costs[name]) for name, simulated in made.items()),
            _walk(made, [_Plan.of(tree, edges) for tree in trees]),
        )

    @property
    def programs(self) -> list[str]:
        """Their names."""
        return [deployment.program.name for deployment in self.deployments]

    def run(
        self,
        requests: Iterator[tuple[int, int]],
        tally: Tally,
        *,
        can_hold: bool,
        num_cores: int | None,
        replicas: Mapping[str, int],
    ) -> None:
        """Simulates requests, given as pairs of an arrival in nanoseconds (ascending) and a position in the recording."""
        guesses = SpeculationConfig(enabled=False)  # there is nothing to guess
        config = EngineConfig(
            max_requests=2**31, request_timeout_s=1e7, hold=can_hold, max_in_flight_batches=1, speculation=guesses
        )
        engine = Engine(config, [deployment.program for deployment in self.deployments])
        world = World(engine, self.deployments, Machines(replicas, link_ns=0, num_cores=num_cores), tally)
        world.run(
            (at_ns, RequestArrived(request_id, self.workflow, (tensor_of(float(position)),)))
            for request_id, (at_ns, position) in enumerate(requests, 1)
        )


@dataclass(frozen=True, slots=True)
class _Plan:
    """Returns each call's program and what the call waits for, and the calls that nothing waits for."""

    calls: tuple[tuple[str, tuple[int, ...]], ...]
    last: tuple[int, ...]

    @classmethod
    def of(cls, tree: Tree, edges: Edges) -> Self:
        awaited = {before for call in tree for before in edges(call)}
        return cls(tuple((call.program, edges(call)) for call in tree), tuple(at for at in range(len(tree)) if at not in awaited))


def _simulated(name: str, max_batch_size: int) -> authoring.Program:
    def run(x: Numbers) -> Numbers:
        return draw(name, x)

    return authoring.program(name=name, max_batch_size=max_batch_size, max_queued_calls=MAX_QUEUED_CALLS)(run)


@workflow
async def both(a: Number, b: Number) -> Number:
    """Returns one of two numbers once both are there. A task takes no time."""
    await gather(a, b)  # pyright: ignore[reportArgumentType]
    return a


def _walk(programs: Mapping[str, authoring.Program], plans: Sequence[_Plan]) -> Workflow:
    """The workflow of all requests."""

    @workflow(name="request", programs=tuple(programs.values()))
    async def request(position: Number) -> Number:
        plan = plans[await choose(position, int)]  # pyright: ignore[reportArgumentType]
        results: list[Any] = []
        for name, before in plan.calls:
            results.append(programs[name](reduce(both, [results[at] for at in before]) if before else position))
        await gather(*[results[at] for at in plan.last])
        return position

    return request
