"""The engine: events in, actions out.

Synchronous and deterministic: no sockets, no Ray, no torch, no clock of its own, no asyncio. The orchestrator feeds it and
carries out what it decides; so do the simulator and the tests, with a clock of theirs. One thread at a time may call it.
"""

from collections.abc import Iterable
from typing import assert_never

from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.config import EngineConfig
from dyorc.engine.actions import Action, AnswerRequest, FailRequest, SetTimer
from dyorc.engine.events import (
    AnswerTaken,
    BatchDone,
    BatchFailed,
    Event,
    LoadFailed,
    PartTaken,
    ReplicaJoined,
    ReplicaLeft,
    RequestArrived,
    RequestCancelled,
    TensorsLost,
    TimerFired,
    ValueFetched,
)
from dyorc.engine.guessing.prediction import Predictor
from dyorc.engine.guessing.speculation import Speculator
from dyorc.engine.leases import Leases
from dyorc.engine.model.cells import Call
from dyorc.engine.scheduling.scheduler import NS_PER_S, Scheduler
from dyorc.engine.statistics import ModelStatistics, Statistics
from dyorc.engine.tasks.runner import TaskRunner
from dyorc.engine.timers import Timer, TimerKind, Timers
from dyorc.errors import CapacityError, DeadlineError, DyOrcError, RequestCancelledError
from dyorc.tensor import blocks_of

_ENDS = (AnswerRequest, FailRequest)


