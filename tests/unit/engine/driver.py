"""A world around an engine: a clock that the test moves, replicas that finish a batch when the test says so.

Every event goes through `World.tell`, which checks all invariants of the engine, and the promises that only the outside can see:
each request is answered once, each block of stored tensors released once, never while a batch reads it and never used after that,
and batches go to replicas that exist.
"""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from dyorc.authoring.call_style import CallStyle
from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.config import EngineConfig
from dyorc.core.arrays import Array, as_array, as_value
from dyorc.core.request import Terms
from dyorc.core.tensor import BlockId, TensorRef, blocks_of
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
from dyorc.engine.engine_context import Host
from dyorc.engine.events import (
    AnswerTaken,
    BatchDone,
    BatchFailed,
    BatchPart,
    Event,
    HolderJoined,
    InputPartsTaken,
    LoadFailed,
    PartTaken,
    ProgramAdded,
    ReplicaJoined,
    ReplicaLeft,
    ReplicasWanted,
    RequestArrived,
    RequestCancelled,
    TensorsLost,
    TimerFired,
    ValueFetched,
)
from dyorc.engine.guessing.prediction import Predictor
from dyorc.engine.invariants import check_all
from dyorc.engine.request_trace import RequestTrace
from dyorc.errors import DyOrcError, RequestCancelledError
from dyorc.replica.batch_results import BatchError
from dyorc.replica.executor import ProgramExecutor
from dyorc.replica.resident_table import ResidentRows
from tests.unit.engine.dispatched import Dispatched
from tests.unit.engine.received_parts import ReceivedParts
from tests.unit.engine.running_call import RunningCall, digest_of
from tests.unit.engine.tensor_store import TensorStore


