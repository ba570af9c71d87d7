"""The world around an engine: a clock that jumps from event to event, and replicas that only take time.

A replica runs its batches one after the other, in the order they arrive; with fewer cores than replicas, batches also wait for
cores, in the order they were sent. So the end of a batch is known when it is sent, and a batch is one event, for any number
of replicas. The world reads no clock, draws no random number and iterates over no set: the same requests give the same
run. One thread.
"""

import heapq
from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias, assert_never

from dyorc.authoring.program import Program
from dyorc.core.arrays import apply_views
from dyorc.core.tensor import TensorRef
from dyorc.engine.actions import (
    Action,
    AnswerPart,
    AnswerRequest,
    CancelBatch,
    DispatchBatch,
    EffectFailed,
    FailRequest,
    FeedPart,
    FetchValue,
    GrantParts,
    ParkReplica,
    ProgramStarved,
    RebuildFailed,
    ReleaseTensors,
    ReplaceReplica,
    SetTimer,
    StageTensors,
)
from dyorc.engine.engine import Engine
from dyorc.engine.events import BatchDone, Event, PartTaken, ReplicaJoined, RequestArrived, TimerFired, ValueFetched
from dyorc.errors import DeadlineError, InternalError, InvalidInputError
from dyorc.simulation.plain_evaluation import operand_of, tensor_of
from dyorc.simulation.reading import ReadingCalls
from dyorc.simulation.residents import SimulatedResidents, process_of
from dyorc.simulation.value_draws import value_of
from dyorc.simulation.workload import NS_PER_S, Deployment
from dyorc.simulation.yielding import YieldingCalls

Deed: TypeAlias = Callable[[], Sequence[Event]]
"""Something that happens in a world at a time; it returns events for the engine."""

_Scheduled: TypeAlias = "BatchDone | ValueFetched | PartTaken | Deed | int"
"""What the heap holds; a number is a timer of the engine, which counts only if it is the last one set."""


class WorldObserver(Protocol):
    """Sees what happens in a world."""

    def arrived(self, event: RequestArrived, now_ns: int) -> None:
        """Observes a request that arrives."""
        ...

    def dispatched(self, program: str, outputs: Sequence[tuple[TensorRef, ...]], execute_ns: int) -> None:
        """Observes a batch that is sent; `outputs` is what each of its calls will return, `execute_ns` its cost. A call that
        reads a stream is observed when it ends."""
        ...

    def answered(self, request_id: int, tensors: tuple[TensorRef, ...], now_ns: int) -> None:
        """Observes an answer; of a request that streams, the tensors of all its parts."""
        ...


class Scaling(Protocol):
    """Changes how many replicas there are while a world runs."""

    def begin(self, world: "World") -> Sequence[Event]:
        """Returns the first events for the engine."""
        ...

    def parked(self, replica_id: str) -> None:
        """Takes a replica that the engine has released."""
        ...

    def turned(self) -> Sequence[Event]:
        """Returns more events for the engine after one of its turns, at the same time."""
        ...


@dataclass(frozen=True, slots=True)
class Machines:
    """What programs run on.

    Attributes:
        replicas: Replicas by program; or what changes their number.
        link_ns: One way between engine and replica.
        num_cores: How many batches can run at the same time on all replicas; None: no limit. A batch starts
            when its replica and a core are free, and runs to its end.
    """

    replicas: Mapping[str, int] | Scaling
    link_ns: int = 100_000
    num_cores: int | None = None

    def __post_init__(self) -> None:
        if self.num_cores is not None and self.num_cores < 1:
            raise InvalidInputError(f"the world gets {self.num_cores} cores, expected at least 1")