class Engine:
    """Decides what runs, with whom, where and when.

    Args:
        config: Limits.
        programs: What is deployed. Their replicas join later.
        first_batch_id: Batches are numbered from here. Engines that follow each other must not use a number twice: a replica may
            answer the later one with a batch of the earlier.
        predictor: Foretells decisions; by default from how they turned out before.
        statistics: Where to count; an engine that takes over is given those of the one before it.

    Raises:
        ValueError: If two programs have the same name.
    """

    def __init__(
        self,
        config: EngineConfig,
        programs: Iterable[Program],
        first_batch_id: int = 1,
        predictor: Predictor | None = None,
        statistics: Statistics | None = None,
    ) -> None:
        deployed: dict[str, Program] = {}
        for program in programs:
            if deployed.setdefault(program.name, program) is not program:
                raise ValueError(f"two programs are named {program.name!r}")
        self.config = config
        self._actions: list[Action] = []
        self.timers = Timers()
        self.deadlines: dict[int, Timer] = {}
        self.now_ns = 0
        self.leases = Leases()
        self.speculator = Speculator(config.speculation, predictor)
        self._statistics = Statistics() if statistics is None else statistics
        self.tasks = TaskRunner(
            config,
            deployed,
            self.speculator,
            self._statistics,
            self.leases,
            self._submit,
            self._withdraw,
            self._commit,
            self._task_ended,
            self._emit,
        )
        self.scheduler = Scheduler(
            config,
            deployed.values(),
            self.timers,
            self.speculator,
            self._statistics,
            self.leases,
            self.tasks.call_done,
            self.tasks.call_failed,
            self.tasks.call_deferred,
            self.tasks.call_unready,
            self._actions.append,
            first_batch_id,
        )

    def handle(self, events: Iterable[Event], now_ns: int) -> list[Action]:
        """Takes in what happened up to now, together, and says what to do.

        Events given together share batches, so a shell should hand over all that it has.

        Args:
            now_ns: A monotonic clock, in nanoseconds.

        Returns:
            Actions, to be carried out in order.
        """
        self.now_ns = self.scheduler.now_ns = now_ns
        for event in events:
            self._apply(event)
        for timer in self.timers.pop_due(now_ns):
            self._fire(timer)
        self.tasks.run(now_ns)
        self.scheduler.form_batches(now_ns)
        while late := self.scheduler.take_late():
            for call, error in late:
                self.tasks.cancel(call.segment.task.request.request_id, error)
            self.tasks.run(now_ns)
            self.scheduler.form_batches(now_ns)
        at_ns = self.timers.next_announcement()
        if at_ns is not None:
            self._actions.append(SetTimer(at_ns))
        released = self.leases.flush()
        if released is not None:
            self.scheduler.staging.forget(released.blocks)
            self._actions.append(released)
        actions = self._actions[:]
        self._actions.clear()
        return actions

    def statistics(self, name: str, unix_offset_ns: int = 0) -> ModelStatistics:
        """What became of a program's calls or a workflow's requests, as far as it has ended.

        Args:
            unix_offset_ns: What makes Unix time of the times that `handle` is given.
        """
        return self._statistics.of(name, unix_offset_ns)

    def count_lost(self) -> None:
        """This engine is given up: the requests that it has not answered count as failed."""
        for request in self.tasks.requests.values():
            if not request.is_answered:
                self._statistics.ended_without_result(request.record.name, self.now_ns - request.arrived_ns, self.now_ns)

    def _apply(self, event: Event) -> None:
        match event:
            case RequestArrived():
                self._arrive(event)
            case BatchDone():
                self.scheduler.batch_done(event, self.now_ns)
            case BatchFailed():
                self.scheduler.batch_failed(event, self.now_ns)
            case ValueFetched():
                self.scheduler.lose(event.lost)
                self.tasks.fetched(event)
            case AnswerTaken():
                self.scheduler.lose(event.lost)
                self.tasks.answer_taken(event)
            case PartTaken():
                if event.lost:
                    self.scheduler.lose(event.lost)
                self.tasks.part_taken(event)
            case TensorsLost():
                self.scheduler.tensors_lost(event, self.now_ns)
            case RequestCancelled(request_id=request_id):
                self.tasks.cancel(request_id, RequestCancelledError("the request was cancelled"))
            case ReplicaJoined():
                self.scheduler.replica_joined(event)
            case ReplicaLeft(replica_id=replica_id, reason=reason):
                self.scheduler.replica_left(replica_id, reason)
            case LoadFailed():
                self.scheduler.load_failed(event)
            case TimerFired():
                pass  # due timers are looked at after every event
            case _:
                assert_never(event)

    def _arrive(self, event: RequestArrived) -> None:
        error = self._check_room(event)
        if error is not None:
            self._actions.append(FailRequest(event.request_id, error))
            self._statistics.ended_without_result(event.workflow.name, 0, self.now_ns)
            self.leases.refuse(blocks_of(event.inputs))
            return
        deadline_ns = event.terms.deadline_ns
        if deadline_ns is None:
            deadline_ns = self.now_ns + int(self.config.request_timeout_s * NS_PER_S)
        self.deadlines[event.request_id] = self.timers.set(deadline_ns, TimerKind.DEADLINE, event.request_id)
        self.tasks.start(event, deadline_ns, self.now_ns)

    def _check_room(self, event: RequestArrived) -> DyOrcError | None:
        if len(self.tasks.requests) >= self.config.max_requests:
            return CapacityError(f"{len(self.tasks.requests)} requests are in flight, the limit is {self.config.max_requests}")
        return self.scheduler.check_room(event.workflow.programs)

    def _fire(self, timer: Timer) -> None:
        match timer.kind, timer.key:
            case TimerKind.DEADLINE, int(request_id):
                self.tasks.cancel(request_id, DeadlineError("the request's deadline passed before its answer was ready"))
            case TimerKind.EXECUTION, int(batch_id):
                self.scheduler.execution_timed_out(batch_id)
            case TimerKind.POOL, str(program):
                self.scheduler.touch(program)
            case _:
                raise AssertionError(f"timer {timer.kind} with key {timer.key!r}")

    def _submit(self, call: Call) -> None:
        self.scheduler.submit(call, self.now_ns)

    def _withdraw(self, call: Call) -> None:
        self.scheduler.withdraw(call)

    def _commit(self, call: Call) -> None:
        self.scheduler.commit(call)

    def _task_ended(self, workflow: Workflow, duration_ns: int) -> None:
        self.scheduler.task_ended(workflow, duration_ns)

    def _emit(self, action: Action) -> None:
        if isinstance(action, _ENDS):
            timer = self.deadlines.pop(action.request_id, None)
            if timer is not None:
                self.timers.cancel(timer)
                self._count(action)
        self._actions.append(action)

    def _count(self, action: AnswerRequest | FailRequest) -> None:
        request = self.tasks.requests[action.request_id]
        took_ns = self.now_ns - request.arrived_ns
        if isinstance(action, AnswerRequest):
            request.record.answered(took_ns, self.now_ns)
        elif isinstance(action.error, DeadlineError | RequestCancelledError):
            self._statistics.ended_without_result(request.record.name, took_ns, self.now_ns)
        else:
            request.record.failed(took_ns, self.now_ns)