@dataclass
class World:
    """An engine and all that it acts on.

    Args:
        programs: What is deployed. Their replicas join when the test says so.
        config: Limits of the engine.
        is_storing: Keep every tensor aside in a block of its own, as a shell does with large ones.
        is_placing: Keep outputs with the replica that made them: those of one column of a batch share a block.
        is_fetching: Answer `FetchValue` at once; else the test does so with `fetch`.
        is_taking: Read stored answers, and all parts, at once; else the test does so with `take` and `take_part`.
        predictor: Foretells decisions, instead of the engine's own.
        host: What the shell keeps from one engine to the next.
    """

    programs: Iterable[Program]
    config: EngineConfig = field(default_factory=EngineConfig)
    is_storing: bool = False
    is_fetching: bool = True
    predictor: Predictor | None = None
    is_placing: bool = False
    is_taking: bool = True
    host: Host | None = None

    def __post_init__(self) -> None:
        self.engine = Engine(self.config, self.programs, self.host, self.predictor)
        self.now_ns = 1_000_000_000
        self.wake_ns: int | None = None
        self.in_flight: dict[int, Dispatched] = {}
        self.history: list[Dispatched] = []
        self.not_run: list[Dispatched] = []
        """Batches that did not get their inputs."""
        self.answers: dict[int, list[Array] | DyOrcError] = {}
        self.store = store = TensorStore(is_storing=self.is_storing)
        self.stored, self.released, self.vanished, self.gone = store.stored, store.released, store.vanished, store.gone
        self.keep, self.read, self.vanish, self.process_of = store.keep, store.read, store.vanish, store.process_of
        self.fetches: dict[int, tuple[TensorRef, ...]] = {}
        self.untaken: dict[int, tuple[TensorRef, ...]] = {}
        self.received = received = ReceivedParts(self.config.max_untaken_parts)
        self.parts, self.waiting_parts, self.num_parts = received.taken, received.waiting, received.num_sent
        self.next_part, self.takable = received.next, received.takable
        self.staged: list[StageTensors] = []
        self.stories: dict[int, RequestTrace] = {}
        self.replaced: list[str] = []
        self.failed_effects: list[EffectFailed] = []
        self.starved: list[tuple[str, str]] = []
        self.failed_rebuilds: list[RebuildFailed] = []
        self.parked: dict[str, str] = {}
        """Replicas that hold no program, but their tensors; each with the program it had."""
        self.workflows: dict[int, Workflow] = {}
        self._replicas: dict[str, str] = {}
        self._num_joined = 0
        self.running: dict[int, RunningCall] = {}
        """Calls of programs that wait or yield, by batch."""
        self.fed: dict[tuple[int, int], dict[int, list[BlockId]]] = {}
        """Blocks of parts that batches were fed with, and have not said that they have read, by batch and stream."""
        self.ended_calls: list[RunningCall] = []
        self._executors = {program.name: ProgramExecutor.load(program) for program in self.programs}

    # Events

    def join(self, program: Program, replica_id: str = "", node: str = "", num_cores: int = 0, process: str = "") -> str:
        """Adds a replica that is ready, in a process that holds residents; by default one of its own."""
        replica_id = replica_id or f"{program.name}#{self._num_joined}"
        self._num_joined += 1
        self._replicas[replica_id] = program.name
        self.store.join(replica_id, node, process or replica_id)
        self.tell(ReplicaJoined(replica_id, program.name, node, num_cores, process))
        return replica_id

    def add(self, program: Program) -> None:
        """Deploys another program."""
        self._executors.setdefault(program.name, ProgramExecutor.load(program))
        self.tell(ProgramAdded(program))

    def want(self, program: Program, num_warm: int, lead_s: float = 0.0, misplaced: tuple[str, ...] = ()) -> None:
        """Says how many replicas a program should have."""
        self.tell(ReplicasWanted(program.name, num_warm, lead_s, misplaced))

    def warm(self, replica_id: str) -> None:
        """Has a parked replica load its program again."""
        program, process = self.parked.pop(replica_id), self.process_of[replica_id]
        self.tell(ReplicaJoined(replica_id, program, self.store.nodes[replica_id], process=process))

    def leave(self, replica_id: str) -> None:
        """Lets a replica die, with its batches."""
        self.forget(replica_id)
        self.tell(ReplicaLeft(replica_id))

    def fail_load(self, program: Program, message: str = "no weights") -> None:
        self.tell(LoadFailed(program.name, "OSError", message))

    def arrival(
        self,
        workflow: Workflow,
        *values: Any,
        deadline_s: float | None = None,
        priority: int = 0,
        node: str = "",
        explain: bool = False,
        tenant: str = "",
        weight: float = 1.0,
        identity: Hashable = None,
        holder: str = "",
        **statics: Any,
    ) -> RequestArrived:
        """Returns the event of a new request. `deadline_s` counts from now, `holder` has its inputs."""
        request_id = len(self.workflows) + 1
        self.workflows[request_id] = workflow
        tensors, parameters = workflow.signature.bind(values, statics)
        inputs = tuple(
            self.keep(as_array(value, spec.dtype, spec.name), node, holder)
            for spec, value in zip(workflow.signature.inputs, tensors, strict=True)
        )
        deadline_ns = None if deadline_s is None else self.now_ns + int(deadline_s * 1e9)
        terms = Terms(deadline_ns=deadline_ns, priority=priority, tenant=tenant, weight=weight)
        story = None
        if explain:
            story = self.stories[request_id] = RequestTrace(request_id, self.now_ns)
        return RequestArrived(request_id, workflow, inputs, parameters, terms, identity, story)

    def submit(self, workflow: Workflow, *values: Any, **options: Any) -> int:
        """Makes a request arrive and returns its id."""
        event = self.arrival(workflow, *values, **options)
        self.tell(event)
        return event.request_id

    def submit_all(self, workflow: Workflow, values: Iterable[Any], **options: Any) -> list[int]:
        """Makes several requests of one input arrive together."""
        events = [self.arrival(workflow, value, **options) for value in values]
        self.tell(*events)
        return [event.request_id for event in events]

    def cancel(self, request_id: int) -> None:
        self.tell(RequestCancelled(request_id))

    def gateway_joins(self, holder: str) -> None:
        """Adds a process that holds inputs."""
        self.tell(HolderJoined(holder))

    def gateway_returns(self, holder: str, pending: Iterable[RequestArrived]) -> list[RequestArrived]:
        """Breaks the connection of a gateway, and lets it come back and submit again what is pending, with the same inputs.

        Returns:
            The new requests.
        """
        pending = list(pending)
        self.store.gateway_left(holder)
        given_up: list[Event] = [ReplicaLeft(holder)]
        for event in pending:
            self.untaken.pop(event.request_id, None)
            given_up += [RequestCancelled(event.request_id), AnswerTaken(event.request_id)]
        self.tell(*given_up)
        for event in pending:  # nobody learns of an answer that is untaken
            self.answers.setdefault(event.request_id, RequestCancelledError("its gateway has left"))
        again: list[RequestArrived] = []
        for event in pending:
            request_id = len(self.workflows) + 1
            self.workflows[request_id] = event.workflow
            again.append(msgspec.structs.replace(event, request_id=request_id))
            self.store.announce(event.inputs)
        self.tell(HolderJoined(holder), *again)
        return again

    def finish(self, batch: Dispatched | None = None, execute_s: float = 0.01) -> None:
        """Runs a batch (by default the oldest) to its end, with its results or with what its program raises. One that waits or
        yields only goes on to its next part, or as far as it can."""
        batch = batch or self.oldest()
        if batch.action.batch_id in self.running and not batch.lost:
            self.tell(*self.step(batch))
        else:
            self.tell(self.outcome(batch, execute_s))

    def finish_all(self) -> None:
        """Runs batches, oldest first, until none is in flight, or none can go on."""
        for _ in range(1000):
            batch = self.next_batch()
            if batch is None:
                return
            self.finish(batch)
        raise AssertionError("after 1000 batches there are still more")

    def next_batch(self) -> Dispatched | None:
        """Returns the oldest batch that can go on: that is neither without credit nor without parts to read."""
        return next((batch for batch in self.in_flight.values() if self.can_go_on(batch)), None)

    def can_go_on(self, batch: Dispatched) -> bool:
        call = self.running.get(batch.action.batch_id)
        return call is None or call.can_go_on

    def step(self, batch: Dispatched | None = None) -> list[Event]:
        """Returns what a batch of a program that waits or yields (by default the oldest of all) does next."""
        batch = batch or self.oldest()
        action, call = batch.action, self.running[batch.action.batch_id]
        events: list[Event] = []
        try:
            went_on = call.go_on()
        except Exception as error:
            call.closed = True
            self._end_call(batch)
            events.append(BatchFailed(action.replica_id, action.batch_id, type(error).__name__, str(error)))
        else:
            if went_on is not None:
                kind, arrays = went_on
                tensors = tuple(self._results(arrays, action.replica_id))
                if kind == "part":
                    digest = digest_of(arrays) if call.program.options.is_repeatable else b""
                    events.append(BatchPart(action.replica_id, action.batch_id, call.num_parts - 1, tensors, digest))
                else:
                    self._end_call(batch)
                    events.append(BatchDone(action.replica_id, action.batch_id, [tensors], 0.01))
        for at, stream in enumerate(call.inputs):
            if stream.num_taken > stream.num_told:
                stream.num_told = stream.num_taken
                events.insert(0, InputPartsTaken(action.replica_id, action.batch_id, at, stream.num_taken))
                fed = self.fed.get((action.batch_id, at), {})
                for index in [index for index in fed if index < stream.num_taken]:
                    del fed[index]
        return events

    def _end_call(self, batch: Dispatched) -> None:
        del self.in_flight[batch.action.batch_id]
        self.ended_calls.append(self.running.pop(batch.action.batch_id))

    def _results(self, arrays: list[Array], holder: str) -> list[TensorRef]:
        if self.is_placing:
            return [tensor for array in arrays for tensor in self.store.place([array], holder)]
        return [self.keep(np.asarray(array)) for array in arrays]

    def outcome(self, batch: Dispatched, execute_s: float = 0.01) -> BatchDone | BatchFailed | TensorsLost:
        """Takes a batch off its replica and returns the event that says how it ended."""
        action = batch.action
        del self.in_flight[action.batch_id]
        if batch.lost:
            self.not_run.append(batch)
            return TensorsLost(action.replica_id, action.batch_id, batch.lost)
        result = self._executors[batch.program].run(batch.columns, action.statics, chain=action.chain)
        if isinstance(result, BatchError):
            return BatchFailed(
                action.replica_id, action.batch_id, result.error_type, result.message, result.traceback, input_at=result.input_at
            )
        columns: list[list[TensorRef]] = []
        for column in result.outputs:
            if isinstance(column, ResidentRows):
                columns.append(self.store.hold(column, action.replica_id))
            elif self.is_placing:
                columns.append(self.store.place(list(column), action.replica_id))
            else:
                columns.append([self.keep(np.asarray(array)) for array in column])
        outputs = [tuple(row) for row in zip(*columns, strict=True)]
        return BatchDone(action.replica_id, action.batch_id, outputs, execute_s)

    def lose_inputs(self, batch: Dispatched | None = None, blocks: list[BlockId] | None = None) -> None:
        """Ends a batch (by default the oldest) that could not run because these blocks (by default all) cannot be read."""
        batch = batch or self.oldest()
        del self.in_flight[batch.action.batch_id]
        self.not_run.append(batch)
        if blocks is None:
            blocks = list(dict.fromkeys(block for operands in batch.action.operands for block in blocks_of(operands)))
        self.tell(TensorsLost(batch.action.replica_id, batch.action.batch_id, blocks))

    def fail(self, batch: Dispatched | None = None, message: str = "out of memory") -> None:
        """Ends a batch (by default the oldest) with an error, whatever its program would do."""
        batch = batch or self.oldest()
        del self.in_flight[batch.action.batch_id]
        self.tell(BatchFailed(batch.action.replica_id, batch.action.batch_id, "RuntimeError", message))

    def fetch(self) -> None:
        """Delivers the values that were asked for, or reports that they were lost."""
        fetches, self.fetches = self.fetches, {}
        events: list[Event] = []
        for fetch_id, tensors in fetches.items():
            arrays, lost = self.read(tensors)
            events.append(ValueFetched(fetch_id, tuple(arrays), lost=lost))
        self.tell(*events)

    def take(self) -> None:
        """Reads answers, or reports that they were lost."""
        untaken, self.untaken = self.untaken, {}
        events: list[Event] = []
        for request_id, tensors in untaken.items():
            arrays, lost = self.read(tensors)
            if not lost:
                self.answers[request_id] = arrays
            events.append(AnswerTaken(request_id, lost))
        self.tell(*events)

    def take_part(self, request_id: int) -> bool:
        """Reads the next part of a request, or reports that it was lost. Returns whether it was read."""
        index = self.next_part(request_id)
        assert index is not None, f"no part of request {request_id} can be read"
        arrays, lost = self.read(self.waiting_parts[request_id].pop(index))
        if not lost:
            self.parts.setdefault(request_id, []).append(arrays)
        self.tell(PartTaken(request_id, index, lost))
        return not lost

    def part_values(self, request_id: int) -> list[Any]:
        """Returns the parts that were read, in the user's grouping."""
        outputs = self.workflows[request_id].signature.outputs
        return [outputs.build([as_value(array) for array in arrays]) for arrays in self.parts.get(request_id, ())]

    def advance(self, seconds: float) -> None:
        """Moves the clock on, and fires the timer whenever the engine has set it."""
        end_ns = self.now_ns + int(seconds * 1e9)
        while self.wake_ns is not None and self.wake_ns <= end_ns:
            self.now_ns, self.wake_ns = max(self.now_ns, self.wake_ns), None
            self.tell(TimerFired())
        self.now_ns = end_ns

    # Observations

    def oldest(self) -> Dispatched:
        return next(iter(self.in_flight.values()))

    def batches(self, program: Program) -> list[Dispatched]:
        """Returns a program's batches in flight, oldest first."""
        return [batch for batch in self.in_flight.values() if batch.action.program is program]

    def sizes(self, program: Program) -> list[int]:
        """Returns the sizes of all batches that a program was ever sent, in order."""
        return [batch.size for batch in self.history if batch.action.program is program]

    def result(self, request_id: int) -> Any:
        """Returns what a request was answered with, in the user's grouping.

        Raises:
            DyOrcError: What it failed with.
        """
        answer = self.answers[request_id]
        if isinstance(answer, DyOrcError):
            raise answer
        return self.workflows[request_id].signature.outputs.build([as_value(array) for array in answer])

    def check_nothing_is_left(self) -> None:
        """Checks that all requests were answered, all stored tensors released, and that the engine remembers nothing of them."""
        assert self.workflows.keys() == self.answers.keys()
        assert not self.engine.tasks.requests
        assert not self.stored
        assert not self.vanished, "a block was not released, though its holder is there"
        assert not self.untaken
        assert not any(self.waiting_parts.values())
        assert not self.engine.leases.counts
        assert not self.engine.leases.absent_counts
        assert not self.engine.leases.lost
        assert not len(self.engine.scheduler.staging)
        assert not self.in_flight
        assert not self.running
        assert all(call.closed for call in self.ended_calls), "a generator was left open"
        assert not self.engine.tasks.answering.deadlines
        assert all(
            not len(pool.queue) and not len(pool.guesses) and not len(pool.suspects)
            for pool in self.engine.scheduler.pools.values()
        )
        assert abs(self.engine.speculator.total.reserved_s) < 1e-9

    # Mechanics

    def tell(self, *events: Event) -> None:
        """Hands events to the engine, carries out what it says, and checks every invariant. Turns that it asks for at once
        follow, each a millisecond after the one before.
        """
        self._tell(events)
        while self.engine.turn.postponed:
            self.now_ns += 1_000_000
            self._tell((TimerFired(),))

    def _tell(self, events: Iterable[Event]) -> None:
        actions = self.engine.handle(events, self.now_ns)
        check_all(self.engine)
        for action in actions:
            self._carry_out(action)
        num_releases = sum(isinstance(action, ReleaseTensors) for action in actions)
        makes_room = bool(self.engine.scheduler.processes.by_name)  # residents are dropped before others take their place
        assert num_releases <= 1 or makes_room, "releases are not told together"
        if self.is_fetching and self.fetches:
            self.fetch()
        if self.is_taking and self.untaken:
            self.take()
        if self.is_taking and (takable := self.takable()):
            self.take_part(takable[0])

    def _carry_out(self, action: Action) -> None:
        match action:
            case DispatchBatch():
                assert self._replicas.get(action.replica_id) == action.program.name, f"batch for a replica that is gone: {action}"
                assert action.replica_id not in self.parked, f"batch for a parked replica: {action}"
                used = {block for operands in action.operands for block in blocks_of(operands)}
                assert not used & self.gone, f"a batch is sent to read {used & self.gone}, whose holders are gone"
                columns = [self.read(column) for column in zip(*action.operands, strict=True)]
                lost = list(dict.fromkeys(block for _, missing in columns for block in missing))
                batch = self.in_flight[action.batch_id] = Dispatched(action, [arrays for arrays, _ in columns], lost)
                self.history.append(batch)
                if action.program.style is not CallStyle.PLAIN and not lost:
                    self.running[action.batch_id] = RunningCall(action, batch.columns)
            case GrantParts(batch_id=batch_id, max_parts=max_parts):
                assert max_parts > self.running[batch_id].max_parts
                self.running[batch_id].max_parts = max_parts
            case CancelBatch(batch_id=batch_id):
                assert not self.running[batch_id].is_cancelled, f"batch {batch_id} was cancelled twice"
                self.running[batch_id].is_cancelled = True
            case FeedPart():
                self._feed(action)
            case AnswerRequest(request_id=request_id, tensors=tensors):
                assert request_id not in self.answers, f"request {request_id} was answered twice"
                assert request_id not in self.untaken, f"request {request_id} was answered twice"
                assert not self.waiting_parts.pop(request_id, None), f"request {request_id} has parts that were not taken"
                if blocks_of(tensors):
                    self.untaken[request_id] = tensors
                else:
                    self.answers[request_id] = [self.store.array(tensor) for tensor in tensors]
            case AnswerPart(request_id=request_id, index=index, tensors=tensors):
                assert request_id not in self.answers, f"request {request_id} was answered before its part {index}"
                self.received.add(request_id, index, tensors)
            case FailRequest(request_id=request_id, error=error):
                self.waiting_parts.pop(request_id, None)
                assert request_id not in self.answers, f"request {request_id} was answered twice"
                assert request_id not in self.untaken, f"request {request_id} was answered twice"
                self.answers[request_id] = error
            case ReleaseTensors(blocks=blocks):
                self._release(blocks)
            case FetchValue(fetch_id=fetch_id, tensors=tensors):
                assert not self.gone.intersection(blocks_of(tensors)), "a value is asked for whose holder is gone"
                self.fetches[fetch_id] = tensors
            case StageTensors():
                assert action.replica_id in self._replicas
                assert self.gone.isdisjoint(blocks_of(action.tensors))
                assert self.released.isdisjoint(blocks_of(action.tensors))
                self.staged.append(action)
            case SetTimer(at_ns=at_ns):
                self.wake_ns = at_ns
            case ParkReplica(replica_id=replica_id):
                assert all(batch.action.replica_id != replica_id for batch in self.in_flight.values()), f"{replica_id} is busy"
                self.parked[replica_id] = self._replicas[replica_id]
            case EffectFailed():
                self.failed_effects.append(action)
            case ProgramStarved():
                self.starved.append((action.program, action.error))
            case RebuildFailed():
                self.failed_rebuilds.append(action)
            case ReplaceReplica(replica_id=replica_id):
                self.replaced.append(replica_id)
                self.forget(replica_id)

    def _feed(self, action: FeedPart) -> None:
        call = self.running.get(action.batch_id)
        if call is None:
            return  # it has ended meanwhile
        stream = call.inputs[action.stream]
        assert action.index == stream.num_fed, f"part {action.index} was fed after {stream.num_fed}"
        if action.is_end:
            stream.end(action.error)
            return
        arrays, lost = self.read(action.tensors)
        assert not lost, f"{lost} were fed and cannot be read"
        stream.feed(arrays)
        self.fed.setdefault((action.batch_id, action.stream), {})[action.index] = blocks_of(action.tensors)

    def _release(self, blocks: Iterable[BlockId]) -> None:
        for block in blocks:
            for batch in self.in_flight.values():
                used = [each for operands in batch.action.operands for each in blocks_of(operands)]
                used += [
                    each
                    for (batch_id, _), fed in self.fed.items()
                    if batch_id == batch.action.batch_id
                    for blocks in fed.values()
                    for each in blocks
                ]
                assert block not in used, f"{block} is released while a batch reads it"
            assert all(block not in blocks_of(tensors) for tensors in self.fetches.values()), f"{block} is being fetched"
            assert all(block not in blocks_of(tensors) for tensors in self.untaken.values()), f"{block} is an answer"
            for request_id in self.takable():
                assert block not in self.received.blocks(request_id), f"{block} is in a part of request {request_id}"
            self.store.release(block)

    def forget(self, replica_id: str) -> None:
        """Lets a replica die with its batches and all that it holds, without telling the engine."""
        del self._replicas[replica_id]
        self.parked.pop(replica_id, None)
        self.store.leave(replica_id)
        self.in_flight = {key: batch for key, batch in self.in_flight.items() if batch.action.replica_id != replica_id}
        for key in self.running.keys() - self.in_flight.keys():
            self.running.pop(key).close()
