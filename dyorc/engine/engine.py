"""The engine: events in, actions out.

Synchronous and deterministic: no sockets, no Ray, no torch, no clock, no asyncio. The orchestrator feeds it and carries out what
it decides; so do the simulator and the tests, with their own clocks. One thread at a time may call it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias, assert_never

from dyorc.authoring.program import Program
from dyorc.authoring.workflow import Workflow
from dyorc.config import EngineConfig
from dyorc.core.request import counted_name, shadow_name
from dyorc.core.tensor import blocks_of
from dyorc.engine.actions import Action, FailRequest, SetTimer
from dyorc.engine.engine_context import EngineContext, Host
from dyorc.engine.events import (
    AnswerTaken,
    BatchDone,
    BatchFailed,
    BatchPart,
    BatchUnsent,
    Event,
    HolderJoined,
    InputPartsTaken,
    LoadFailed,
    PartTaken,
    ProgramAdded,
    ProgramRemoved,
    ReplicaJoined,
    ReplicaLeaving,
    ReplicaLeft,
    ReplicasWanted,
    RequestArrived,
    RequestCancelled,
    SuspectsReported,
    TensorsLost,
    TimerFired,
    ValueFetched,
    WorkflowRemoved,
)
from dyorc.engine.guessing.prediction import Predictor
from dyorc.engine.guessing.speculation import Speculator
from dyorc.engine.interfaces import Scheduling
from dyorc.engine.model.tree_walks import queued_programs
from dyorc.engine.queue_disciplines import call_placer
from dyorc.engine.scheduling.scheduler import Scheduler
from dyorc.engine.tallies import EffectsGivenUp, ModelStatistics
from dyorc.engine.tasks.task_runner import TaskRunner
from dyorc.engine.timers import Timer, TimerKind
from dyorc.engine.turn import StepLimits
from dyorc.errors import CapacityError, DeadlineError, DyOrcError, RequestCancelledError

NS_PER_S = 1_000_000_000

MakeScheduler: TypeAlias = Callable[[EngineContext, Mapping[str, Program]], Scheduling]
"""Makes a scheduler from what the engine's halves share and the programs by name."""