class World:
    """Runs an engine in virtual time, from 0 ns on.

    Args:
        engine: The engine, with the programs of `deployments` and no replica yet.
        deployments: What the programs cost.
        observer: Observes what happens.
        missed: Called with each request that misses its deadline, and when; by default that is an error, too.

    Attributes:
        residents: What its processes hold.

    Cost: per batch one push and one pop of a heap; the heap holds what is in flight, and one arrival.
    """

    def __init__(
        self,
        engine: Engine,
        deployments: Sequence[Deployment],
        machines: Machines,
        observer: WorldObserver,
        missed: Callable[[int, int], None] | None = None,
    ) -> None:
        self.now_ns = 0
        self._engine = engine
        self._observer = observer
        self._link_ns = machines.link_ns
        self._missed = missed
        self._costs_ns = {
            d.program.name: [d.batch_ns(size) for size in range(d.program.options.max_batch_size + 1)] for d in deployments
        }
        self._by_cost = {d.program.name: d for d in deployments if d.program.call_cost is not None}

        def after(after_ns: int, deed: Deed) -> None:
            self.at(self.now_ns + after_ns, deed)

        self._yielding = YieldingCalls(deployments, after, self._link_ns)
        self._reading = ReadingCalls(deployments, after, self._link_ns, observer.dispatched)
        self._deployments = {d.program.name: d for d in deployments}
        self.residents = SimulatedResidents()
        self._compute = {d.program.name: d.compute or partial(_drawn, d.program) for d in deployments}
        self._replicas = machines.replicas
        self._scaling = None if isinstance(machines.replicas, Mapping) else machines.replicas
        self._parts: dict[int, list[TensorRef]] = {}
        self._free_ns: dict[str, int] = {}
        """When each replica has run what it was sent; the replicas of a process take turns."""
        self._processes: dict[str, str] = {}
        self._cores_ns = None if machines.num_cores is None else [0] * machines.num_cores
        """When each core has run what was given to it, ascending."""
        self._heap: list[tuple[int, int, _Scheduled]] = []
        self._num_pushed = 0
        self._num_timers = 0
        self._num_open = 0

    def run(self, arrivals: Iterator[tuple[int, RequestArrived]]) -> None:
        """Lets requests arrive (times in ns, ascending) until all of them are answered.

        Raises:
            InternalError: If one fails, or the engine forgets one.
        """
        self._tell(self._first_events())
        heap = self._heap
        following = next(arrivals, None)
        while following is not None or self._num_open:
            if not heap and following is None:
                raise InternalError(f"the engine went to sleep with {self._num_open} requests in flight")
            self.now_ns = now_ns = min(entry[0] for entry in (following, *heap[:1]) if entry is not None)
            events: list[Event] = []
            while following is not None and following[0] == now_ns:
                self._num_open += 1
                self._observer.arrived(following[1], now_ns)
                events.append(following[1])
                following = next(arrivals, None)
            while heap and heap[0][0] == now_ns:
                scheduled = heapq.heappop(heap)[2]
                if isinstance(scheduled, int):
                    if scheduled == self._num_timers:
                        events.append(TimerFired())
                elif callable(scheduled):
                    events += scheduled()
                else:
                    events.append(scheduled)
            if events:
                self._tell(events)

    def at(self, at_ns: int, deed: Deed) -> None:
        """Schedules a deed."""
        self._schedule(max(at_ns, self.now_ns), deed)

    def join(self, replica_id: str, program: str, process: str = "") -> ReplicaJoined:
        """Adds a replica. Returns the event for the engine."""
        self._processes[replica_id] = process or replica_id
        self._free_ns[process or replica_id] = self.now_ns
        return ReplicaJoined(replica_id, program, process=process)

    def _first_events(self) -> Sequence[Event]:
        if not isinstance(self._replicas, Mapping):
            return self._replicas.begin(self)
        return [
            self.join(f"{name}#{at}", name, process_of(self._deployments[name].program, at))
            for name, number in self._replicas.items()
            for at in range(number)
        ]

    def _tell(self, events: Sequence[Event]) -> None:
        while events:
            for action in self._engine.handle(events, self.now_ns):
                self._carry_out(action)
            events = () if self._scaling is None else self._scaling.turned()

    def _carry_out(self, action: Action) -> None:
        match action:
            case DispatchBatch():
                self._dispatch(action)
            case AnswerRequest(request_id=request_id, tensors=tensors):
                self._num_open -= 1
                self._observer.answered(request_id, (*self._parts.pop(request_id, ()), *tensors), self.now_ns)
            case AnswerPart(request_id=request_id, index=index, tensors=tensors):
                self._parts.setdefault(request_id, []).extend(tensors)
                self._schedule(self.now_ns, PartTaken(request_id, index))  # a simulated consumer is never slow
            case SetTimer(at_ns=at_ns):
                self._num_timers += 1
                self._schedule(max(at_ns, self.now_ns), self._num_timers)
            case FetchValue(fetch_id=fetch_id, tensors=tensors):
                arrays = tuple(apply_views(tensor.data, tensor.views) for tensor in tensors)
                self._schedule(self.now_ns + 2 * self._link_ns, ValueFetched(fetch_id, arrays))
            case ReleaseTensors(blocks=blocks):
                self.residents.release(blocks)
            case StageTensors():
                pass  # values travel inline; nothing is stored
            case FailRequest(request_id=request_id, error=DeadlineError()) if self._missed is not None:
                self._num_open -= 1
                self._missed(request_id, self.now_ns)
            case FailRequest(request_id=request_id, error=error):
                raise InternalError(f"simulated request {request_id} failed: {error}") from error
            case ProgramStarved(program=program, error=error):
                raise InternalError(f"simulated program {program!r} has no memory: {error}")
            case EffectFailed(workflow=workflow, error=error):
                raise InternalError(f"an effect of simulated workflow {workflow!r} failed: {error}") from error
            case ParkReplica(replica_id=replica_id):
                if self._scaling is None:
                    raise InternalError(f"the engine parks simulated replica {replica_id}, and nothing was said of their number")
                self._scaling.parked(replica_id)
            case GrantParts():
                self._yielding.grant(action)
                self._reading.grant(action)
            case CancelBatch():
                self._yielding.cancel(action)
                self._reading.cancel(action)
            case FeedPart():
                self._reading.feed(action)
            case ReplaceReplica(replica_id=replica_id, reason=reason):
                raise InternalError(f"the engine gave up simulated replica {replica_id}: {reason}")
            case RebuildFailed():
                raise InternalError(f"a resident was to be rebuilt, and simulated programs have no `rebuild`: {action}")
            case _:
                assert_never(action)

    def _dispatch(self, action: DispatchBatch) -> None:
        """Sends a batch to its replica, which runs it after those before it; its result takes the same way back."""
        name = action.program.name
        if action.program.signature.streams:
            self._reading.dispatch(action)
            return
        if action.program.is_streaming:
            parts, execute_ns = self._yielding.dispatch(action)
            self._observer.dispatched(name, parts[:1], execute_ns)
            return
        if name in self._by_cost:
            execute_ns = self._by_cost[name].cost_ns(action.operands, action.statics)
        else:
            execute_ns = self._costs_ns[name][len(action.operands)]
        process = self._processes[action.replica_id]
        ready_ns = max(self.now_ns + self._link_ns, self._free_ns[process])
        end_ns = self._free_ns[process] = self._occupy(ready_ns, execute_ns)
        if action.program.signature.residents:
            outputs = self.residents.outputs(action, process, self._deployments[name])
        else:
            outputs = [self._compute[name](operands) for operands in action.operands]
        self._observer.dispatched(name, outputs, execute_ns)
        done = BatchDone(action.replica_id, action.batch_id, outputs, execute_ns / NS_PER_S)
        self._schedule(end_ns + self._link_ns, done)

    def _occupy(self, ready_ns: int, execute_ns: int) -> int:
        """Returns when a batch ends that is ready at `ready_ns`. It takes the core that became free last: others
        need the rest earlier."""
        cores_ns = self._cores_ns
        if cores_ns is None:
            return ready_ns + execute_ns
        free_ns = cores_ns.pop(max(0, bisect_right(cores_ns, ready_ns) - 1))
        end_ns = max(ready_ns, free_ns) + execute_ns
        insort(cores_ns, end_ns)
        return end_ns

    def _schedule(self, at_ns: int, scheduled: _Scheduled) -> None:
        self._num_pushed += 1
        heapq.heappush(self._heap, (at_ns, self._num_pushed, scheduled))


def _drawn(program: Program, operands: Sequence[TensorRef]) -> tuple[TensorRef, ...]:
    return (tensor_of(value_of(program, [operand_of(tensor) for tensor in operands])),)