class Engine:
    """Decides what runs where, when, and in which batch.

    Args:
        config: Limits.
        programs: The deployed programs. Their replicas join later.
        host: What the shell keeps from one engine to the next; by default new.
        predictor: Predicts decisions; by default from earlier ones.
        make_scheduler: Makes a scheduler; by default the one that serves.

    Raises:
        ValueError: If two programs have the same name.
    """

    def __init__(
        self,
        config: EngineConfig,
        programs: Iterable[Program],
        host: Host | None = None,
        predictor: Predictor | None = None,
        make_scheduler: MakeScheduler = Scheduler,
    ) -> None:
        deployed: dict[str, Program] = {}
        for program in programs:
            if deployed.setdefault(program.name, program) is not program:
                raise ValueError(f"two programs are named {program.name!r}")
        self.config = config
        self._step_limits = StepLimits(config.max_steps_per_turn)
        self._host = host or Host()
        self.speculator = Speculator(config.speculation, predictor, self._host.statistics)
        context = EngineContext(config, self.speculator, self._host, call_placer(config))
        self.turn, self.timers, self.leases = context.turn, context.timers, context.leases
        self._deployed = deployed
        self.scheduler = make_scheduler(context, deployed)
        self.tasks = TaskRunner(context, deployed, self.scheduler)

    @property
    def now_ns(self) -> int:
        """When the last events happened."""
        return self.turn.now_ns

    def handle(self, events: Iterable[Event], now_ns: int) -> list[Action]:
        """Handles events together and decides what to do.

        Events that are handled together can share batches, so a shell should hand over all that it has.

        Args:
            now_ns: A monotonic clock, in nanoseconds.

        Returns:
            Actions, to be carried out in order.
        """
        turn = self.turn
        turn.begin(now_ns, self._step_limits)
        for event in events:
            self._apply(event)
        for timer in self.timers.pop_due(now_ns):
            self._fire(timer)
        leases = self.leases
        while True:
            self.tasks.drain()
            self.scheduler.drain()
            if turn.has_work():
                continue
            if (leases.unleased or leases.evicted) and (released := leases.flush()) is not None:
                self.scheduler.forget(released.blocks)
                turn.actions.append(released)
            if not turn.touched:  # released residents make room for others
                break
        if turn.postponed:
            self.timers.set(now_ns, TimerKind.TURN, "")
        at_ns = self.timers.next_announcement()
        if at_ns is not None:
            turn.actions.append(SetTimer(at_ns))
        return turn.finish()

    def statistics(self, name: str, unix_offset_ns: int = 0) -> ModelStatistics:
        """Returns the statistics of a program's calls or a workflow's requests that have ended.

        Args:
            unix_offset_ns: Added to the times that `handle` is given to get Unix time.
        """
        return self._host.statistics.of(name, unix_offset_ns)

    def workflows_in_flight(self) -> Iterator[str]:
        """Yields the workflow's name of every request that has not been answered."""
        return self.tasks.answering.workflows_in_flight()

    def runs(self, workflow: Workflow) -> bool:
        """Returns whether a request of a workflow is in flight. Cost: looks at all requests."""
        return any(request.root is not None and request.root.callee is workflow for request in self.tasks.requests.values())

    def pending_effects(self) -> dict[str, int]:
        """Returns how many effects of answered requests have not happened yet, by workflow. Cost: looks at all requests."""
        return self.tasks.answering.pending_effects()

    def give_up(self) -> dict[str, EffectsGivenUp]:
        """Counts unanswered requests as failed, and pending effects as lost or not begun, because no event follows.

        Returns:
            The pending effects, by workflow.
        """
        return self.tasks.answering.give_up()

    def _apply(self, event: Event) -> None:
        match event:
            case RequestArrived():
                self._arrive(event)
            case PartTaken():  # early, as the news that come most often
                if event.lost:
                    self.scheduler.lose(event.lost)
                self.tasks.part_taken(event)
            case BatchDone() | BatchFailed() | TensorsLost() | ReplicaJoined() | ReplicaLeft() | LoadFailed() | ReplicasWanted():
                self.scheduler.take(event)
            case ReplicaLeaving() | SuspectsReported() | BatchUnsent() | BatchPart() | InputPartsTaken():
                self.scheduler.take(event)
            case ValueFetched():
                self.scheduler.lose(event.lost)
                self.tasks.fetches.value_fetched(event)
            case AnswerTaken():
                self.scheduler.lose(event.lost)
                self.tasks.answering.answer_taken(event)
            case RequestCancelled(request_id=request_id):
                self.tasks.answering.cancel(request_id, RequestCancelledError("the request was cancelled"))
            case TimerFired():
                self.timers.forget_announcement()  # due timers are handled after the events of every turn
            case ProgramAdded():
                self._add(event)
            case ProgramRemoved():
                self._remove(event)
            case HolderJoined(holder_id=holder_id):
                self.leases.holder_joined(holder_id)
            case WorkflowRemoved(workflow=workflow):
                for part in workflow.reachable_workflows():
                    self.speculator.forget(part)
                    self.tasks.determinism.forget(part)
                self.scheduler.take(event)
                for name in (workflow.name, shadow_name(workflow.name)):
                    self._host.statistics.retire_workflow(name)
            case _:
                assert_never(event)

    def _add(self, event: ProgramAdded) -> None:
        program = event.program
        known = self._deployed.get(program.name)
        if known is None:
            self._deployed[program.name] = program
            self.scheduler.take(event)
        elif known is not program:
            self.tasks.twins.add(program)

    def _remove(self, event: ProgramRemoved) -> None:
        program = event.program
        self.tasks.twins.discard(program)
        if self._deployed.get(program.name) is program:
            self.scheduler.take(event)
            del self._deployed[program.name]
            self._host.statistics.retire_program(program.name)

    def _arrive(self, event: RequestArrived) -> None:
        error = self._check_room(event)
        if error is not None:
            self.turn.actions.append(FailRequest(event.request_id, error))
            if event.story is not None:
                event.story.end(self.now_ns, is_answered=False)
            name = counted_name(event.workflow.name, event.terms)
            self._host.statistics.count_unanswered(name, error.code, 0, self.now_ns)
            self.leases.discard(blocks_of(event.inputs))
            return
        deadline_ns = event.terms.deadline_ns
        if deadline_ns is None:
            deadline_ns = self.now_ns + int(self.config.request_timeout_s * NS_PER_S)
        self.tasks.answering.start(event, deadline_ns)

    def _check_room(self, event: RequestArrived) -> DyOrcError | None:
        if len(self.tasks.requests) >= self.config.max_requests:
            return CapacityError(f"{len(self.tasks.requests)} requests are in flight, the limit is {self.config.max_requests}")
        if event.terms.is_shadow and self.scheduler.are_calls_waiting(event.workflow.programs):
            return CapacityError("calls are waiting, and no other request may wait for the copy of one")
        return self.scheduler.check_room(event.workflow.programs)

    def _fire(self, timer: Timer) -> None:
        match timer.kind, timer.key:
            case TimerKind.DEADLINE, int(request_id):
                self.tasks.answering.cancel(request_id, self._deadline_error(request_id))
            case TimerKind.TURN, _:
                pass  # a turn has begun: postponed waiters continue
            case _:
                self.scheduler.fire(timer)

    def _deadline_error(self, request_id: int) -> DeadlineError:
        """Returns the error of a request whose time is up. It names a program that had no replica for it."""
        text = "the request's deadline passed before its answer was ready"
        request = self.tasks.requests.get(request_id)
        if request is not None and request.root is not None:
            for program in queued_programs(request.root):
                if coldness := self.scheduler.coldness(program):
                    return DeadlineError(f"{text}: {coldness}")
        return DeadlineError(text)
